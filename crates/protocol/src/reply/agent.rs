//! Answers about agents and their terminals.

use serde::{Deserialize, Serialize};

use crate::activity::AskKind;
use crate::ids::SessionId;
use crate::session::Size;
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;

/// A terminal as it is: what a viewer draws first, then the bytes of the log from `offset` on. Some of these may be
/// on the screen already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its size.
    pub size: Size,
    /// The visible lines with their colours, each ended by a line feed.
    pub screen: OsBytes,
    /// The cursor's column and row, from 0.
    pub cursor: (u16, u16),
    /// Whether the cursor is shown.
    pub cursor_shown: bool,
    /// Whether the program uses the alternate screen, as full-screen programs do.
    pub alternate: bool,
    /// The title that its program gave it.
    pub title: String,
    /// The end of the session's log before the screen was read.
    pub offset: u64,
}

/// A session that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// Which.
    pub session: SessionId,
    /// Its name.
    pub name: Name,
    /// What kind of thing is asked, where that is known.
    pub kind: Option<AskKind>,
    /// Whether `approve` can answer it.
    pub answerable: bool,
    /// Since when it waits.
    pub since: Timestamp,
}

/// The colours of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Theme {
    /// What it is of: the repository's directory, or the session's where it is in none.
    pub of: OsBytes,
    /// `#rrggbb`.
    pub body: String,
    /// Likewise.
    pub outline: String,
    /// Likewise.
    pub accent: String,
    /// Likewise.
    pub shirt: String,
    /// `fish`, `balls` or `jelly`.
    pub sprite: Option<String>,
    /// Whether the repository says so itself.
    pub own: bool,
}

/// Something that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxItem {
    /// Whose.
    pub session: SessionId,
    /// Its name.
    pub name: Name,
    /// `permission`, `question`, `dialog`, `bell`, `message` (in doubt, or it arrived altered), `login`, `unconfirmed`,
    /// `held_back`, `failing`, `exhausted`, `over`.
    pub kind: String,
    /// Since when.
    pub since: Timestamp,
    /// What it is.
    pub text: String,
    /// The command that goes on from there.
    pub next: String,
}
