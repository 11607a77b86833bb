//! The end of a handler, and its meaning for the message.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use protocol::OsBytes;

/// The exit code by which a handler defers its message (`EX_TEMPFAIL` of sysexits.h).
const LATER: i32 = 75;
/// The exit code by which a handler gives its message up (`EX_DATAERR` of sysexits.h).
const DEAD: i32 = 65;

/// The end of a handler.
pub(super) struct HandlerExit {
    pub status: io::Result<ExitStatus>,
    /// Its output, if that is stored.
    pub output: Option<OsBytes>,
}

/// The meaning of a handler's end for its message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is completed.
    Done,
    /// It is deferred, with this reason.
    Later(String),
    /// It is given up, with this reason.
    Dead(String),
    /// It failed, with this reason.
    Failed(String),
}

impl HandlerExit {
    /// The meaning of this end.
    pub(super) fn verdict(&self) -> Verdict {
        let status = match &self.status {
            Ok(status) => status,
            Err(error) => return Verdict::Failed(format!("cannot wait for the handler: {error}")),
        };
        match (status.code(), status.signal()) {
            (Some(0), _) => Verdict::Done,
            (Some(code @ LATER), _) => Verdict::Later(format!("exit {code}")),
            (Some(code @ DEAD), _) => Verdict::Dead(format!("exit {code}")),
            (Some(code), _) => Verdict::Failed(format!("exit {code}")),
            (None, Some(signal)) => Verdict::Failed(format!("killed by signal {signal}")),
            (None, None) => Verdict::Failed("ended in an unknown way".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_the_verdict() {
        let verdict = |raw| HandlerExit { status: Ok(ExitStatus::from_raw(raw)), output: None }.verdict();
        assert_eq!(verdict(0), Verdict::Done);
        assert_eq!(verdict(75 << 8), Verdict::Later("exit 75".into()));
        assert_eq!(verdict(65 << 8), Verdict::Dead("exit 65".into()));
        assert_eq!(verdict(3 << 8), Verdict::Failed("exit 3".into()));
        assert_eq!(verdict(9), Verdict::Failed("killed by signal 9".into()));
    }
}
