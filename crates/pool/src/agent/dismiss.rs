//! `dismiss`: a person has seen what a session asks, and need not be told of this occurrence any more.

use std::time::Duration;

use protocol::{Activity, ActivityState, AskKind, ErrorCode, Event, Refusal, Session, Timestamp, time};

use crate::agent::activity::{activity_changed, current_activity};
use crate::pool::Pool;
use crate::queue::admin;
use crate::refusal::refuse;
use crate::volatile::Volatile;

/// Decides on `dismiss`. A bell ends with it. A question stays open until it is answered, but is no longer
/// listed. If nothing is asked, nothing changes.
///
/// # Errors
/// Conflict: a message in doubt has to be resolved.
pub fn dismiss(
    pool: &Pool,
    volatile: &mut Volatile,
    session: &Session,
    now: Timestamp,
) -> Result<Option<Event>, Refusal> {
    let shown = current_activity(pool, session);
    let Some(ask) = shown.ask.as_ref().filter(|_| shown.state == ActivityState::Attention) else {
        return Ok(None);
    };
    match ask.kind {
        AskKind::Message => {
            let name = session.name.as_str();
            let how = admin::resolve_command(name, protocol::MessageId(ask.id));
            refuse(
                ErrorCode::Conflict,
                format!("a message of {name} is in doubt, which only you can resolve: `{how}`"),
            )
        }
        AskKind::Bell => {
            volatile.agents.dismiss(session.id, &shown);
            volatile.agents.answer_bell(shown.tag, now);
            let under = shown.tag.and_then(|tag| volatile.agents.under_bell(tag).cloned());
            let after = under.map(|under| Activity { tag: shown.tag, ..under });
            Ok(after.and_then(|after| activity_changed(session, &shown, after)))
        }
        AskKind::Permission | AskKind::Question | AskKind::Dialog => {
            volatile.agents.dismiss(session.id, &shown);
            Ok(None)
        }
    }
}

/// Longest time until a bell is on record, while `poold` runs.
const UNRECORDED: Duration = Duration::from_secs(2);

/// At a start of `poold`, counts earlier bells as answered, except those that still ask according to the record. The
/// record has no times at which persons attended to sessions: it only shows which bells still ask. `last` is the time
/// of the journal's last event. A session's `verified_at` may be later, because the end of an attachment is recorded
/// without an event.
pub fn keep_bells_answered(pool: &Pool, volatile: &mut Volatile, (last, now): (Timestamp, Timestamp)) {
    let rings = |shown: &Activity| shown.ask.as_ref().is_some_and(|ask| ask.kind == AskKind::Bell);
    for session in pool.sessions() {
        let Some(tag) = session.tag() else { continue };
        if !pool.activity_in(session.id, tag).is_some_and(rings) {
            let recorded = pool.latest(now, session.verified_at.into_iter().chain([last])).min(now);
            let before = Timestamp(recorded.0.saturating_sub(time::millis(UNRECORDED)));
            volatile.agents.answer_bell([tag], before);
        }
    }
}
