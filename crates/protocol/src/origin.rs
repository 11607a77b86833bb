//! The origin of a session's record.

use serde::{Deserialize, Serialize};

/// The ways in which a session's record is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A client created it.
    ApiCreate,
    /// Its tmux session was there when `poold` first looked at tmux, and was adopted as configured.
    StartupDiscovery,
    /// Its tmux session was adopted later, as configured or on request.
    Adopted,
    /// The database was restored from a backup, or is a copy of another pool's.
    Restored,
    /// The database was made from an export.
    Imported,
}

impl Origin {
    /// True if its tmux session existed before its record.
    pub fn is_adopted(self) -> bool {
        matches!(self, Self::StartupDiscovery | Self::Adopted)
    }
}
