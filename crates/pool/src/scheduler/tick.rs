//! Everything that follows for slots after a turn: who is started, who is parked, who is removed.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::session::Reason;
use protocol::{Lifecycle, Session, SessionId, Tag};

use super::conversation::undecided;
use super::park::begin_park;
use super::start::{Identity, Starter, begin_start};
use super::wait_queue::Waiter;
use crate::lock::gate::holds_back;
use crate::reap::facts::with_slot_facts;
use crate::settings::Settings;
use crate::turn::Turn;
use crate::{admit, budget, slots};

/// Sessions that are started, parked or removed at a time.
const AT_ONCE: usize = 4;
/// Time until the next tick while something depends on the passing of time.
const SOON: Duration = Duration::from_secs(1);
/// Time until the next tick otherwise.
const LATER: Duration = Duration::from_secs(60);
/// Time after which a session that is being parked is not counted on to free its slot.
const LEAVING_LIMIT: Duration = Duration::from_secs(10);

/// What a tick needs to know beside the state.
pub struct Inputs<'a> {
    /// The configuration.
    pub settings: &'a Settings,
    /// Retention of ended sessions; none for ever.
    pub keep_stopped: Option<Duration>,
    /// Time between two restored sessions, where lost ones are restored at the start of `poold`.
    pub restore_spacing: Option<Duration>,
    /// True if the machine has capacity for one more session; none where no fresh sample tells.
    pub has_capacity: Option<bool>,
    /// Random identities; none where the system gives no random numbers.
    pub identities: &'a mut dyn FnMut() -> Option<Identity>,
}

/// An effect of a tick.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Bring up a session whose next incarnation was decided; as it was before.
    Start(Box<Session>),
    /// End an incarnation that is being parked.
    Park(SessionId, Tag),
    /// Find out whether the conversation of an ended incarnation is lost.
    JudgeConversation(SessionId, Tag),
    /// Remove a session.
    Remove(SessionId, Reason),
}

/// The outcome of a tick.
#[derive(Debug, PartialEq)]
pub struct Tick {
    /// Effects.
    pub actions: Vec<Action>,
    /// Time until the next tick.
    pub pause: Duration,
    /// True if decisions wait for a fresh sample of the logs or of the machine.
    pub wants_sample: bool,
}

/// Decides all that is to be decided.
pub fn tick(turn: &mut Turn<'_>, inputs: Inputs<'_>) -> Tick {
    if turn.volatile.is_stopping() {
        return Tick { actions: Vec::new(), pause: LATER, wants_sample: false };
    }
    let settings = inputs.settings;
    let mut actions = restore(turn, inputs.restore_spacing);
    let (undecided, broken) = undecided(turn, settings);
    actions.extend(broken.into_iter().map(|(session, tag)| Action::JudgeConversation(session, tag)));
    let mut decided = budget::decide(turn.pool(), settings, turn.now());
    decided.retain(|event| event.session().is_none_or(|session| !undecided.contains(&session)));
    turn.emit_all(decided);
    note_waiting(turn, settings);
    let wants_capacity = inputs.has_capacity.is_none() && !turn.volatile.scheduler.waiting.is_empty();
    if inputs.has_capacity == Some(true) {
        start(turn, settings, inputs.identities, &mut actions);
    }
    let is_fresh = turn.volatile.scheduler.is_quiet_fresh(turn.now());
    let wants_quiet = depends_on_silence(turn, settings) && !is_fresh;
    if !wants_quiet {
        evict(turn, settings, &mut actions);
        park_idle(turn, settings, &mut actions);
        note_drained(turn, settings);
    }
    remove(turn, inputs.keep_stopped, &mut actions);
    Tick { actions, pause: pause(turn, settings), wants_sample: wants_capacity || wants_quiet }
}

/// Once the first complete observation tells what was lost: restores it, where configured, and parks on what an earlier daemon
/// was parking.
fn restore(turn: &mut Turn<'_>, spacing: Option<Duration>) -> Vec<Action> {
    if turn.volatile.observed.is_first() || !turn.volatile.scheduler.begin_restore() {
        return Vec::new();
    }
    let lost = spacing.map(|spacing| admit::restore_all(turn.pool(), spacing, turn.now()));
    turn.emit_all(lost.into_iter().flatten());
    let parks = turn.pool().sessions().filter(|s| s.reason.is_some_and(|why| why.parks()));
    let tagged = parks.filter_map(|s| Some((s.id, s.incarnation.as_ref()?.tag)));
    let guarded = tagged.filter(|(_, tag)| turn.volatile.reaping.is_guarded(*tag));
    guarded.map(|(session, tag)| Action::Park(session, tag)).collect()
}

/// Notes which sessions wait for slots, are attended, and have had their turn.
fn note_waiting(turn: &mut Turn<'_>, settings: &Settings) {
    let now = turn.now();
    let (pool, volatile) = turn.state();
    let mut wanting = slots::wanting(pool, now);
    wanting.retain(|session| !holds_back(pool, volatile, *session));
    volatile.scheduler.waiting.set_sessions(&wanting);
    let attached = pool.sessions().filter(|s| s.attached_clients > 0);
    volatile.prompts.attend(attached.filter_map(|s| s.incarnation.as_ref()).map(|run| run.tag));
    volatile.scheduler.retain_kept(pool);
    volatile.scheduler.set_over_quantum(slots::have_had_their_turn(pool, settings, now).collect());
}

