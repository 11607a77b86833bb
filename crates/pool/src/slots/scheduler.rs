//! The scheduler's tick: starts, parks and removes sessions after a turn.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::policy::Budget;
use protocol::{Event, Lifecycle, Reason, Session, SessionId, Tag};

use crate::lock::hold_back::holds_back;
use crate::observe::other_servers::is_replaced;
use crate::reap::machine_rules::held_by_shortage;
use crate::session::drain;
use crate::session::drain_progress::{drains, is_drained};
use crate::session::restore::restore_all;
use crate::session::{restart_budget, retention};
use crate::settings::Settings;
use crate::slots::capacity::free;
use crate::slots::conversation::unchecked_conversations;
use crate::slots::drained::note_drained;
use crate::slots::park::begin_park;
use crate::slots::start::{RunIdentity, Starter, begin_start};
use crate::slots::wait_queue::Waiter;
use crate::slots::{eviction, inputs, wanting};
use crate::turn::Turn;

/// Most sessions that are started, parked or removed at a time.
const BATCH: usize = 4;

/// Time until the next tick while something depends on the passing of time.
const SOON: Duration = Duration::from_secs(1);

/// Time until the next tick otherwise.
const LATER: Duration = Duration::from_secs(60);

/// Time after which a session that is being parked no longer counts as freeing its slot.
const LEAVING_LIMIT: Duration = Duration::from_secs(10);

pub struct TickInputs<'a> {
    pub settings: &'a Settings,
    /// Retention of ended sessions; none for ever.
    pub keep_stopped: Option<Duration>,
    /// Time between two restored sessions, if lost ones are restored at the start of `poold`.
    pub restore_spacing: Option<Duration>,
    /// Number of sessions for which the machine has capacity; none without a fresh sample.
    pub capacity: Option<usize>,
    /// True if samples were taken for this tick. They are used even if taking them took so long that they count as
    /// old.
    pub sampled: bool,
    /// Supplies random identities; none if the system has no random numbers.
    pub identities: &'a mut dyn FnMut() -> Option<RunIdentity>,
}

/// An effect of a tick.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Launch the next incarnation of a session, whose record is as before the decision.
    Start(Box<Session>),
    /// End an incarnation that is being parked.
    Park(SessionId, Tag),
    /// Check whether the conversation of an ended incarnation is lost.
    CheckConversation(SessionId, Tag),
    Remove(SessionId, Reason),
}

/// The outcome of a tick.
#[derive(Debug, PartialEq)]
pub struct Tick {
    /// The effects.
    pub actions: Vec<Action>,
    /// Time until the next tick.
    pub pause: Duration,
    /// True if decisions wait for a fresh sample of the logs or of the machine.
    pub wants_sample: bool,
}

/// Runs a tick.
pub fn tick(turn: &mut Turn<'_>, inputs: TickInputs<'_>) -> Tick {
    if turn.volatile.is_stopping() {
        return Tick { actions: Vec::new(), pause: LATER, wants_sample: false };
    }
    let settings = inputs.settings;
    let mut actions = restore(turn, inputs.restore_spacing);
    let (unchecked, broken) = unchecked_conversations(turn, settings);
    actions.extend(broken.into_iter().map(|(session, tag)| Action::CheckConversation(session, tag)));
    let mut decided = restart_budget::decide_restarts(turn.pool(), settings, turn.now());
    decided.retain(|event| event.session().is_none_or(|session| !unchecked.contains(&session)));
    turn.emit_all(decided);
    note_waiting(turn, settings);
    let wants_capacity = inputs.capacity.is_none() && !turn.volatile.scheduler.waiting.is_empty();
    start(turn, settings, (inputs.capacity.unwrap_or(0), inputs.identities), &mut actions);
    let is_fresh = inputs.sampled || turn.volatile.scheduler.is_quiet_fresh(turn.now());
    let wants_quiet = depends_on_silence(turn, settings) && !is_fresh;
    if !wants_quiet {
        evict(turn, settings, &mut actions);
        park_idle(turn, settings, &mut actions);
        note_drained(turn, settings);
        drain::end_overdue(turn);
    }
    remove(turn, settings, inputs.keep_stopped, &mut actions);
    Tick { actions, pause: until_next_change(turn, settings), wants_sample: wants_capacity || wants_quiet }
}

