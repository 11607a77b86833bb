//! Exit codes: which code an error ends with, and how it is reported.

use std::io;

use protocol::ErrorCode;
use serde_json::json;

use crate::error::Error;
use crate::show::{escape, out};

/// All went well, or was so already.
pub(crate) const OK: u8 = 0;
/// `poolctl`'s own failure where the exit code is the session's (`run`, `wait --for exit`), as in docker.
pub(crate) const OWN_FAILURE: u8 = 125;
/// A program was found and could not be executed, as a shell and `env` show it.
pub(crate) const NOT_EXECUTED: u8 = 126;
/// There is no such program.
pub(crate) const NO_PROGRAM: u8 = 127;
/// Standard output was closed by its reader: 128 and SIGPIPE, as a shell shows it.
pub(crate) const BROKEN_PIPE: u8 = 141;
/// Ended by Ctrl-C: 128 and SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

const CODES: [ErrorCode; 9] = [
    ErrorCode::Failed,
    ErrorCode::Usage,
    ErrorCode::NotFound,
    ErrorCode::Conflict,
    ErrorCode::Refused,
    ErrorCode::Timeout,
    ErrorCode::Unavailable,
    ErrorCode::Protocol,
    ErrorCode::Storage,
];

/// The exit code of an error; `passes_on` for commands that end with the session's own code.
#[must_use]
pub(crate) fn code(error: &Error, passes_on: bool) -> u8 {
    match error {
        Error::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => BROKEN_PIPE,
        _ if passes_on => OWN_FAILURE,
        error => error.code().exit_code(),
    }
}

/// The code of which this is the exit code; none for those of other tables.
#[must_use]
pub(crate) fn meaning(exit: i32) -> Option<ErrorCode> {
    CODES.into_iter().find(|code| i32::from(code.exit_code()) == exit)
}

/// Says on standard error what went wrong, in words or as JSON. A reader that went away is not news.
pub(crate) fn report(error: &Error, json: bool, exit: u8) {
    if exit == BROKEN_PIPE {
        return;
    }
    let text = if json {
        let code = error.code().word();
        json!({"error": {"code": code, "message": error.to_string(), "exit": exit}}).to_string()
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
            assert_eq!((code.word(), super::code(&error, false)), (word, exit));
            assert_eq!(super::code(&error, true), OWN_FAILURE);
            assert_eq!(meaning(exit.into()), Some(code));
        }
        assert_eq!(meaning(101), None);
    }

    #[test]
    fn a_closed_pipe_is_quiet() {
        let error = Error::Output(io::ErrorKind::BrokenPipe.into());
        assert_eq!(code(&error, false), BROKEN_PIPE);
        assert_eq!(code(&error, true), BROKEN_PIPE);
        assert_eq!(code(&Error::Output(io::ErrorKind::StorageFull.into()), false), 1);
    }
}
