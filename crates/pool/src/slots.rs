//! Slots: who may have a running incarnation. Many sessions share few slots, so what is idle and can be
//! woken again is put aside for what has something to do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agents::screen::Composer;
use protocol::activity::Source;
use protocol::message::PROMPT;
use protocol::{ActivityState, Lifecycle, Session, SessionId, Tag, Timestamp};

use crate::activity::{self, Look};
use crate::delivery;
use crate::pool::Pool;
use crate::queue;
use crate::settings::Settings;

/// A session that was woken, and was given nothing to do, keeps its slot at least so long.
pub const STAY: Duration = Duration::from_secs(30);
/// After so long a session gives its slot up between two messages, where others wait for one.
pub const TURN: Duration = Duration::from_secs(600);

/// What the shell knows of running sessions.
#[derive(Debug)]
pub struct Facts<'a> {
    /// Now.
    pub now: Timestamp,
    /// Since when the programs of these sessions have written nothing.
    pub quiet_since: &'a BTreeMap<SessionId, Timestamp>,
    /// When incarnations were last given a message to work.
    pub worked: &'a BTreeMap<Tag, Timestamp>,
    /// Incarnations that somebody spoke to by hand.
    pub touched: &'a BTreeSet<Tag>,
    /// Sessions that somebody types into, starts or ends right now.
    pub busy: &'a BTreeSet<SessionId>,
}

/// How many sessions may still get a running incarnation.
#[must_use]
pub fn free(pool: &Pool, settings: &Settings) -> usize {
    settings.max_sessions.saturating_sub(pool.slots_used())
}

/// Whether nothing is lost by parking it: its agent can take its conversation up again, or is said to be
/// parkable. What was adopted is its user's own.
#[must_use]
pub fn is_parkable(settings: &Settings, session: &Session) -> bool {
    let said = settings.agents.get(&session.spec.agent).is_some_and(|agent| agent.parkable);
    let adopted = session.incarnation.as_ref().is_some_and(protocol::Incarnation::is_adopted);
    !adopted && (said || !session.spec.resume_args.is_empty())
}

/// Since when a session is idle, by evidence; why it is not, otherwise.
///
/// # Errors
/// What speaks against it.
pub fn idle_since(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    facts: &Facts<'_>,
) -> Result<Timestamp, &'static str> {
    if session.lifecycle != Lifecycle::Live {
        return Err("it does not run");
    }
    if session.attached_clients > 0 {
        return Err("a client is attached");
    }
    if facts.busy.contains(&session.id) {
        return Err("somebody is at it");
    }
    if session.lock.is_some() {
        return Err("somebody holds its lock");
    }
    let counts = queue::counts(pool, Some(session.id));
    if pool.prompts(session.id).waiting > 0 || counts.claimed + counts.in_doubt > 0 {
        return Err("it has messages to work");
    }
    at_rest_since(pool, settings, session, facts)
}

/// Since when its agent has been at rest: as it says itself, else by its silence.
///
/// # Errors
/// What speaks against it.
pub fn at_rest_since(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    facts: &Facts<'_>,
) -> Result<Timestamp, &'static str> {
    let known = activity::shown(pool, session);
    let tells = matches!(known.source, Source::Hook | Source::Transcript);
    // One whose hooks are heard is seen to work where it goes on after a question: that is as good.
    let hooked =
        pool.notes(session.id).is_some_and(|notes| notes.hooked.is_some() && notes.hooked == known.tag);
    match known.state {
        ActivityState::Attention if activity::asks(&known) => Err("it waits for a person"),
        ActivityState::Busy if tells || hooked => Err("its agent is busy"),
        ActivityState::Idle | ActivityState::Error if tells => {
            Ok(pool.latest(facts.now, [known.since, session.last_activity_at]))
        }
        _ => quiet_since(pool, settings, session, facts).ok_or("it writes something"),
    }
}

