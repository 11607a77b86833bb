//! What can go wrong with tmux. The one place where tmux's own messages are read.

use std::path::PathBuf;
use std::time::Duration;

/// Why a call of tmux gave no answer, or not the one asked for.
#[derive(Debug, thiserror::Error)]
pub enum TmuxError {
    /// The tmux binary is not there.
    #[error("tmux not found: {}", .0.display())]
    Missing(PathBuf),
    /// The client could not be started.
    #[error("tmux could not be run: {0}")]
    Spawn(#[source] std::io::Error),
    /// Nothing listens at the socket. Does not prove that an earlier server is dead.
    #[error("no tmux server at the socket")]
    NoServer,
    /// The socket cannot be connected to.
    #[error("the tmux socket could not be opened: {0}")]
    Connect(#[source] std::io::Error),
    /// The server is another user's, or others can put one in its place: nothing was sent to it.
    #[error("the tmux socket is not trusted: {0}")]
    Foreign(String),
    /// The connection to the server is over; the server may live on.
    #[error("the connection to the tmux server is over")]
    Closed,
    /// The server went away during the call.
    #[error("the tmux server exited during the call")]
    ServerExited,
    /// No answer within the deadline; the client was killed and waited for.
    #[error("tmux did not answer within {0:?}")]
    TimedOut(Duration),
    /// A session, window, pane or client is not there.
    #[error("tmux: {0}")]
    NotFound(String),
    /// A session with this name is there already.
    #[error("tmux: {0}")]
    Duplicate(String),
    /// The client ended without the end mark.
    #[error("tmux ended without a complete answer")]
    Incomplete,
    /// More output than the cap allows, in bytes.
    #[error("tmux wrote more than {0} bytes")]
    TooLong(usize),
    /// Output that does not parse; the text says where.
    #[error("tmux's output was not understood: {0}")]
    Output(String),
    /// Any other message of tmux, as it wrote it.
    #[error("tmux: {0}")]
    Refused(String),
}

impl TmuxError {
    /// Whether the command may have had its effect all the same. `false`: certainly nothing was done.
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        match self {
            Self::Missing(_) | Self::Spawn(_) | Self::NoServer | Self::Connect(_) => false,
            Self::Foreign(_) => false,
            Self::NotFound(_) | Self::Duplicate(_) | Self::Refused(_) => false,
            Self::ServerExited | Self::TimedOut(_) | Self::Incomplete | Self::Closed => true,
            Self::TooLong(_) | Self::Output(_) => true,
        }
    }

    /// What tmux's standard error says; [`TmuxError::Incomplete`] where it says nothing.
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
            Self::Refused(shorten(message))
        }
    }
}

/// Enough of a message for people to recognise it.
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
    fn doubt_is_only_where_a_command_may_have_run() {
        for certain in
            ["no server running on /s", "can't find pane: %1", "duplicate session: x", "unknown flag -S"]
        {
            assert!(!TmuxError::from_message(certain).in_doubt(), "{certain}");
        }
        for doubtful in ["server exited unexpectedly", ""] {
            assert!(TmuxError::from_message(doubtful).in_doubt(), "{doubtful}");
        }
    }
}
