//! Errors of tmux calls. The only place that interprets tmux's own messages.

use std::path::PathBuf;
use std::time::Duration;

use crate::version::{OLDEST, Version};

/// Reason why a call of tmux gave no answer, or another one than requested.
#[derive(Debug, thiserror::Error)]
pub enum TmuxError {
    /// The tmux binary does not exist.
    #[error("tmux not found: {}", .0.display())]
    Missing(PathBuf),
    /// The tmux binary is older than [`OLDEST`]. It was run for nothing but its version.
    #[error("tmux {version} is too old ({}): {OLDEST} or newer is needed", .binary.display())]
    TooOld {
        version: Version,
        /// Its path.
        binary: PathBuf,
    },
    /// The client could not be started.
    #[error("tmux could not be run: {0}")]
    Spawn(#[source] std::io::Error),
    /// Nothing listens at the socket. Does not prove that an earlier server is dead.
    #[error("no tmux server at the socket")]
    NoServer,
    /// Connecting to the socket failed.
    #[error("the tmux socket could not be opened: {0}")]
    Connect(#[source] std::io::Error),
    /// The server belongs to another user, or others could replace it: nothing was sent to it.
    #[error("the tmux socket is not trusted: {0}")]
    Untrusted(String),
    /// The connection to the server has ended; the server may live on.
    #[error("the connection to the tmux server has ended")]
    Closed,
    /// The server exited during the call.
    #[error("the tmux server exited during the call")]
    ServerExited,
    /// No answer within the deadline; the client was killed and reaped.
    #[error("tmux did not answer within {0:?}")]
    TimedOut(Duration),
    /// The session, window, pane or client does not exist.
    #[error("tmux: {0}")]
    NotFound(String),
    /// A session with this name exists already.
    #[error("tmux: {0}")]
    Duplicate(String),
    /// The client ended without writing the end mark.
    #[error("tmux ended without a complete answer")]
    Incomplete,
    /// Output longer than the cap, in bytes.
    #[error("tmux wrote more than {0} bytes")]
    TooLong(usize),
    /// Unparsable output; the text says where.
    #[error("unexpected output of tmux: {0}")]
    Output(String),
    /// Any other message of tmux, verbatim.
    #[error("tmux: {0}")]
    Refused(String),
}

impl TmuxError {
    /// True if the command may have taken effect despite the error; otherwise certainly nothing was done.
    pub fn in_doubt(&self) -> bool {
        match self {
            Self::Missing(_) | Self::TooOld { .. } | Self::Spawn(_) | Self::NoServer => false,
            Self::Connect(_) | Self::Untrusted(_) => false,
            Self::NotFound(_) | Self::Duplicate(_) | Self::Refused(_) => false,
            Self::ServerExited | Self::TimedOut(_) | Self::Incomplete | Self::Closed => true,
            Self::TooLong(_) | Self::Output(_) => true,
        }
    }

    /// True if tmux answered, and did nothing.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::NotFound(_) | Self::Duplicate(_) | Self::Refused(_))
    }

    /// True if the tmux binary itself cannot be used, whatever the server.
    pub fn is_of_program(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::TooOld { .. } | Self::Spawn(_))
    }

    /// Classifies tmux's standard error; [`TmuxError::Incomplete`] if it is empty.
    pub(crate) fn from_message(stderr: &str) -> Self {
        let message = stderr.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
        let starts = |prefixes: &[&str]| prefixes.iter().any(|p| message.starts_with(p));
        let absent =
            message.ends_with("(No such file or directory)") || message.ends_with("(Connection refused)");
        if message.is_empty() {
            Self::Incomplete
        } else if starts(&["no server running on "]) || (starts(&["error connecting to "]) && absent) {
            Self::NoServer
        } else if starts(&["server exited", "lost server"]) {
            Self::ServerExited
        } else if starts(&["duplicate session: "]) {
            Self::Duplicate(shorten(message))
        } else if starts(&["can't find ", "no such ", "no current ", "no sessions"]) {
            Self::NotFound(shorten(message))
        } else {
            Self::Refused(lacking(message).unwrap_or_else(|| shorten(message)))
        }
    }
}

/// Returns what the system lacks, if tmux could not start the program of a pane; `None` for any other message. tmux
/// opens the terminal as a part of its fork, so that a lack of terminals reads as a full disk.
fn lacking(message: &str) -> Option<String> {
    let (before, why) = message.split_once("fork failed: ")?;
    let lack = match why {
        "No space left on device" => "no terminal is left (`sysctl kernel.pty.max`)",
        "Resource temporarily unavailable" => {
            "no more processes are allowed (`ulimit -u` of the tmux server)"
        }
        _ => return None,
    };
    Some(format!("{before}{lack}"))
}

/// Shortens a message to 200 characters, enough to recognise it.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let read = TmuxError::from_message;
        assert!(matches!(read("no server running on /tmp/s\n"), TmuxError::NoServer));
        assert!(matches!(read("error connecting to /x (No such file or directory)"), TmuxError::NoServer));
        assert!(matches!(read("error connecting to /x (Permission denied)"), TmuxError::Refused(_)));
        assert!(matches!(read("server exited unexpectedly"), TmuxError::ServerExited));
        assert!(matches!(read("lost server"), TmuxError::ServerExited));
        assert!(matches!(read("can't find pane: %99"), TmuxError::NotFound(_)));
        assert!(matches!(read("no current target"), TmuxError::NotFound(_)));
        assert!(matches!(read("duplicate session: x"), TmuxError::Duplicate(_)));
        assert!(matches!(read("unknown command: badcmd"), TmuxError::Refused(_)));
        assert!(matches!(read(" \n"), TmuxError::Incomplete));
    }

    #[test]
    fn what_the_system_lacks_for_a_pane_is_named() {
        let told = |why: &str| {
            TmuxError::from_message(&format!("create window failed: fork failed: {why}\n")).to_string()
        };
        let terminals = "tmux: create window failed: no terminal is left (`sysctl kernel.pty.max`)";
        assert_eq!(told("No space left on device"), terminals);
        assert!(told("Resource temporarily unavailable").contains("no more processes are allowed"));
        assert!(told("Cannot allocate memory").ends_with(": fork failed: Cannot allocate memory"));
    }

    #[test]
    fn doubt_is_only_where_a_command_may_have_run() {
        for certain in
            ["no server running on /s", "can't find pane: %1", "duplicate session: x", "unknown flag -S"]
        {
            assert!(!TmuxError::from_message(certain).in_doubt(), "{certain}");
        }
        assert!(!TmuxError::NoServer.is_refusal() && TmuxError::from_message("unknown flag -S").is_refusal());
        for doubtful in ["server exited unexpectedly", ""] {
            assert!(TmuxError::from_message(doubtful).in_doubt(), "{doubtful}");
        }
    }
}
