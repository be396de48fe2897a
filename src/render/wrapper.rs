//! The shell text that carries a Python script into a container.

use super::RenderError;
use crate::types::shell_quoted;

/// Where the script stands in the container (\[L\] S79).
const SCRIPT_PATH: &str = "/tmp/u.py";
/// The heredoc's delimiter, when nothing in the script is against it.
const DELIMITER: &str = "NYMPH_EOF";
/// What may stand before [`DELIMITER`] otherwise.
const PREFIXES: &str = "ABCDEFGHIJKLMOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
/// Longest text that `/bin/sh -c` can be given, in bytes.
///
/// **Source:** `MAX_ARG_STRLEN` in Linux' `include/uapi/linux/binfmts.h`, which counts the final NUL. It holds for what the runtime
/// passes to the kernel, which is what the kubelet has left after reducing each `$$`.
pub const MAX_COMMAND: usize = crate::policy::MAX_ARGUMENT - 1;

/// The text for `/bin/sh -c`: writes `script` byte for byte to [`SCRIPT_PATH`] and becomes `python3` with `args`.
///
/// It needs `sh`, `cat` and `python3` in the image, and a writable `/tmp`. A heredoc always ends in a newline, so what follows the
/// script's last newline is written by the shell's own `printf`; so is all of a script that leaves no delimiter free. `exec` makes Python the process that gets signals and whose exit
/// code counts (\[L\] S81); when the script cannot be written, nothing is started.
///
/// # Errors
/// [`RenderError::CommandTooLong`] over [`MAX_COMMAND`].
pub(super) fn wrap(script: &str, args: &[String]) -> Result<String, RenderError> {
    let (lines, tail) = script.rfind('\n').map_or(("", script), |at| script.split_at(at + 1));
    let mut text = String::with_capacity(script.len() + 200);
    match delimiter(lines).filter(|_| !lines.is_empty()) {
        Some(delimiter) => {
            text.push_str(&format!("cat >{SCRIPT_PATH} <<'{delimiter}' || exit\n{lines}{delimiter}\n"));
            if !tail.is_empty() {
                text.push_str(&format!("printf %s {} >>{SCRIPT_PATH} || exit\n", shell_quoted(tail)));
            }
        }
        None => text.push_str(&format!("printf %s {} >{SCRIPT_PATH} || exit\n", shell_quoted(script))),
    }
    text.push_str(&format!("exec python3 {SCRIPT_PATH}"));
    for arg in args {
        text.push(' ');
        text.push_str(&shell_quoted(arg));
    }
    if text.len() > MAX_COMMAND {
        let args = args.iter().map(String::len).sum();
        return Err(RenderError::CommandTooLong { script: script.len(), args, command: text.len() });
    }
    Ok(text)
}

/// Keeps `text` as it is through the kubelet, which replaces `$(NAME)` and reduces `$$` in arguments and environment values.
///
/// **Source:** `Expand` in `k8s.io/kubernetes/third_party/forked/golang/expansion`: `$$` gives `$` and is not looked at again.
pub(super) fn escape_dollars(text: &str) -> String {
    text.replace('$', "$$")
}

/// A delimiter that no line of `lines` disturbs, always the same for the same lines; `None` when there is none.
fn delimiter(lines: &str) -> Option<String> {
    let prefixed = PREFIXES.chars().map(|prefix| format!("{prefix}_{DELIMITER}"));
    std::iter::once(DELIMITER.to_owned()).chain(prefixed).find(|delimiter| !lines.split('\n').any(|line| disturbs(line, delimiter)))
}

/// Whether `line` is the delimiter, or begins as it does and goes on with a byte that is not ASCII: of such a line dash 0.5.12, the
/// `sh` of Debian 12, loses that byte when it puts back what it compared. `Né` would do for a delimiter that begins with `N`.
fn disturbs(line: &str, delimiter: &str) -> bool {
    let common = line.bytes().zip(delimiter.bytes()).take_while(|(one, other)| one == other).count();
    line == delimiter || (common > 0 && line.as_bytes().get(common).is_some_and(|byte| !byte.is_ascii()))
}