/// Since when it has written nothing and was given nothing, where that is for long enough.
#[must_use]
pub fn quiet_since(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    facts: &Facts<'_>,
) -> Option<Timestamp> {
    let quiet = *facts.quiet_since.get(&session.id)?;
    let since = pool.latest(facts.now, [quiet, session.last_activity_at]);
    // What nothing confirmed may not even have been read: silence says little soon after it.
    let given = session.incarnation.as_ref().and_then(|run| facts.worked.get(&run.tag));
    let settled = given.is_none_or(|at| pool.age(facts.now, *at) >= settings.idle_settle);
    (settled && pool.age(facts.now, since) >= settings.idle_quiet).then_some(since)
}

/// Whether it may be parked for another session, and since when it has been idle.
///
/// # Errors
/// What speaks against it.
pub fn evictable(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    facts: &Facts<'_>,
) -> Result<Timestamp, &'static str> {
    may_be_parked(settings, session)?;
    let run = session.incarnation.as_ref().ok_or("it does not run")?;
    let age = pool.age(facts.now, run.started_at);
    match idle_since(pool, settings, session, facts) {
        Ok(_) if age < STAY && !facts.worked.contains_key(&run.tag) => Err("it has only just been started"),
        Ok(_) if is_unknown(session, facts) => Err("somebody spoke to it by hand"),
        Ok(since) => Ok(since),
        Err(_) if between_messages(pool, settings, session, facts) && age >= TURN => Ok(run.started_at),
        Err(why) => Err(why),
    }
}

/// What would be lost if a session that looks like this were parked: a text that nobody has sent yet, and what its agent has
/// running in the background.
#[must_use]
pub fn loses(look: &Look) -> Option<String> {
    if let Composer::Holds(text) = &look.composer {
        return Some(delivery::holds_text(&protocol::redact::text(text)));
    }
    look.background.as_ref().map(|what| format!("its agent has {what} in the background"))
}

/// Its agent could take up what the pool said to it, which is nothing, and not what somebody else did.
fn is_unknown(session: &Session, facts: &Facts<'_>) -> bool {
    let touched = session.incarnation.as_ref().is_some_and(|run| facts.touched.contains(&run.tag));
    touched && session.conversation.as_ref().is_some_and(|conversation| !conversation.begun)
}

fn may_be_parked(settings: &Settings, session: &Session) -> Result<(), &'static str> {
    if session.policy.pinned {
        return Err("it is pinned");
    }
    if is_parkable(settings, session) { Ok(()) } else { Err("its agent cannot take up where it was") }
}

/// Messages wait, and none is being worked.
fn between_messages(pool: &Pool, settings: &Settings, session: &Session, facts: &Facts<'_>) -> bool {
    let prompts = pool.prompts(session.id);
    let free = session.attached_clients == 0 && session.lock.is_none() && !facts.busy.contains(&session.id);
    let live = session.lifecycle == Lifecycle::Live;
    let at_rest = at_rest_since(pool, settings, session, facts).is_ok();
    live && free && prompts.waiting > 0 && !prompts.held && at_rest
}

/// The sessions that have had their turn and can be woken again: where others wait they are given no further message.
pub fn have_had_their_turn<'a>(
    pool: &'a Pool,
    settings: &'a Settings,
    now: Timestamp,
) -> impl Iterator<Item = SessionId> + 'a {
    let had = move |s: &&Session| {
        let age = s.incarnation.as_ref().map(|run| pool.age(now, run.started_at));
        s.lifecycle == Lifecycle::Live
            && s.attached_clients == 0
            && s.lock.is_none()
            && age.is_some_and(|age| age >= TURN)
            && may_be_parked(settings, s).is_ok()
    };
    pool.sessions().filter(had).map(|s| s.id)
}

