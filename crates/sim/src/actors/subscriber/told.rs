//! The state of the pool as a subscriber has been told it. Each event has to agree with the ones before: nothing that
//! is pinned or locked is parked, started or removed by the pool itself, a drain takes no new messages and leaves none,
//! and the messages of a kind are claimed in their order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use protocol::policy::Policy;
use protocol::session::SessionLock;
use protocol::{
    Event, Lifecycle, Message, MessageId, MessageReason, MessageState, PROMPT, Reason, Session, SessionId,
    Timestamp, Token,
};

use crate::judge::Asked;
use crate::land::Land;

/// Beginning of the origins of the pool's own prompts, which count as sent by the holder of a lock.
const OWN: &str = "pool:";

/// Retention of ended ephemeral sessions, and of those whose messages workers have not worked yet.
const EPHEMERAL_KEEP: Duration = Duration::from_secs(10);
const EPHEMERAL_WORK: Duration = Duration::from_secs(3600);

/// Time within which a message expires after its time limit, once the daemon has been up for a while.
const LATE: Duration = Duration::from_secs(2);
const START: Duration = Duration::from_secs(15);

/// The state that a subscriber has been told.
#[derive(Default)]
pub(super) struct Told {
    timeline: u64,
    /// The last start of the daemon.
    started_at: Timestamp,
    sessions: BTreeMap<SessionId, Known>,
}

/// The state of a session.
struct Known {
    policy: Policy,
    lifecycle: Lifecycle,
    reason: Option<Reason>,
    changed_at: Timestamp,
    lock: Option<Lock>,
    /// The unfinished messages.
    queue: BTreeMap<MessageId, Pending>,
}

/// An unfinished message.
struct Pending {
    is_prompt: bool,
    /// Its kind and priority; `None` if they are not known.
    lane: Option<(String, i8)>,
    /// True if it is queued, and not in flight.
    waits: bool,
    expires_at: Option<Timestamp>,
    changed_at: Timestamp,
    /// True if it had ended, and somebody wants it again: also in a session that drains.
    is_again: bool,
}

impl Pending {
    /// A message that had ended.
    fn again() -> Self {
        let changed_at = Timestamp::default();
        Self { is_prompt: false, lane: None, waits: true, expires_at: None, changed_at, is_again: true }
    }
}

/// A user's lock.
struct Lock {
    token: Token,
    /// True once a prompt was sent under it: it and those before it are typed, and the session is started for them.
    has_prompts: bool,
}

impl Lock {
    fn new(lock: &SessionLock) -> Self {
        Self { token: lock.token, has_prompts: !lock.prompts.is_empty() }
    }
}

impl Known {
    fn new(session: &Session) -> Self {
        Self {
            policy: session.policy.clone(),
            lifecycle: session.lifecycle,
            reason: session.reason,
            changed_at: session.changed_at,
            lock: session.lock.as_ref().map(Lock::new),
            queue: BTreeMap::new(),
        }
    }

    /// True if it finishes its queue.
    fn drains(&self) -> bool {
        (self.lifecycle, self.reason) == (Lifecycle::Draining, Some(Reason::Drained))
    }

    /// Returns a message that is left if its drain is over now. What is known of its exit may come after that.
    fn left_by_drain(&self) -> Option<MessageId> {
        let is_over = (self.lifecycle, self.reason) == (Lifecycle::Stopped, Some(Reason::Drained));
        let mut left = self.queue.iter().filter(|(_, message)| !message.is_again && !is_over);
        left.next().map(|(id, _)| *id)
    }

    /// Returns another message of the kind of one that is claimed now: one in flight, or one that comes before it. A
    /// redelivery keeps its place.
    fn passed_over(&self, claimed: MessageId) -> Option<MessageId> {
        let (kind, priority) = self.queue.get(&claimed).filter(|message| message.waits)?.lane.as_ref()?;
        let is_first = |(other, message): &(&MessageId, &Pending)| {
            let lane = message.lane.as_ref().filter(|(of, _)| of == kind && **other != claimed);
            let place = |priority: i8, id: MessageId| (Reverse(priority), id);
            lane.is_some_and(|(_, of)| !message.waits || place(*of, **other) < place(*priority, claimed))
        };
        self.queue.iter().find(is_first).map(|(other, _)| *other)
    }

