//! Lanes that stand still. A lane is the messages of one kind of one session. It moves when one of them is
//! claimed, typed, or becomes final, and stands still from then on, or from the moment at which it was empty.
//!
//! Messages that wait on purpose do not count: prompts of a session that does not run (`inbox` and `show` list them)
//! or whose lock a person holds, messages of a worker that a person stopped, and messages whose next attempt has a
//! time. Nor do messages in work, however long that takes: claimed under a lease, or accepted by an agent. The
//! reaper's rules end workers and agents that hang.
//!
//! [`stuck`] is asked by `status`, `stats` and `inbox`; [`changes`] decides on the events, at intervals, which
//! are short while a lane is known to be stuck. The known lanes are in the session's record, so that a restart
//! of the daemon tells nothing again.

use protocol::event::LaneEvent;
use protocol::{
    Event, MessageState, PROMPT, Session, SessionId, Standstill, StuckLane, StuckReason, Timestamp,
    UnstuckReason,
};

use crate::lock::prompts::{is_locked_without_prompts, newest_of};
use crate::pool::Pool;
use crate::queue::kind_queue::KindQueue;
use crate::queue::session_queue::SessionQueue;
use crate::settings::QueueRules;
use crate::volatile::Volatile;
use crate::worker::coverage::is_off;
use crate::worker::{is_worked, worker_off};

/// The lanes that have stood still for longer than they may, by session and kind.
pub fn stuck(pool: &Pool, volatile: &Volatile, rules: &QueueRules, now: Timestamp) -> Vec<StuckLane> {
    let Some(limit) = rules.stuck_after else { return Vec::new() };
    let of_session = |session: &Session| {
        let (session, name) = (session.id, session.name.clone());
        let standing = lanes(pool, session)
            .filter_map(move |(kind, lane)| Some((kind, standstill(pool, volatile, lane, now)?)));
        let late = standing.filter(move |(_, standstill)| pool.age(now, standstill.since) >= limit);
        late.map(move |(kind, standstill)| {
            let (name, kind) = (name.clone(), kind.to_owned());
            StuckLane { session, name, kind, standstill }
        })
    };
    pool.sessions().flat_map(of_session).collect()
}

/// Returns the events of the lanes that have become stuck since the last call, and of those that are not stuck any
/// more.
#[must_use]
pub fn changes(pool: &Pool, volatile: &Volatile, rules: &QueueRules, now: Timestamp) -> Vec<Event> {
    let found = stuck(pool, volatile, rules, now);
    let known = |session: SessionId, kind: &str| pool.session(session)?.stuck.get(kind).copied();
    let is_known = |lane: &StuckLane| {
        let moved = |before| pool.is_earlier(now, before, lane.standstill.since);
        known(lane.session, &lane.kind).is_some_and(|before| !moved(before))
    };
    let over = pool.sessions().flat_map(|session| session.stuck.iter().map(move |known| (session.id, known)));
    let over = over.filter(|(session, (kind, _))| {
        !found.iter().any(|lane| lane.session == *session && lane.kind == **kind && is_known(lane))
    });
    let over = over.map(|(session, (kind, since))| {
        let (kind, since) = (kind.clone(), *since);
        let reason = unstuck_reason(pool, (session, &kind, since), now);
        Event::Lane(LaneEvent::Unstuck { session, kind, since, reason })
    });
    let begun = found.iter().filter(|lane| !is_known(lane));
    let begun = begun.cloned().map(|StuckLane { session, kind, standstill, .. }| {
        Event::Lane(LaneEvent::Stuck { session, kind, standstill })
    });
    over.chain(begun).collect()
}

fn unstuck_reason(
    pool: &Pool,
    (session, kind, since): (SessionId, &str, Timestamp),
    now: Timestamp,
) -> UnstuckReason {
    let Some(queue) = pool.queues.queue(session) else { return UnstuckReason::Empty };
    let held_since = held(queue, session, kind).map(|(_, since)| since);
    let moved =
        || queue.moved_at(kind).into_iter().chain(held_since).any(|at| pool.is_earlier(now, since, at));
    match queue.kind(kind) {
        None => UnstuckReason::Empty,
        Some(_) if moved() => UnstuckReason::Moved,
        Some(_) => UnstuckReason::Excused,
    }
}

/// A lane that has messages.
#[derive(Clone, Copy)]
struct Lane<'a> {
    session: &'a Session,
    queue: &'a SessionQueue,
    kind: &'a str,
    messages: &'a KindQueue,
}

