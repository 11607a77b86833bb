//! The number of free slots.

use crate::pool::Pool;
use crate::settings::Settings;

/// Number of sessions that can still get a running incarnation.
#[must_use]
pub fn free(pool: &Pool, settings: &Settings) -> usize {
    settings.max_sessions.saturating_sub(pool.slots_used())
}
