//! The shell text that carries a Python script into a container.

use std::collections::BTreeSet;

use super::RenderError;

/// Where the script stands in the container (\[L\] S79).
const SCRIPT_PATH: &str = "/tmp/u.py";
/// What the heredoc's delimiter begins with.
const DELIMITER: &str = "NYMPH_EOF";
/// Longest text that `/bin/sh -c` can be given, in bytes.
///
/// **Source:** `MAX_ARG_STRLEN` in Linux' `include/uapi/linux/binfmts.h`, which counts the final NUL. It holds for what the runtime
/// passes to the kernel, which is what the kubelet has left after reducing each `$$`.
pub const MAX_COMMAND: usize = crate::policy::MAX_ARGUMENT - 1;

/// The text for `/bin/sh -c`: writes `script` byte for byte to [`SCRIPT_PATH`] and becomes `python3` with `args`.
///
/// It needs `sh`, `cat` and `python3` in the image, and a writable `/tmp`. A heredoc always ends in a newline, so what follows the
/// script's last newline is written by the shell's own `printf`. `exec` makes Python the process that gets signals and whose exit
/// code counts (\[L\] S81); when the script cannot be written, nothing is started.
///
/// # Errors
/// [`RenderError::CommandTooLong`] over [`MAX_COMMAND`].
pub(super) fn wrap(script: &str, args: &[String]) -> Result<String, RenderError> {
    let (lines, tail) = script.rfind('\n').map_or(("", script), |at| script.split_at(at + 1));
    let mut text = String::with_capacity(script.len() + 200);
    if !lines.is_empty() {
        let delimiter = delimiter(lines);
        text.push_str(&format!("cat >{SCRIPT_PATH} <<'{delimiter}' || exit\n{lines}{delimiter}\n"));
    }
    if lines.is_empty() || !tail.is_empty() {
        let into = if lines.is_empty() { ">" } else { ">>" };
        text.push_str(&format!("printf %s {} {into}{SCRIPT_PATH} || exit\n", quote(tail)));
    }
    text.push_str(&format!("exec python3 {SCRIPT_PATH}"));
    for arg in args {
        text.push(' ');
        text.push_str(&quote(arg));
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

/// A delimiter that is no line of `lines`, always the same for the same lines.
fn delimiter(lines: &str) -> String {
    let taken: BTreeSet<&str> = lines.split('\n').filter(|line| line.starts_with(DELIMITER)).collect();
    let mut delimiter = DELIMITER.to_owned();
    for n in 1u32.. {
        if !taken.contains(delimiter.as_str()) {
            break; // at the latest after one more turn than there are lines
        }
        delimiter = format!("{DELIMITER}_{n}");
    }
    delimiter
}

/// `text` as one word of the shell. Nothing is special between single quotes but the single quote itself.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