/// The session to park so that another one gets its slot: the one that has been idle for longest.
#[must_use]
pub fn victim(pool: &Pool, settings: &Settings, facts: &Facts<'_>) -> Option<SessionId> {
    let evictable = |s: &Session| Some((evictable(pool, settings, s, facts).ok()?, s.id));
    pool.sessions().filter_map(evictable).min().map(|(_, id)| id)
}

/// Sessions that have been idle for longer than they may.
pub fn idle_for_too_long<'a>(
    pool: &'a Pool,
    settings: &'a Settings,
    facts: &'a Facts<'_>,
) -> impl Iterator<Item = SessionId> + 'a {
    pool.sessions()
        .filter(|session| {
            let Some(limit) = idle_timeout(settings, session) else { return false };
            let idle =
                may_be_parked(settings, session).and_then(|()| idle_since(pool, settings, session, facts));
            !is_unknown(session, facts) && idle.is_ok_and(|since| pool.age(facts.now, since) >= limit)
        })
        .map(|session| session.id)
}

/// After being idle for so long it is parked; `None` for never.
#[must_use]
pub fn idle_timeout(settings: &Settings, session: &Session) -> Option<Duration> {
    match session.policy.idle_timeout_ms {
        Some(u64::MAX) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
        None => settings.idle_timeout,
    }
}

/// The sessions that are to be started without being asked for by name, in the order in which that came up:
/// parked ones with a prompt, and those that are due.
#[must_use]
pub fn wanting(pool: &Pool, now: Timestamp) -> Vec<SessionId> {
    let since = |s: &Session| Some((wants_since(pool, s, now)?, s.id));
    let mut wanting: Vec<(Timestamp, SessionId)> = pool.sessions().filter_map(since).collect();
    wanting.sort_unstable();
    wanting.into_iter().map(|(_, id)| id).collect()
}

/// Since when it is to be started, where it is.
fn wants_since(pool: &Pool, session: &Session, now: Timestamp) -> Option<Timestamp> {
    if session.lifecycle.holds_slot() || session.budget.exhausted {
        return None;
    }
    if let Some(due) = session.budget.due_at {
        return (due <= now).then_some(due);
    }
    let parked = session.lifecycle == Lifecycle::Parked && limited_until(pool, session, now).is_none();
    let waits = queue::due_prompt(pool, session.id, now).filter(|_| parked)?;
    Some(waits.max(session.changed_at))
}

/// Until when its agent has used up what it may: it would be woken for nothing.
fn limited_until(pool: &Pool, session: &Session, now: Timestamp) -> Option<Timestamp> {
    activity::shown(pool, session).limited_until.filter(|until| *until > now)
}

/// When something that has to wait for its time is to be started.
#[must_use]
pub fn next_start(pool: &Pool, now: Timestamp) -> Option<Timestamp> {
    let at = |s: &Session| {
        if s.lifecycle.holds_slot() || s.budget.exhausted {
            return None;
        }
        let prompts = pool.prompts(s.id);
        let wakes = s.lifecycle == Lifecycle::Parked && prompts.waiting > 0 && !prompts.held;
        let later = || {
            let due = queue::next_prompt_at(pool, s.id).filter(|at| *at > now);
            [due, limited_until(pool, s, now)].into_iter().flatten().max().filter(|_| wakes)
        };
        s.budget.due_at.or_else(later)
    };
    pool.sessions().filter_map(at).filter(|at| *at > now).min()
}

/// The prompts of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prompts {
    /// How many wait.
    pub waiting: u64,
    /// Whether one is in flight or in doubt.
    pub held: bool,
    /// When the first that waits was queued.
    pub oldest: Option<Timestamp>,
}

impl Pool {
    /// The prompts of a session.
    #[must_use]
    pub fn prompts(&self, session: SessionId) -> Prompts {
        let lane = self.book.queue(session).and_then(|queue| queue.lanes.get(PROMPT));
        lane.map_or_else(Prompts::default, |lane| Prompts {
            waiting: lane.waiting(),
            held: lane.is_held(),
            oldest: lane.oldest(),
        })
    }
}
