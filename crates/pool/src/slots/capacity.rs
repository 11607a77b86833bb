//! The number of free slots, and that of sessions for which a tmux server has open files left.

use crate::pool::Pool;
use crate::settings::Settings;

/// Number of sessions that can still get a running incarnation.
pub fn free(pool: &Pool, settings: &Settings) -> usize {
    settings.max_sessions.saturating_sub(pool.slots_used())
}

/// Open files of the tmux server that are kept free: for attached clients, for the commands of users.
const FILES_RESERVED: u64 = 10;

/// Open files of the tmux server that a new session needs while it is started: its terminal, its log, the commands
/// that create it.
const FILES_PER_START: u64 = 6;

/// Number of sessions that a tmux server with `used` of `max` open files can still start, after those that start now
/// and whose files may not be among the used ones yet. A server that has no file left hangs for good.
pub fn startable((used, max): (u64, u64), unsettled: usize) -> usize {
    let starts = max.saturating_sub(used).saturating_sub(FILES_RESERVED) / FILES_PER_START;
    usize::try_from(starts).unwrap_or(usize::MAX).saturating_sub(unsettled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_that_start_together_find_their_files(used in 0_u64..200, max in 0_u64..200, unsettled in 0_usize..20) {
            let more = startable((used, max), unsettled) as u64;
            let all = used + (unsettled as u64 + more) * FILES_PER_START + FILES_RESERVED;
            prop_assert!(more == 0 || all <= max);
            prop_assert!(all + FILES_PER_START > max, "none is refused that has room");
        }
    }

    #[test]
    fn a_server_without_a_limit_starts_any_number() {
        assert!(startable((1000, u64::MAX), 50) > 1_000_000);
    }
}