/// Runs once after the first complete observation: restores lost sessions, if configured, and continues to
/// park those that an earlier daemon was parking.
fn restore(turn: &mut Turn<'_>, spacing: Option<Duration>) -> Vec<Action> {
    if turn.volatile.observed.is_first() || !turn.volatile.scheduler.begin_restore() {
        return Vec::new();
    }
    let lost = spacing.map(|spacing| restore_all(turn.pool(), spacing, turn.now())).unwrap_or_default();
    // Sessions of a copied database, which have no incarnations, may run in the original. And a start of the daemon
    // does not restore the exhausted restart budget of a lost session.
    let is_restored = |event: &Event| {
        let record = event.session().and_then(|session| turn.pool().session(session));
        let is_exhausted = |record: &Session| record.lifecycle == Lifecycle::Lost && record.budget.exhausted;
        record.is_none_or(|record| record.incarnation.is_some() && !is_exhausted(record))
    };
    let keep_starts = |event: Event| match event {
        Event::BudgetChanged { session, budget } => {
            let known = turn.pool().session(session).map(|record| record.budget.clone()).unwrap_or_default();
            let budget = if known.exhausted { budget } else { Budget { due_at: budget.due_at, ..known } };
            Event::BudgetChanged { session, budget }
        }
        other => other,
    };
    let lost: Vec<Event> = lost.into_iter().filter(is_restored).map(keep_starts).collect();
    turn.emit_all(lost);
    let parks = turn.pool().sessions().filter(|s| s.reason.is_some_and(|why| why.parks()));
    let tagged = parks.filter_map(|s| Some((s.id, s.incarnation.as_ref()?.tag)));
    let guarded = tagged.filter(|(_, tag)| turn.volatile.reaping.is_guarded(*tag));
    guarded.map(|(session, tag)| Action::Park(session, tag)).collect()
}

/// Updates the sessions that wait for slots, and those that are attended.
fn note_waiting(turn: &mut Turn<'_>, settings: &Settings) {
    let now = turn.now();
    let (pool, volatile) = turn.state();
    let mut wanting = wanting::wanting_start(pool, now);
    wanting.retain(|session| !holds_back(pool, volatile, *session));
    let is_woken =
        |s: &Session| s.budget.due_at.is_none() && held_by_shortage(volatile, settings, s).is_some();
    wanting.retain(|session| !pool.session(*session).is_some_and(is_woken));
    let have_left = volatile.scheduler.waiting.set_sessions(&wanting);
    let attached = pool.sessions().filter(|s| s.attached_clients > 0);
    let viewers: BTreeMap<Tag, u32> = attached.filter_map(|s| Some((s.tag()?, s.attached_clients))).collect();
    volatile.attend(viewers.keys().copied(), now);
    if !volatile.observed.is_first() {
        volatile.prompts.note_viewers(viewers, now);
    }
    volatile.scheduler.retain_deferrals(pool);
    if have_left {
        // Requests behind these in the line may get a slot now. No event wakes them, so it is done here.
        turn.wake();
    }
}

/// Starts the first waiting sessions while there are slots, and capacity for them.
fn start(
    turn: &mut Turn<'_>,
    settings: &Settings,
    (capacity, identities): (usize, &mut dyn FnMut() -> Option<RunIdentity>),
    actions: &mut Vec<Action>,
) {
    if holds_starts(turn) {
        return;
    }
    while actions.iter().filter(|action| matches!(action, Action::Start(_))).count() < capacity {
        let starting = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Starting).count();
        let free = free(turn.pool(), settings);
        let next =
            turn.volatile.scheduler.waiting.first_session(turn.pool(), free).filter(|_| starting < BATCH);
        let Some(session) = next.and_then(|id| turn.pool().session(id).cloned()) else { return };
        turn.volatile.scheduler.waiting.leave(Waiter::Session(session.id));
        // An operation is starting it already.
        if turn.volatile.scheduler.is_starting(session.id) {
            continue;
        }
        let Some(identity) = identities() else { return };
        begin_start(turn, settings, &session, (Starter::Policy, identity));
        actions.push(Action::Start(Box::new(session)));
    }
}

/// True if nothing is to be started now: clients stop the pool, or a stranger's tmux server answers.
fn holds_starts(turn: &Turn<'_>) -> bool {
    turn.volatile.scheduler.holds_starts() || is_replaced(turn.pool(), turn.volatile)
}

/// True if decisions of this tick depend on the silence of programs.
fn depends_on_silence(turn: &Turn<'_>, settings: &Settings) -> bool {
    let is_drained = |session: &Session| is_drained(turn.pool(), session);
    missing_slots(turn, settings) > 0
        || any_idle_timeout(turn, settings)
        || turn.pool().sessions().any(is_drained)
}

