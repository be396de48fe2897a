//! The exit code of every outcome, in one table.

use super::failure::Failure;

/// A launch that has no exit code of the script to show. **Source:** `docker run` and `env` use it so.
pub(super) const NO_SCRIPT_CODE: u8 = 125;
/// Refused, not found, or a check came out wrong.
const REFUSED: u8 = 1;
/// The command line or a value in it is wrong.
const USAGE: u8 = 2;
/// The control plane is not reachable, or failed.
const UNAVAILABLE: u8 = 3;
/// 128 + SIGINT.
const INTERRUPTED: u8 = 130;
/// What a shell shows for a program that a signal ended, less the signal's number.
const SIGNALLED: u8 = 128;
/// 128 + SIGPIPE: what a shell shows for a program whose reader went away.
const BROKEN_PIPE: u8 = 141;

/// The exit code for `failure`. `launching`: codes below 125 belong to the script.
pub(super) fn code(failure: &Failure, launching: bool) -> u8 {
    let own = match failure {
        Failure::Interrupted => return INTERRUPTED,
        Failure::Ended { number, .. } => return SIGNALLED + number,
        Failure::Stdout(_) if failure.is_broken_pipe() => return BROKEN_PIPE,
        Failure::Usage { .. } => USAGE,
        Failure::Refused(problem) => match problem.status.as_u16() {
            400 | 413 | 415 | 422 => USAGE,
            _ => REFUSED,
        },
        Failure::Faulty(_) | Failure::Unreachable { .. } | Failure::CutOff { .. } | Failure::Confused { .. } => UNAVAILABLE,
        Failure::CheckFailed(_)
        | Failure::UnknownOutcome { .. }
        | Failure::NotShown { .. }
        | Failure::Stdout(_)
        | Failure::Runtime { .. }
        | Failure::Serve(_)
        | Failure::Token(_)
        | Failure::Backup(_)
        | Failure::File { .. } => REFUSED,
    };
    if launching { NO_SCRIPT_CODE } else { own }
}

/// The exit code for a command line that clap answered itself: help and version are no errors.
pub(super) fn of_usage(error: &clap::Error, launching: bool) -> u8 {
    match error.use_stderr() {
        false => 0,
        true if launching => NO_SCRIPT_CODE,
        true => USAGE,
    }
}

/// The exit code for a script that ended with `code`; [`NO_SCRIPT_CODE`] when that is not known or not one of Linux.
pub(super) fn of_script(code: Option<i32>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(NO_SCRIPT_CODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::problem::Problem;
    use reqwest::StatusCode;
    use std::io;

    fn refused(status: u16) -> Failure {
        Failure::Refused(Box::new(Problem::read(StatusCode::from_u16(status).expect("a status"), b"")))
    }

    #[test]
    fn the_table_of_exit_codes() {
        let table = [
            ("usage", Failure::usage("x")),
            ("400", refused(400)),
            ("401", refused(401)),
            ("403", refused(403)),
            ("404", refused(404)),
            ("409", refused(409)),
            ("413", refused(413)),
            ("422", refused(422)),
            ("5xx", Failure::Faulty(Box::new(Problem::read(StatusCode::BAD_GATEWAY, b"")))),
            ("unreachable", Failure::Unreachable { server: String::new(), cause: String::new(), cure: String::new(), unsent: true }),
            ("cut off", Failure::CutOff { server: String::new(), cause: String::new() }),
            ("confused", Failure::Confused { server: String::new(), what: String::new() }),
            ("check failed", Failure::CheckFailed(String::new())),
            ("unknown outcome", Failure::UnknownOutcome { message: String::new(), cure: String::new() }),
            ("interrupted", Failure::Interrupted),
            ("sigterm", Failure::Ended { name: "SIGTERM", number: 15 }),
            ("not shown", Failure::NotShown { message: String::new(), cure: String::new(), why: io::ErrorKind::BrokenPipe.into() }),
            ("broken pipe", Failure::Stdout(io::ErrorKind::BrokenPipe.into())),
            ("disk full", Failure::Stdout(io::ErrorKind::StorageFull.into())),
            ("runtime", Failure::Runtime { source: io::ErrorKind::OutOfMemory.into() }),
        ];
        let table: Vec<_> = table.iter().map(|(name, failure)| format!("{name}: {} launch {}", code(failure, false), code(failure, true))).collect();
        insta::assert_snapshot!(table.join("\n"), @r"
        usage: 2 launch 125
        400: 2 launch 125
        401: 1 launch 125
        403: 1 launch 125
        404: 1 launch 125
        409: 1 launch 125
        413: 2 launch 125
        422: 2 launch 125
        5xx: 3 launch 125
        unreachable: 3 launch 125
        cut off: 3 launch 125
        confused: 3 launch 125
        check failed: 1 launch 125
        unknown outcome: 1 launch 125
        interrupted: 130 launch 130
        sigterm: 143 launch 143
        not shown: 1 launch 125
        broken pipe: 141 launch 141
        disk full: 1 launch 125
        runtime: 1 launch 125
        ");
    }

    #[test]
    fn a_code_that_is_not_known_is_never_shown_as_success() {
        for (code, expected) in [(Some(0), 0), (Some(3), 3), (Some(255), 255), (Some(256), 125), (Some(-1), 125), (None, 125)] {
            assert_eq!(of_script(code), expected, "{code:?}");
        }
    }
}