    /// Returns why nobody but the holder of a lock may act on the session.
    fn held(&self) -> Option<&'static str> {
        self.lock.as_ref().filter(|lock| !lock.has_prompts).map(|_| "a user holds its lock")
    }

    /// Returns why the pool may neither park nor remove the session by itself.
    fn kept(&self) -> Option<&'static str> {
        let pinned = self.policy.pinned.then_some("it is pinned");
        pinned.or_else(|| self.lock.as_ref().map(|_| "a user holds its lock"))
    }

    /// Returns why the session may not be removed for this reason at this time. Ages count only if `has_ages`.
    fn stays(&self, reason: Reason, at: Timestamp, has_ages: bool) -> Option<String> {
        let has_jobs = self.queue.values().any(|message| !message.is_prompt);
        let keep = match reason {
            Reason::Ephemeral if has_jobs => Some(EPHEMERAL_WORK),
            Reason::Ephemeral => Some(EPHEMERAL_KEEP),
            _ => self.policy.ttl_ms.map(Duration::from_millis),
        };
        let age = at.since(self.changed_at);
        if let Some(why) = self.kept() {
            return Some(why.to_owned());
        }
        if self.lifecycle.holds_slot() {
            return Some(format!("it is {:?}", self.lifecycle));
        }
        if reason == Reason::Ephemeral && !self.policy.ephemeral {
            return Some("it is not ephemeral".to_owned());
        }
        if reason == Reason::Ttl && !self.queue.is_empty() {
            return Some(format!("it has the messages {:?}", self.queue.keys()));
        }
        let is_early = has_ages && keep.is_some_and(|keep| age < keep);
        is_early.then(|| format!("it has ended {age:?} ago, and is kept for {keep:?}"))
    }

    fn change(&mut self, lifecycle: Lifecycle, reason: Option<Reason>, at: Timestamp) {
        // The exit of a program that has ended may be known later.
        if self.lifecycle != lifecycle {
            self.changed_at = at;
        }
        (self.lifecycle, self.reason) = (lifecycle, reason);
    }
}

impl Told {
    /// Forgets everything: the whole state follows.
    pub(super) fn begin_state(&mut self, land: &Land) {
        *self = Self { timeline: land.judge.timeline(), ..Self::default() };
    }

    /// Compares an event with those before, and takes it in.
    pub(super) fn take(&mut self, land: &Land, event: &Event, at: Timestamp) {
        if self.timeline != land.judge.timeline() {
            // A database that is put back knows of earlier states.
            self.begin_state(land);
        }
        if let Event::SessionDeleted { session, reason: Reason::Ttl | Reason::Ephemeral, .. } = event {
            land.judge.asked(Asked::Removal(*session));
        }
        if let Some(broken) = self.contradicts(land, event, at) {
            land.judge.violated(broken);
        }
        self.note(event, at);
    }

