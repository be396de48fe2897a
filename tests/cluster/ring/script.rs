//! Scripts of any text arrive exactly; others are refused with a reason.

use sha2::{Digest, Sha256};

use crate::covers::covers;
use crate::world::{file_with, lakeshore, launch};

/// The script hashes its own file, so what arrived is told by the workload itself.
const PROLOGUE: &str = "import hashlib\nprint(hashlib.sha256(open('/tmp/u.py', 'rb').read()).hexdigest())\n";

#[test]
fn a_script_of_any_text_arrives_exactly() {
    covers!("S79", "S80");
    let bodies = [
        "# 'single' \"double\" `backticks` \\ \\n $HOME $(HOSTNAME) $$ $$$ ${X}\n".to_owned(),
        "X = '''\nEOF\nNYMPH\n__EOF__\nPYTHON\nNYMPH_SCRIPT_END\n'''\n".to_owned(),
        "# no newline at the end".to_owned(),
        "# carriage\r\n# returns\r\n".to_owned(),
        "# naïve 日本語 🚀\n\tif_tab = None\n".replace("\tif_tab", "if_tab"),
        "\n\n\n# trailing blank lines\n\n\n\n".to_owned(),
        format!("# {}\n", "60 KiB ".repeat(60 * 1024 / 7)),
    ];
    for body in bodies {
        let script = format!("{PROLOGUE}{body}");
        let run = launch(&script, &[]).ok();
        let expected: String = Sha256::digest(script.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(run.text().trim(), expected, "{:?}", body.chars().take(60).collect::<String>());
    }
}

#[test]
fn a_script_that_no_argument_can_carry_is_refused_with_the_reason() {
    covers!("S79");
    for (bytes, words) in [(&b"print(1)\0"[..], "NUL"), (&b"print('\xff')"[..], "UTF-8"), (&vec![b'#'; 200 << 10][..], "131071")] {
        let path = file_with(bytes, ".py");
        let run = lakeshore(&["launch", "demo", path.to_str().expect("text")]);
        assert_eq!(run.code, Some(125), "{}", run.stderr);
        assert!(run.stderr.contains(words), "{words} is not in: {}", run.stderr);
    }
}
