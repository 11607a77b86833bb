//! `park`, `drain`, `restore`, `pin`: what becomes of a session that there is.

use std::time::Duration;

use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::request::Update;
use protocol::session::Conversation;
use protocol::session::Reason;
use protocol::{ErrorCode, Event, Lifecycle, Refusal, Session, Timestamp};

use super::change::{ending, idle_enough, is_to_start};
use super::refuse;
use crate::budget;
use crate::pool::{Pool, is_between};
use crate::queue;
use crate::settings::Settings;
use crate::slots;

/// Decides on `park`. No event where it is parked, or on its way there.
///
/// # Errors
/// Conflict with work in flight or a client attached, unless forced; refused where it does not run.
pub fn park(pool: &Pool, session: &Session, force: bool) -> Result<Vec<Event>, Refusal> {
    let name = &session.name;
    match (session.lifecycle, session.reason) {
        (Lifecycle::Parked, _) => return Ok(Vec::new()),
        (Lifecycle::Draining, Some(reason)) if reason.parks() => return Ok(Vec::new()),
        (Lifecycle::Live, _) => {}
        (Lifecycle::Starting | Lifecycle::Draining, _) => {
            return refuse(ErrorCode::Conflict, format!("{name} is just starting or ending; try again"));
        }
        (Lifecycle::Stopped | Lifecycle::Failed | Lifecycle::Lost, _) => {
            return refuse(ErrorCode::Refused, format!("{name} does not run, so it holds no slot"));
        }
    }
    if session.incarnation.as_ref().is_some_and(protocol::Incarnation::is_adopted) {
        let why = format!("{name} was adopted: the pool does not know how to start it again");
        return refuse(ErrorCode::Refused, why);
    }
    if !force {
        idle_enough(pool, session, "park --force parks it all the same; what waits wakes it again")?;
    }
    Ok(vec![ending(session, Reason::Parked)])
}

/// It is put aside for this reason: for another session, or because it was idle.
#[must_use]
pub fn put_aside(session: &Session, reason: Reason) -> Event {
    ending(session, reason)
}

/// Decides on `drain`. No event where it drains, or is over and is not to start again.
///
/// # Errors
/// Refused where messages wait and nobody could work them; conflict where it is just ending.
pub fn drain(pool: &Pool, session: &Session) -> Result<Vec<Event>, Refusal> {
    let (id, name, exit) = (session.id, &session.name, session.exit);
    match (session.lifecycle, session.reason) {
        (Lifecycle::Live, _) => Ok(vec![ending(session, Reason::Drained)]),
        (Lifecycle::Starting, _) => {
            refuse(ErrorCode::Conflict, format!("{name} is just starting; try again"))
        }
        (Lifecycle::Draining, Some(Reason::Drained | Reason::Killed)) => Ok(Vec::new()),
        (Lifecycle::Draining, _) => refuse(ErrorCode::Conflict, format!("{name} is just ending; try again")),
        (Lifecycle::Stopped | Lifecycle::Failed, _) if !is_to_start(session) => Ok(Vec::new()),
        _ if queue::is_empty(pool, id) => {
            let stays = Event::SessionStopped { session: id, reason: Reason::Drained, exit };
            Ok(std::iter::once(stays).chain(budget::renewed(session)).collect())
        }
        _ => {
            let why = format!(
                "{name} does not run and has messages to work: `poolctl restore {name}` first, or cancel them"
            );
            refuse(ErrorCode::Refused, why)
        }
    }
}

/// Whether a session that drains has nothing left to work.
#[must_use]
pub fn is_drained(pool: &Pool, session: &Session) -> bool {
    let drains = session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Drained);
    drains && queue::is_empty(pool, session.id)
}

