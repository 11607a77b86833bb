//! Keys that users press in terminals through the pool (`poolctl keys`, `rpc input`). They are on record, so that a
//! restart of `poold` does not forget that a line or a dialog may be half done.

use std::time::Duration;

use protocol::{SessionId, Timestamp};

use crate::pool::Pool;
use crate::turn::Turn;

/// True if keys were pressed in the session's terminal after this time, whatever the clock was set to since.
pub fn has_keys_since(turn: &Turn<'_>, session: SessionId, at: Timestamp) -> bool {
    let (pool, now) = (turn.pool(), turn.now());
    keys_at(pool, session).is_some_and(|keys_at| pool.is_earlier(now, at, keys_at))
}

/// The time at which keys were last pressed in the terminal of the session's present incarnation.
fn keys_at(pool: &Pool, session: SessionId) -> Option<Timestamp> {
    pool.session(session)?.keys_at
}

/// Time since keys were last pressed in the session's terminal.
pub fn keys_age(turn: &Turn<'_>, session: SessionId) -> Option<Duration> {
    keys_at(turn.pool(), session).map(|at| turn.age(at))
}