/// Returns the lanes of a session that should move: the prompts, while the session takes them, and all other kinds.
/// The lanes of a worker that a user stopped, and that can be started again, are left out.
fn lanes(pool: &Pool, session: SessionId) -> impl Iterator<Item = (&str, Lane<'_>)> {
    let found = pool.session(session).and_then(|session| Some((session, pool.queues.queue(session.id)?)));
    found.into_iter().flat_map(|(session, queue)| {
        let takes_prompts = session.takes_prompts() && !is_locked_without_prompts(pool, session);
        let is_stopped_worker =
            session.worker.as_ref().is_some_and(|worker| !worker.removed) && is_off(session);
        let kinds = queue
            .kinds()
            .filter(move |(kind, _)| if *kind == PROMPT { takes_prompts } else { !is_stopped_worker });
        kinds.map(move |(kind, messages)| (kind, Lane { session, queue, kind, messages }))
    })
}

/// Returns since when and why a lane stands still; none while one of its messages is processed, or while the next one
/// waits for the time of its attempt.
fn standstill(pool: &Pool, volatile: &Volatile, lane: Lane<'_>, now: Timestamp) -> Option<Standstill> {
    let Lane { session, queue, kind, messages } = lane;
    let opened_at = pool.breaker(session.id, kind).and_then(|breaker| breaker.opened_at);
    let (since, reason) = match (opened_at, held(queue, session.id, kind)) {
        // The standstill begins when the breaker opened, or with the oldest message if that is later. A probe is no
        // progress.
        (Some(opened_at), _) => {
            let first = messages.iter().map(|(_, entry)| entry.created_at()).min()?;
            (pool.latest(now, [opened_at, first]), StuckReason::BreakerOpen)
        }
        // The typing of one prompt may begin and be called off repeatedly. A lane that is known to be stuck stays so
        // until a prompt has been typed.
        (None, Some((MessageState::Typing, since))) => {
            (session.stuck.get(kind).copied().unwrap_or(since), StuckReason::Typing)
        }
        (None, Some((state, since))) => (since, obstacle(state)?),
        (None, None) => {
            let next = queue.pending_message(
                session.id,
                kind,
                queue.next_in(messages, newest_of(pool, session.id, kind))?,
            );
            if next.not_before.is_some_and(|at| at > now) {
                return None;
            }
            let times = queue.moved_at(kind).into_iter().chain(next.not_before);
            (pool.latest(now, times), waiting_reason((pool, volatile), session.id, kind))
        }
    };
    // Before the session ran, its prompts waited on purpose.
    let since = if kind == PROMPT { pool.latest(now, [since, session.changed_at]) } else { since };
    Some(Standstill { since, waiting: messages.pending(), reason })
}

/// State and beginning of the message in flight or in doubt.
fn held(queue: &SessionQueue, session: SessionId, kind: &str) -> Option<(MessageState, Timestamp)> {
    let found = queue.held(session).find(|message| message.kind == kind)?;
    Some((found.state, found.since))
}

/// Returns the reason if a message in this state blocks its lane. Typing is judged separately.
fn obstacle(state: MessageState) -> Option<StuckReason> {
    match state {
        MessageState::Typed => Some(StuckReason::Unconfirmed),
        MessageState::InDoubt => Some(StuckReason::InDoubt),
        MessageState::Revoking => Some(StuckReason::Revoking),
        MessageState::Claimed | MessageState::Accepted => None,
        // A message in one of these states holds no lane.
        MessageState::Queued
        | MessageState::Typing
        | MessageState::Suspended
        | MessageState::Done
        | MessageState::Dead
        | MessageState::Cancelled
        | MessageState::Expired => None,
    }
}

/// The reason for which the next message of a lane waits.
fn waiting_reason((pool, volatile): (&Pool, &Volatile), session: SessionId, kind: &str) -> StuckReason {
    if kind == PROMPT {
        let why = volatile.prompts.blocked().get(&session).map(ToString::to_string);
        return StuckReason::PromptWaits(why.unwrap_or_else(|| NOT_READY.to_owned()));
    }
    match is_worked(pool, &volatile.workers, session, kind) {
        true => StuckReason::NoClaim,
        false => worker_off(pool, session, kind)
            .map_or(StuckReason::NoWorker, |worker| StuckReason::WorkerOff(worker.to_owned())),
    }
}

/// The reason of a prompt that no gate has judged yet.
const NOT_READY: &str = "its session is not ready for it";
