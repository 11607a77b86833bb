//! The reason for which a prompt is not typed yet.

use std::fmt;

/// The reason for which a prompt is not typed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    reason: String,
    needs_person: bool,
}

impl Blocked {
    /// An obstacle that ends by itself. `reason` is for people.
    #[must_use]
    pub fn for_now(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), needs_person: false }
    }

    /// An obstacle that only a person at the terminal can remove. `reason` is for people.
    #[must_use]
    pub fn by_terminal(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), needs_person: true }
    }

    /// The reason, for people.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// True if only a person at the terminal can remove the obstacle.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        self.needs_person
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}
