//! The input that the pool types into terminals. Keys that users press (`poolctl keys`, `rpc input`) are on record, so
//! that a restart of `poold` does not forget that a line or a dialog may be half done.

use std::time::Duration;

use protocol::{SessionId, Tag, Timestamp};

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

/// Time since something was last typed into an incarnation through the pool, if its agent has reported nothing since:
/// agents without hooks, and all after a command of their own, show on their screens alone that they took it.
pub fn unheard_ago(turn: &Turn<'_>, tag: Tag) -> Option<Duration> {
    let (pool, now) = (turn.pool(), turn.now());
    let prompts = &turn.volatile.prompts;
    let (entered, given) = (prompts.entered_at(tag)?, *prompts.delivered_at().get(&tag)?);
    let notes = pool.tagged(tag).and_then(|session| pool.notes(session.id));
    let heard = notes.filter(|notes| notes.hooked == Some(tag)).and_then(|notes| notes.heard_at);
    heard.is_none_or(|heard| pool.is_earlier(now, heard, entered)).then(|| turn.age(given))
}

/// Time since keys were last pressed in the session's terminal.
pub fn keys_age(turn: &Turn<'_>, session: SessionId) -> Option<Duration> {
    keys_at(turn.pool(), session).map(|at| turn.age(at))
}
