//! The reason for which a prompt is not typed yet.

use std::fmt;
use std::time::Duration;

use protocol::MessageId;

/// The reason for which a prompt is not typed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    reason: String,
    obstacle: Obstacle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    Passing,
    Silence,
    /// An obstacle that ends in this time, unless it begins anew.
    Timed(Duration),
    Terminal,
    /// The prompt whose own text is the obstacle.
    Text(MessageId),
    Closed,
}

impl Blocked {
    /// An obstacle that ends by itself. `reason` is for people.
    pub fn for_now(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), obstacle: Obstacle::Passing }
    }

    /// A tmux server that does not answer. `reason` is for people.
    pub fn by_silence(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), obstacle: Obstacle::Silence }
    }

    /// An obstacle that ends in this time, unless it begins anew. `reason` is for people.
    pub(crate) fn for_time(reason: impl Into<String>, left: Duration) -> Self {
        Self { reason: reason.into(), obstacle: Obstacle::Timed(left) }
    }

    /// An obstacle that only a person at the terminal can remove. `reason` is for people.
    pub fn by_terminal(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), obstacle: Obstacle::Terminal }
    }

    /// The text of the prompt itself, which can only be cancelled. `reason` is for people.
    pub fn by_text(prompt: MessageId, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), obstacle: Obstacle::Text(prompt) }
    }

    /// The terminal is closed, so that nothing is in it any more.
    pub fn by_end() -> Self {
        Self { reason: "its terminal is closed".to_owned(), obstacle: Obstacle::Closed }
    }

    /// The reason, for people.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The time in which the obstacle ends, if that is known.
    pub fn ends_in(&self) -> Option<Duration> {
        match self.obstacle {
            Obstacle::Timed(left) => Some(left),
            Obstacle::Passing
            | Obstacle::Silence
            | Obstacle::Terminal
            | Obstacle::Text(_)
            | Obstacle::Closed => None,
        }
    }

    /// True if only a person can remove the obstacle.
    pub fn needs_person(&self) -> bool {
        matches!(self.obstacle, Obstacle::Terminal | Obstacle::Text(_))
    }

    /// The prompt whose text is the obstacle.
    pub fn prompt(&self) -> Option<MessageId> {
        match self.obstacle {
            Obstacle::Text(prompt) => Some(prompt),
            Obstacle::Passing
            | Obstacle::Silence
            | Obstacle::Timed(_)
            | Obstacle::Terminal
            | Obstacle::Closed => None,
        }
    }

    /// True if tmux did not answer.
    pub fn is_silence(&self) -> bool {
        self.obstacle == Obstacle::Silence
    }

    /// True if the terminal is closed.
    pub fn is_closed(&self) -> bool {
        self.obstacle == Obstacle::Closed
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
