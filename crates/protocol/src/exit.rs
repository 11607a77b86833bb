//! The exit status of a program: a code or a signal.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The exit status of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// The time of the end.
    pub at: Timestamp,
}

/// The signal of a closed terminal; its number is the same on all systems.
const SIGHUP: i32 = 1;

impl Exit {
    /// True if the program was ended by the end of its terminal, as tmux ends programs.
    pub fn is_hangup(&self) -> bool {
        self.signal == Some(SIGHUP)
    }

    /// Returns the code that a shell would show: the exit code, or 128 plus the signal number.
    pub fn shell_code(self) -> u8 {
        let code = self.code.or_else(|| self.signal.map(|s| 128 + s)).unwrap_or(255);
        u8::try_from(code).unwrap_or(255)
    }
}
