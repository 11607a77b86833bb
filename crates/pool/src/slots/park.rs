//! The decision to park. The session is hung up only once tmux has shown that no client is attached.

use std::time::Duration;

use protocol::{Activity, Incarnation, Lifecycle, Reason, Session, SessionId, Tag, Timestamp};

use crate::pool::Pool;
use crate::session::lifecycle::begin_end;
use crate::settings::Settings;
use crate::slots::eviction::check_parkable;
use crate::turn::Turn;

/// Remaining time of a usage limit above which the session is parked.
const PARKED_LIMIT_MIN: Duration = Duration::from_secs(60);

/// Begins to park a running session. Returns its incarnation; none if its parking is deferred.
pub(crate) fn begin_park(turn: &mut Turn<'_>, session: &Session, reason: Reason) -> Option<(SessionId, Tag)> {
    let tag = session.incarnation.as_ref()?.tag;
    if turn.volatile.scheduler.is_parking_deferred(turn.pool(), session.id, turn.now()) {
        return None;
    }
    turn.emit(begin_end(session, reason));
    turn.volatile.reaping.guard(tag);
    turn.volatile.reaping.forget_verdict(tag);
    Some((session.id, tag))
}

/// Begins to park a session whose agent is at its usage limit until this time, if nothing is lost by it. Returns its
/// incarnation.
pub fn park_limited(
    turn: &mut Turn<'_>,
    settings: &Settings,
    session: &Session,
    until: Timestamp,
) -> Option<(SessionId, Tag)> {
    let counts = turn.pool().queue_counts(Some(session.id));
    let free = session.attached_clients == 0 && session.lock.is_none();
    let at_rest = counts.claimed + counts.in_doubt == 0 && !turn.volatile.prompts.is_delivering(session.id);
    let resumes = session.conversation.as_ref().is_some_and(|conversation| conversation.begun);
    let is_long = until.since(turn.now()) >= PARKED_LIMIT_MIN;
    if !(free && at_rest && is_long && resumes && check_parkable(settings, session).is_ok()) {
        return None;
    }
    begin_park(turn, session, Reason::Limited)
}

/// Returns the incarnation of a session that is still to be parked, to be hung up now; `None` if another request ends
/// it already.
///
/// # Errors
/// The reason why the session continues.
pub fn run_to_hang_up(
    pool: &Pool,
    (session, tag): (SessionId, Tag),
    now: Timestamp,
) -> Result<Option<&Incarnation>, &'static str> {
    let Some(record) = pool.session(session) else { return Ok(None) };
    let run = record.incarnation.as_ref().filter(|run| run.tag == tag);
    if run.is_none() || record.reason == Some(Reason::Restarted) {
        return Err("it was restarted meanwhile");
    }
    let told = pool.activity_in(session, tag).filter(|known| known.source.is_report());
    let is_new = |known: &Activity| pool.is_earlier(now, record.changed_at, known.since);
    match record.lifecycle {
        Lifecycle::Live => Err("it runs on"),
        _ if !record.is_being_parked() => Ok(None),
        _ if told.is_some_and(|known| contradicts_park(record.reason, known, is_new(known))) => {
            Err("it went to work meanwhile")
        }
        _ => Ok(run),
    }
}

/// True if a session is not to be parked after all, by what is known of its agent now. Whoever asked for it, or a rule
/// of the reaper, may have decided that of a working agent: then only work that began after the decision counts. One
/// that gives up its slot was at rest as far as was known. A report that says otherwise may be learnt only later,
/// after a standstill of `poold` for example, although it is from before.
fn contradicts_park(reason: Option<Reason>, known: &Activity, is_new: bool) -> bool {
    known.state.is_at_work() && (is_new || reason == Some(Reason::Evicted))
}