    /// Takes in a part of the state.
    pub(super) fn note(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::SessionCreated(session) => drop(self.sessions.insert(session.id, Known::new(session))),
            Event::SessionDeleted { session, .. } => drop(self.sessions.remove(session)),
            Event::PoolStarted { .. } => self.started_at = at,
            Event::MessageQueued(message) => self.queued(message),
            _ => {
                if let Some(known) = event.session().and_then(|session| self.sessions.get_mut(&session)) {
                    known.note(event, at);
                }
            }
        }
    }

    fn queued(&mut self, message: &Message) {
        let Some(known) = self.sessions.get_mut(&message.session) else { return };
        let (expires_at, changed_at) = (message.expires_at, message.status.changed_at);
        let is_again = message.status.reason == Some(MessageReason::Retried);
        let (lane, is_prompt) = (Some((message.kind.clone(), message.priority)), message.kind == PROMPT);
        let waits = message.status.state == MessageState::Queued;
        let pending = Pending { is_prompt, lane, waits, expires_at, changed_at, is_again };
        known.queue.insert(message.id, pending);
        let is_own = message.kind == PROMPT && message.origin.starts_with(OWN);
        if let Some(lock) = known.lock.as_mut().filter(|_| is_own) {
            lock.has_prompts = true;
        }
    }

    /// Returns the promise that an event breaks.
    fn contradicts(&self, land: &Land, event: &Event, at: Timestamp) -> Option<String> {
        let known = self.sessions.get(&event.session()?)?;
        match event {
            // One that is being parked already may be pinned, which is too late.
            Event::SessionDraining { session, reason, .. }
                if is_by_itself(*reason) && known.lifecycle == Lifecycle::Live =>
            {
                land.judge.count("checked:parked by the pool");
                known.kept().map(|why| format!("T: {session} is parked ({reason:?}), and {why}"))
            }
            Event::SessionStarting { session, .. } if !known.is_starting() => {
                land.judge.count("checked:started");
                let (state, reason) = (known.lifecycle, known.reason);
                let lock = known.lock.as_ref().map(|lock| lock.token);
                let is_inside = lock.is_some_and(|token| land.judge.is_used_inside(token));
                let why = known.held().filter(|_| !is_inside);
                why.map(|why| format!("L5: {session} ({state:?}, {reason:?}) is started, and {why}"))
            }
            Event::SessionDeleted { session, reason: reason @ (Reason::Ttl | Reason::Ephemeral), .. } => {
                land.judge.count(format!("checked:removed by {reason:?}"));
                let why = known.stays(*reason, at, land.climate.clock_steps == 0);
                why.map(|why| format!("D: {session} is removed ({reason:?}), and {why}"))
            }
            Event::SessionStopped { session, reason: Reason::Drained, .. } => {
                land.judge.count("checked:drained");
                let left = known.left_by_drain();
                left.map(|id| format!("T: {session} is said to be drained, and message {id} is left"))
            }
            Event::MessageQueued(message) if known.drains() => {
                let (id, session) = (message.id, message.session);
                Some(format!("T: message {id} is queued for {session}, which drains"))
            }
            Event::MessageChanged { id, session, status } if status.state == MessageState::Claimed => {
                land.judge.count("checked:claimed in order");
                let other = known.passed_over(*id)?;
                Some(format!("Q4: message {id} of {session} is claimed, and {other} comes before it"))
            }
            Event::MessageChanged { id, status, .. }
                if status.state == MessageState::Expired && land.climate.clock_steps == 0 =>
            {
                land.judge.count("checked:expired");
                let message = known.queue.get(id)?;
                let due = message.expires_at?.max(message.changed_at);
                let is_up = due.since(self.started_at) > START;
                let late = at.since(due);
                (is_up && late > LATE && !land.judge.stood_still_within(late + LATE))
                    .then(|| format!("Q: message {id} expires {late:?} after its time limit"))
            }
            _ => None,
        }
    }
}

impl Known {
    /// True if its start is decided already: whoever locks it afterwards finds it started.
    fn is_starting(&self) -> bool {
        let is_restarting = self.lifecycle == Lifecycle::Stopped && self.reason == Some(Reason::Restarted);
        is_restarting || self.lifecycle == Lifecycle::Starting
    }

    fn note(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::SessionStarting { .. } => self.change(Lifecycle::Starting, None, at),
            Event::SessionLive { .. } => self.change(Lifecycle::Live, None, at),
            Event::SessionDraining { reason, .. } => self.change(Lifecycle::Draining, Some(*reason), at),
            Event::SessionStopped { reason, .. } => self.change(Lifecycle::Stopped, Some(*reason), at),
            Event::SessionLost { reason, .. } => self.change(Lifecycle::Lost, Some(*reason), at),
            Event::SessionFailed { reason, .. } => self.change(Lifecycle::Failed, Some(*reason), at),
            Event::SessionParked { reason, .. } => self.change(Lifecycle::Parked, Some(*reason), at),
            Event::SessionPolicyChanged { policy, .. } => self.policy = policy.clone(),
            Event::LockGranted { lock, .. } => self.lock = Some(Lock::new(lock)),
            Event::LockReleased { token, .. } | Event::LockRevoked { token, .. } => {
                self.lock.take_if(|lock| lock.token == *token);
            }
            Event::MessageChanged { id, status, .. } => {
                if status.state.is_final() {
                    self.queue.remove(id);
                } else {
                    // One that had ended is sent again.
                    let known = self.queue.entry(*id).or_insert_with(Pending::again);
                    (known.changed_at, known.waits) = (at, status.state == MessageState::Queued);
                }
            }
            _ => {}
        }
    }
}

/// True if the pool parks a session by itself for this reason.
fn is_by_itself(reason: Reason) -> bool {
    reason.parks() && reason != Reason::Parked
}
