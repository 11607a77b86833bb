//! A suspension of the whole daemon, by a signal or together with the machine. No heartbeat could arrive meanwhile, so
//! all leases begin again.

use std::time::Duration;

use crate::deadlines::Mono;
use crate::turn::Turn;

/// Delay of a tick which shows that the whole daemon was suspended.
pub const SUSPENDED: Duration = Duration::from_secs(1);

/// Gives all leases, those of users' locks too, their whole time again if the daemon was suspended before this tick,
/// which was requested at `asked_at`. Returns the delay of the tick then.
pub fn note_suspension(turn: &mut Turn<'_>, asked_at: Mono) -> Option<Duration> {
    let mono = turn.mono();
    let (pool, volatile) = turn.state();
    let (workers, locks) = (&mut volatile.workers, &mut volatile.user_locks);
    // The first deadline that the tick was for.
    let due = [workers.first_deadline(), locks.first_deadline(), workers.armed()].into_iter().flatten().min();
    let late = due?.until(asked_at);
    if late < SUSPENDED {
        return None;
    }
    workers.restart_leases(pool, mono);
    locks.restart_leases(pool, mono);
    Some(late)
}
