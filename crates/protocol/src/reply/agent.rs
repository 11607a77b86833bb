//! Answers about agents.

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;

/// The colours of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Theme {
    /// The directory of the repository, or that of the session if it is in none.
    pub of: OsBytes,
    /// The colour of the body, as `#rrggbb`.
    pub body: String,
    /// The colour of the outline, as `#rrggbb`.
    pub outline: String,
    /// The colour of accents, as `#rrggbb`.
    pub accent: String,
    /// The colour of the shirt, as `#rrggbb`.
    pub shirt: String,
    /// The sprite: `fish`, `balls` or `jelly`.
    pub sprite: Option<String>,
    /// True if the repository defines the colours itself.
    pub own: bool,
}

/// Something that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxItem {
    /// The session.
    pub session: SessionId,
    /// The session's name.
    pub name: Name,
    /// The kind of item: `permission`, `question`, `dialog`, `bell`, `message` (in doubt, or altered on
    /// arrival), `login`, `unconfirmed`, `held_back`, `failing`, `exhausted`, `over`,
    /// `failed`, `lost` (one item for all lost sessions, of the one that was lost last).
    pub kind: String,
    /// The time since which it waits.
    pub since: Timestamp,
    /// A description.
    pub text: String,
    /// The command to run next.
    pub next: String,
}
