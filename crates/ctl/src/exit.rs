//! Exit codes, and the report of errors.

use std::io;

use nix::sys::signal::Signal;
use protocol::ErrorCode;
use serde_json::json;

use crate::Error;
use crate::show::{escape, out};

/// Success, also if there was nothing to do.
pub(crate) const OK: u8 = 0;
/// A failure of `poolctl` in commands that end with the session's exit code (`run`, `wait --for exit`), as in
/// docker.
pub(crate) const OWN_FAILURE: u8 = 125;
/// A program that exists could not be executed, as in a shell and `env`.
pub(crate) const NOT_EXECUTED: u8 = 126;
/// A program does not exist.
pub(crate) const NO_PROGRAM: u8 = 127;
/// Standard output was closed by its reader: 128 + SIGPIPE, as in a shell.
pub(crate) const BROKEN_PIPE: u8 = 141;
/// Ended by Ctrl-C: 128 + SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// Ended by a signal: 128 and its number, as in a shell.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal as i32).unwrap_or(INTERRUPTED)
}

/// The result of a verb that succeeds: `()` for the exit code 0, or another exit code.
pub(crate) trait IntoCode {
    fn into_code(self) -> u8;
}

impl IntoCode for () {
    fn into_code(self) -> u8 {
        OK
    }
}

impl IntoCode for u8 {
    fn into_code(self) -> u8 {
        self
    }
}

/// The exit code for an error; `ends_as_session` is set for commands that end with the session's exit code.
pub(crate) fn code(error: &Error, ends_as_session: bool) -> u8 {
    match error {
        Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => BROKEN_PIPE,
        _ if ends_as_session => OWN_FAILURE,
        error => error.code().exit_code(),
    }
}

/// The error code with this exit code; `None` for exit codes of other meanings.
pub(crate) fn error_code(exit: i32) -> Option<ErrorCode> {
    ErrorCode::ALL.into_iter().find(|code| i32::from(code.exit_code()) == exit)
}

/// Reports an error on standard error, as text or JSON. A closed standard output is not reported.
pub(crate) fn report(error: &Error, json: bool, exit: u8) {
    if exit == BROKEN_PIPE {
        return;
    }
    let text = if json {
        let code = error.code().as_str();
        escape::json(
            &json!({"error": {"code": code, "message": error.to_string(), "exit": exit}}).to_string(),
        )
    } else {
        format!("poolctl: {}", escape::lines(&error.to_string()))
    };
    out::note(&text);
}

#[cfg(test)]
mod tests {
    use protocol::Refusal;

    use super::*;

    #[test]
    fn the_table_of_exit_codes() {
        let table = [
            (ErrorCode::Failed, "failed", 1),
            (ErrorCode::Usage, "usage", 2),
            (ErrorCode::NotFound, "not_found", 3),
            (ErrorCode::Conflict, "conflict", 4),
            (ErrorCode::Refused, "refused", 5),
            (ErrorCode::Timeout, "timeout", 6),
            (ErrorCode::Unavailable, "unavailable", 7),
            (ErrorCode::Protocol, "protocol", 8),
            (ErrorCode::Storage, "storage", 9),
        ];
        for (code, word, exit) in table {
            let error = Error::from(Refusal::new(code, "x"));
            assert_eq!((code.as_str(), super::code(&error, false)), (word, exit));
            assert_eq!(super::code(&error, true), OWN_FAILURE);
            assert_eq!(error_code(exit.into()), Some(code));
        }
        assert_eq!(error_code(101), None);
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        let error = Error::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(code(&error, false), BROKEN_PIPE);
        assert_eq!(code(&error, true), BROKEN_PIPE);
        assert_eq!(code(&Error::Output(io::ErrorKind::StorageFull.into()), false), 1);
    }
}