/// Starts the sessions whose turn it is, as far as there are slots.
fn start(
    turn: &mut Turn<'_>,
    settings: &Settings,
    identities: &mut dyn FnMut() -> Option<Identity>,
    actions: &mut Vec<Action>,
) {
    loop {
        let starting = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Starting).count();
        let free = slots::free(turn.pool(), settings);
        let next = turn.volatile.scheduler.waiting.first_session(free).filter(|_| starting < AT_ONCE);
        let Some(session) = next.and_then(|id| turn.pool().session(id).cloned()) else { return };
        turn.volatile.scheduler.waiting.leave(Waiter::Session(session.id));
        // A session that an operation is about to start is not started twice.
        if turn.volatile.scheduler.is_starting(session.id) {
            continue;
        }
        let Some(identity) = identities() else { return };
        begin_start(turn, settings, &session, (Starter::Policy, identity));
        actions.push(Action::Start(Box::new(session)));
    }
}

/// True if something below depends on how long programs have been silent.
fn depends_on_silence(turn: &Turn<'_>, settings: &Settings) -> bool {
    let is_drained = |session: &Session| admit::is_drained(turn.pool(), session);
    missing_slots(turn, settings) > 0
        || any_idle_timeout(turn, settings)
        || turn.pool().sessions().any(is_drained)
}

/// Waiters for whom no slot is free, or about to come free.
fn missing_slots(turn: &Turn<'_>, settings: &Settings) -> usize {
    let free = slots::free(turn.pool(), settings) + leaving(turn);
    turn.volatile.scheduler.waiting.len().saturating_sub(free)
}

/// The number of sessions that are about to give their slots up.
#[must_use]
pub fn leaving(turn: &Turn<'_>) -> usize {
    let parks = |s: &&Session| s.is_being_parked() && turn.age(s.changed_at) < LEAVING_LIMIT;
    turn.pool().sessions().filter(parks).count()
}

/// The session to park for others: the one that has been idle for longest.
#[must_use]
pub fn victim(turn: &Turn<'_>, settings: &Settings) -> Option<SessionId> {
    with_slot_facts(turn.pool(), turn.volatile, turn.now(), |facts| {
        slots::victim(turn.pool(), settings, facts)
    })
}

/// Parks what is idle, where others wait.
fn evict(turn: &mut Turn<'_>, settings: &Settings, actions: &mut Vec<Action>) {
    for _ in 0..missing_slots(turn, settings).min(AT_ONCE) {
        let victim = victim(turn, settings);
        let Some(session) = victim.and_then(|id| turn.pool().session(id).cloned()) else { return };
        actions.extend(begin_park(turn, &session, Reason::Evicted).map(|(id, tag)| Action::Park(id, tag)));
    }
}

/// Parks what has been idle for longer than it may.
fn park_idle(turn: &mut Turn<'_>, settings: &Settings, actions: &mut Vec<Action>) {
    if !any_idle_timeout(turn, settings) {
        return;
    }
    let found: Vec<SessionId> = with_slot_facts(turn.pool(), turn.volatile, turn.now(), |facts| {
        slots::idle_for_too_long(turn.pool(), settings, facts).take(AT_ONCE).collect()
    });
    let sessions: Vec<Session> = found.iter().filter_map(|id| turn.pool().session(*id).cloned()).collect();
    for session in sessions {
        actions.extend(begin_park(turn, &session, Reason::Idle).map(|(id, tag)| Action::Park(id, tag)));
    }
}

fn any_idle_timeout(turn: &Turn<'_>, settings: &Settings) -> bool {
    let mut live = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Live);
    live.any(|s| slots::idle_timeout(settings, s).is_some())
}

/// Notes the draining sessions that have worked off their queues and are at rest: they are over.
fn note_drained(turn: &mut Turn<'_>, settings: &Settings) {
    let pool = turn.pool();
    let ids: Vec<SessionId> = pool.sessions().filter(|s| admit::is_drained(pool, s)).map(|s| s.id).collect();
    let drained: BTreeSet<SessionId> = if ids.is_empty() {
        BTreeSet::new()
    } else {
        with_slot_facts(pool, turn.volatile, turn.now(), |facts| {
            let rests = |s: &Session| slots::at_rest_since(pool, settings, s, facts).is_ok();
            ids.into_iter().filter(|id| pool.session(*id).is_some_and(rests)).collect()
        })
    };
    if turn.volatile.scheduler.set_drained(drained) {
        turn.wake();
    }
}

/// Removes ended sessions whose retention is over.
fn remove(turn: &mut Turn<'_>, keep_stopped: Option<Duration>, actions: &mut Vec<Action>) {
    let now = turn.now();
    let (pool, volatile) = turn.state();
    let outdated = admit::outdated(pool, keep_stopped, now).map(|(s, why)| (s.id, why)).take(AT_ONCE);
    let new = outdated.filter(|(id, _)| volatile.scheduler.begin_removal(*id));
    actions.extend(new.map(|(id, why)| Action::Remove(id, why)));
}

/// Time for which nothing changes by the passing of time alone.
fn pause(turn: &Turn<'_>, settings: &Settings) -> Duration {
    let is_timed = |s: &Session| {
        let over = !s.lifecycle.holds_slot();
        let draining = s.lifecycle == Lifecycle::Draining && s.reason == Some(Reason::Drained);
        draining || (over && (s.policy.ephemeral || s.policy.ttl_ms.is_some_and(|ms| ms != u64::MAX)))
    };
    let soon = !turn.volatile.scheduler.waiting.is_empty()
        || any_idle_timeout(turn, settings)
        || turn.pool().sessions().any(is_timed);
    let start = slots::next_start(turn.pool(), turn.now());
    let start = start.map_or(LATER, |at| at.since(turn.now()).max(Duration::from_millis(1)));
    start.min(if soon { SOON } else { LATER })
}