/// Number of slots that are wanted beyond those that are free or about to come free.
fn missing_slots(turn: &Turn<'_>, settings: &Settings) -> usize {
    if holds_starts(turn) {
        return 0;
    }
    let free = free(turn.pool(), settings) + leaving(turn);
    turn.volatile.scheduler.waiting.slots_wanted(turn.pool()).saturating_sub(free)
}

/// Number of sessions that are about to give up their slots.
pub fn leaving(turn: &Turn<'_>) -> usize {
    let parks = |s: &&Session| s.is_being_parked() && turn.age(s.changed_at) < LEAVING_LIMIT;
    turn.pool().sessions().filter(parks).count()
}

/// The session to park for others.
pub fn victim(turn: &Turn<'_>, settings: &Settings) -> Option<SessionId> {
    inputs::with_inputs(turn.pool(), turn.volatile, turn.now(), |inputs| {
        eviction::next_to_park(turn.pool(), settings, inputs)
    })
}

/// Parks sessions if others wait. While there is none to park, those over their quantum are given no further
/// message, so that they come to rest.
fn evict(turn: &mut Turn<'_>, settings: &Settings, actions: &mut Vec<Action>) {
    let mut give_way = BTreeSet::new();
    for _ in 0..missing_slots(turn, settings).min(BATCH) {
        let victim = victim(turn, settings);
        let Some(session) = victim.and_then(|id| turn.pool().session(id).cloned()) else {
            give_way = inputs::with_inputs(turn.pool(), turn.volatile, turn.now(), |inputs| {
                eviction::over_quantum(turn.pool(), settings, inputs).collect()
            });
            break;
        };
        actions.extend(begin_park(turn, &session, Reason::Evicted).map(|(id, tag)| Action::Park(id, tag)));
    }
    if turn.volatile.scheduler.set_giving_way(give_way) {
        turn.wake();
    }
}

/// Parks sessions that have been idle for longer than their time-out.
fn park_idle(turn: &mut Turn<'_>, settings: &Settings, actions: &mut Vec<Action>) {
    if !any_idle_timeout(turn, settings) {
        return;
    }
    let found: Vec<SessionId> = inputs::with_inputs(turn.pool(), turn.volatile, turn.now(), |inputs| {
        eviction::past_idle_timeout(turn.pool(), settings, inputs).take(BATCH).collect()
    });
    let sessions: Vec<Session> = found.iter().filter_map(|id| turn.pool().session(*id).cloned()).collect();
    for session in sessions {
        actions.extend(begin_park(turn, &session, Reason::Idle).map(|(id, tag)| Action::Park(id, tag)));
    }
}

fn any_idle_timeout(turn: &Turn<'_>, settings: &Settings) -> bool {
    let mut live = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Live);
    live.any(|s| eviction::idle_timeout(settings, s).is_some())
}

/// Removes ended sessions whose retention is over.
fn remove(
    turn: &mut Turn<'_>,
    settings: &Settings,
    keep_stopped: Option<Duration>,
    actions: &mut Vec<Action>,
) {
    let now = turn.now();
    let (pool, volatile) = turn.state();
    let outdated = retention::past_retention(pool, settings, keep_stopped, now);
    let outdated = outdated.filter(|(session, _)| !volatile.scheduler.is_removal_held(session.id));
    let next: Vec<_> = outdated.map(|(session, why)| (session.id, why)).take(BATCH).collect();
    let new = next.into_iter().filter(|(id, _)| volatile.scheduler.begin_removal(*id));
    actions.extend(new.map(|(id, why)| Action::Remove(id, why)));
}

/// Time until a decision may change by the passing of time alone.
fn until_next_change(turn: &Turn<'_>, settings: &Settings) -> Duration {
    let is_timed = |s: &Session| {
        let over = !s.lifecycle.holds_slot();
        drains(s) || (over && (s.policy.ephemeral || s.policy.ttl_ms.is_some_and(|ms| ms != u64::MAX)))
    };
    let soon = !turn.volatile.scheduler.waiting.is_empty()
        || any_idle_timeout(turn, settings)
        || turn.pool().sessions().any(is_timed);
    let start = wanting::next_start(turn.pool(), turn.now());
    let start = start.map_or(LATER, |at| at.since(turn.now()).max(Duration::from_millis(1)));
    // Draining sessions that have worked off their queues are being ended already.
    let drained = turn.volatile.scheduler.drained();
    let working = turn.pool().sessions().filter(|s| !drained.contains(&s.id));
    let overdue = working.filter_map(|s| drain::left(turn.pool(), s, turn.now())).min();
    let overdue = overdue.map_or(LATER, |left| left.max(Duration::from_millis(1)));
    start.min(overdue).min(if soon { SOON } else { LATER })
}