/// All that were lost, or are about to be, are to be started, this far apart.
#[must_use]
pub fn restore_all(pool: &Pool, spacing: Duration, now: Timestamp) -> Vec<Event> {
    let ending = |s: &&Session| s.lifecycle == Lifecycle::Draining && s.reason == Some(Reason::ServerGone);
    let lost = pool.sessions().filter(|s| s.lifecycle == Lifecycle::Lost || ending(s));
    let step = |n: usize| spacing.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX));
    let due = |(n, s): (usize, &Session)| {
        let due_at = Some(now.after(step(n)));
        Event::BudgetChanged { session: s.id, budget: Budget { due_at, ..Budget::default() } }
    };
    lost.enumerate().map(due).collect()
}

/// Decides on `pin` and `unpin`.
#[must_use]
pub fn pin(session: &Session, pinned: bool) -> Option<Event> {
    let policy = Policy { pinned, ..session.policy.clone() };
    let changed = policy != session.policy;
    changed.then_some(Event::SessionPolicyChanged { session: session.id, policy })
}

/// Decides on `update`. No event where all is so already.
///
/// # Errors
/// Usage, where one thing does not go with another.
pub fn update(settings: &Settings, session: &Session, asked: &Update) -> Result<Option<Event>, Refusal> {
    let before = &session.policy;
    let mut reap = before.reap.clone();
    for (rule, action) in &asked.reap {
        match action {
            Some(action) => drop(reap.insert(*rule, *action)),
            None => drop(reap.remove(rule)),
        }
    }
    super::text::reap(&reap)?;
    let policy = Policy {
        restart: asked.restart.unwrap_or(before.restart),
        max_restarts: asked.max_restarts.or(before.max_restarts),
        idle_timeout_ms: asked.idle_timeout_ms.or(before.idle_timeout_ms),
        ttl_ms: asked.ttl_ms.or(before.ttl_ms),
        max_runtime_ms: asked.max_runtime_ms.or(before.max_runtime_ms).filter(|ms| *ms != u64::MAX),
        reap,
        ..before.clone()
    };
    if policy.ephemeral && policy.restart != RestartPolicy::No {
        let why = "what is removed at its end cannot be started again: ephemeral and restart";
        return refuse(ErrorCode::Usage, why);
    }
    let parks = asked.idle_timeout_ms.is_some_and(|ms| ms != u64::MAX);
    if parks && !slots::is_parkable(settings, session) {
        let why =
            format!("{} is never parked by itself: its agent cannot take up where it was", session.name);
        return refuse(ErrorCode::Usage, why);
    }
    let changed = policy != *before;
    Ok(changed.then_some(Event::SessionPolicyChanged { session: session.id, policy }))
}

/// Something was said to its agent, so that its conversation can be taken up again; an event where that is new.
#[must_use]
pub fn spoken_to(session: &Session) -> Option<Event> {
    let begun = session.conversation.clone().filter(|last| !last.begun);
    let conversation = begun.map(|last| Conversation { begun: true, ..last });
    conversation.is_some().then_some(Event::ConversationChanged { session: session.id, conversation })
}

/// What was kept for as long as it was to be, and why it goes.
pub fn outdated(
    pool: &Pool,
    keep_stopped: Option<Duration>,
    now: Timestamp,
) -> impl Iterator<Item = (&Session, Reason)> {
    pool.sessions().filter_map(move |session| {
        let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
        let aside = matches!(session.lifecycle, Lifecycle::Parked | Lifecycle::Lost);
        let settled = session.budget.due_at.is_none() && !is_between(session);
        let age = pool.age(now, session.changed_at);
        if session.policy.pinned || session.lock.is_some() {
            return None;
        }
        if over && settled && session.policy.ephemeral && age >= EPHEMERAL {
            return Some((session, Reason::Ephemeral));
        }
        let own = session.policy.ttl_ms.map(|ms| (ms != u64::MAX).then(|| Duration::from_millis(ms)));
        let keep = if over { own.unwrap_or(keep_stopped) } else { own.flatten() }?;
        let goes = (over || aside) && queue::is_empty(pool, session.id) && settled && age >= keep;
        goes.then_some((session, Reason::Ttl))
    })
}

/// What is removed at its end stays so long, for those who want to know how it ended.
const EPHEMERAL: Duration = Duration::from_secs(10);
