//! Eviction: many sessions share few slots, so an idle session that can resume is parked for one that has something to
//! do. Ephemeral sessions are parked first, even if they cannot resume.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agents::Confirm;
use agents::screen::Composer;
use protocol::{Activity, ActivityState, Lifecycle, Session, SessionId, Source, Tag, Timestamp};

use crate::agent::activity::{current_activity, waits_for_person};
use crate::agent::screen::ScreenReading;
use crate::pool::Pool;
use crate::prompt::gate::holds_text;
use crate::settings::Settings;

/// Minimum time for which a started session keeps its slot although it was given nothing to do.
pub const MIN_STAY: Duration = Duration::from_secs(30);

/// Run time after which a session gives its slot up between two messages if others wait for one.
pub const QUANTUM: Duration = Duration::from_secs(600);

/// Volatile facts about running sessions.
#[derive(Debug)]
pub struct EvictionInputs<'a> {
    pub now: Timestamp,
    /// Times since which the programs of sessions have written nothing.
    pub quiet_since: &'a BTreeMap<SessionId, Timestamp>,
    /// Times at which incarnations were last given a message.
    pub delivered_at: &'a BTreeMap<Tag, Timestamp>,
    /// Incarnations that a person spoke to.
    pub attended: &'a BTreeSet<Tag>,
    /// Sessions that are being typed into, started or ended.
    pub busy: &'a BTreeSet<SessionId>,
}

/// True if parking loses nothing: the agent can resume its conversation, or its kind is configured as
/// parkable. An adopted session belongs to its user.
pub fn is_parkable(settings: &Settings, session: &Session) -> bool {
    let said = settings.agent_of(session).parkable;
    let adopted = session.incarnation.as_ref().is_some_and(protocol::Incarnation::is_adopted);
    !adopted && (said || !session.spec.resume_args.is_empty())
}

/// Time since which a session is idle.
///
/// # Errors
/// The reason why it is not idle.
pub(crate) fn idle_since(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &EvictionInputs<'_>,
) -> Result<Timestamp, &'static str> {
    if session.lifecycle != Lifecycle::Live {
        return Err("it does not run");
    }
    if session.attached_clients > 0 {
        return Err("a client is attached");
    }
    if inputs.busy.contains(&session.id) {
        return Err("it is being started, ended or typed into");
    }
    if session.lock.is_some() {
        return Err("a user holds its lock");
    }
    let counts = pool.queue_counts(Some(session.id));
    if pool.prompts(session.id).waiting > 0 || counts.claimed + counts.in_doubt > 0 {
        return Err("it has messages to work");
    }
    at_rest_since(pool, settings, session, inputs)
}

/// Time since which a session's agent has been at rest: by its own report, else by its silence.
///
/// # Errors
/// The reason why it is not at rest.
pub(crate) fn at_rest_since(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &EvictionInputs<'_>,
) -> Result<Timestamp, &'static str> {
    let known = current_activity(pool, session);
    let tells = known.source.is_report();
    match known.state {
        ActivityState::Attention if waits_for_person(&known) => Err("it waits for a person"),
        _ if is_at_work(pool, session, &known) => Err("its agent is busy"),
        ActivityState::Idle | ActivityState::Error if tells => {
            Ok(pool.latest(inputs.now, [known.since, session.last_activity_at]))
        }
        _ => quiet_since(pool, settings, (session, &known), inputs),
    }
}

/// True if an agent works, by its own report. For an agent with hooks its screen counts as well: it shows that the
/// agent works again after a question.
fn is_at_work(pool: &Pool, session: &Session, known: &Activity) -> bool {
    let tells = known.source.is_report();
    let hooked =
        pool.notes(session.id).is_some_and(|notes| notes.hooked.is_some() && notes.hooked == known.tag);
    known.state == ActivityState::Busy && (tells || hooked)
}

/// Returns since when a session has written nothing and was given nothing, if that is long enough.
///
/// # Errors
/// The reason why it is not.
fn quiet_since(
    pool: &Pool,
    settings: &Settings,
    (session, known): (&Session, &Activity),
    inputs: &EvictionInputs<'_>,
) -> Result<Timestamp, &'static str> {
    let quiet = *inputs.quiet_since.get(&session.id).ok_or("its program is writing")?;
    let since = pool.latest(inputs.now, [quiet, session.last_activity_at]);
    // Silence soon after an unconfirmed message does not count, because the message may not have been read yet. A
    // shell that waits in the foreground has read it.
    let is_shell = settings.agent_of(session).confirm == Confirm::Prompt
        && known.state == ActivityState::Idle
        && matches!(known.source, Source::Terminal | Source::Process);
    let given = session.incarnation.as_ref().and_then(|run| inputs.delivered_at.get(&run.tag));
    let is_fresh = |at: &Timestamp| !is_shell && pool.age(inputs.now, *at) < settings.idle_settle;
    if given.is_some_and(is_fresh) {
        return Err("it was given something a moment ago");
    }
    if pool.age(inputs.now, since) < settings.idle_quiet {
        return Err("its program is writing");
    }
    Ok(since)
}

/// The rank of a session among those that may be parked for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionRank {
    /// True if it is between two messages, with its quantum used up.
    pub has_work: bool,
    /// Since when it is idle or, between two messages, when it started.
    pub since: Timestamp,
}

/// Returns the rank of a session that may be parked for another one.
///
/// # Errors
/// The reason why it may not be parked.
pub fn evictable(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &EvictionInputs<'_>,
) -> Result<EvictionRank, &'static str> {
    // An ephemeral session that cannot resume is ended, not parked.
    let ends = session.policy.ephemeral && !is_parkable(settings, session);
    if ends {
        check_expendable(pool, session)?;
    } else {
        check_parkable(settings, session)?;
    }
    let run = session.incarnation.as_ref().ok_or("it does not run")?;
    match idle_since(pool, settings, session, inputs) {
        Ok(since) => check_settled(pool, session, inputs).map(|()| EvictionRank { has_work: false, since }),
        Err(_)
            if !ends
                && between_messages(pool, settings, session, inputs)
                && pool.age(inputs.now, run.started_at) >= QUANTUM =>
        {
            Ok(EvictionRank { has_work: true, since: run.started_at })
        }
        Err(why) => Err(why),
    }
}

/// Returns since when a session has been idle, if parking it loses nothing.
///
/// # Errors
/// The reason why it may not be parked.
pub(crate) fn parkable_since(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &EvictionInputs<'_>,
) -> Result<Timestamp, &'static str> {
    check_parkable(settings, session)?;
    let since = idle_since(pool, settings, session, inputs)?;
    check_settled(pool, session, inputs).map(|()| since)
}

/// Checks that an idle session was not started just now, and that not only a person at the terminal has prompted its
/// agent: such a conversation could not be resumed.
fn check_settled(pool: &Pool, session: &Session, inputs: &EvictionInputs<'_>) -> Result<(), &'static str> {
    let run = session.incarnation.as_ref().ok_or("it does not run")?;
    if pool.age(inputs.now, run.started_at) < MIN_STAY && !inputs.delivered_at.contains_key(&run.tag) {
        Err("it was started a moment ago")
    } else if was_only_attended(session, inputs) {
        Err("a person spoke to it at the terminal")
    } else {
        Ok(())
    }
}

/// The loss if a session with this screen were parked: an unsent text, or work of the agent, also in the
/// background.
pub fn loss_if_parked(screen: &ScreenReading) -> Option<String> {
    if let Composer::Holds(text) = &screen.composer {
        return Some(holds_text(&protocol::redact::text(text)));
    }
    if screen.works == Some(true) {
        return Some("its screen shows that it works".to_owned());
    }
    screen.background.as_ref().map(|what| format!("its agent has {what} in the background"))
}

/// True if only a person spoke to the agent, not the pool: the agent could not resume that.
fn was_only_attended(session: &Session, inputs: &EvictionInputs<'_>) -> bool {
    let attended = session.incarnation.as_ref().is_some_and(|run| inputs.attended.contains(&run.tag));
    attended && session.conversation.as_ref().is_some_and(|conversation| !conversation.begun)
}

/// Checks that a session may be parked, and that its agent can take up its conversation.
pub(crate) fn check_parkable(settings: &Settings, session: &Session) -> Result<(), &'static str> {
    if session.policy.pinned {
        return Err("it is pinned");
    }
    if is_parkable(settings, session) { Ok(()) } else { Err("its agent cannot resume its conversation") }
}

/// Checks that an ephemeral session that cannot resume may be ended for another one. Silence alone does not prove rest:
/// a command may compute without output.
fn check_expendable(pool: &Pool, session: &Session) -> Result<(), &'static str> {
    if session.policy.pinned {
        return Err("it is pinned");
    }
    if session.incarnation.as_ref().is_some_and(protocol::Incarnation::is_adopted) {
        return Err("it was adopted");
    }
    let known = current_activity(pool, session);
    let is_guess = matches!(known.source, Source::Output | Source::Queue | Source::Nothing);
    if known.state == ActivityState::Idle && !is_guess {
        return Ok(());
    }
    Err("it cannot resume, and nothing but its silence says that it is idle")
}

/// True if messages wait and none is in flight.
fn between_messages(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &EvictionInputs<'_>,
) -> bool {
    let prompts = pool.prompts(session.id);
    let free = session.attached_clients == 0 && session.lock.is_none() && !inputs.busy.contains(&session.id);
    let live = session.lifecycle == Lifecycle::Live;
    let at_rest = at_rest_since(pool, settings, session, inputs).is_ok();
    let counts = pool.queue_counts(Some(session.id));
    let in_flight = prompts.held || counts.claimed + counts.in_doubt > 0;
    live && free && prompts.waiting > 0 && !in_flight && at_rest && !was_only_attended(session, inputs)
}

/// Returns the sessions that have used up their quantum and can resume. If others wait and no session can be parked,
/// these get no further message, so that they come to rest. Left out are sessions that would not come to rest, and
/// those that rest already and are kept from parking by something else.
pub fn over_quantum<'a>(
    pool: &'a Pool,
    settings: &'a Settings,
    inputs: &'a EvictionInputs<'_>,
) -> impl Iterator<Item = SessionId> + 'a {
    let had = move |s: &&Session| {
        let age = s.incarnation.as_ref().map(|run| pool.age(inputs.now, run.started_at));
        s.lifecycle == Lifecycle::Live
            && s.attached_clients == 0
            && s.lock.is_none()
            && age.is_some_and(|age| age >= QUANTUM)
            && check_parkable(settings, s).is_ok()
            && comes_to_rest(pool, settings, s, inputs)
    };
    pool.sessions().filter(had).map(|s| s.id)
}

/// True if a session works, and will rest once it gets no further message. A program that has written without a pause
/// for a whole quantum since its last message does not come to rest.
fn comes_to_rest(pool: &Pool, settings: &Settings, session: &Session, inputs: &EvictionInputs<'_>) -> bool {
    let Some(run) = &session.incarnation else { return false };
    // The time of the last message from before a start of `poold` is unknown; then the start of the incarnation
    // counts.
    let given = inputs.delivered_at.get(&run.tag).copied().unwrap_or(run.started_at);
    let is_restless = pool.age(inputs.now, given) >= QUANTUM;
    let works = is_at_work(pool, session, &current_activity(pool, session)) || !is_restless;
    pool.prompts(session.id).held || works && at_rest_since(pool, settings, session, inputs).is_err()
}

/// Returns the session to park for another one: idle sessions before those with messages, then ephemeral ones first,
/// then the one that has been idle, or has run, for longest.
pub fn next_to_park(pool: &Pool, settings: &Settings, inputs: &EvictionInputs<'_>) -> Option<SessionId> {
    let order = |s: &Session| {
        let rank = evictable(pool, settings, s, inputs).ok()?;
        Some((
            rank.has_work,
            !s.policy.ephemeral,
            Reverse(pool.age(inputs.now, rank.since)),
            rank.since,
            s.id,
        ))
    };
    pool.sessions().filter_map(order).min().map(|(.., id)| id)
}

/// Sessions that have been idle for longer than their time-out.
pub fn past_idle_timeout<'a>(
    pool: &'a Pool,
    settings: &'a Settings,
    inputs: &'a EvictionInputs<'_>,
) -> impl Iterator<Item = SessionId> + 'a {
    pool.sessions()
        .filter(|session| {
            let Some(limit) = idle_timeout(settings, session) else { return false };
            let idle =
                check_parkable(settings, session).and_then(|()| idle_since(pool, settings, session, inputs));
            !was_only_attended(session, inputs)
                && idle.is_ok_and(|since| pool.age(inputs.now, since) >= limit)
        })
        .map(|session| session.id)
}

/// Idle time after which a session is parked; none for never.
pub(crate) fn idle_timeout(settings: &Settings, session: &Session) -> Option<Duration> {
    match session.policy.idle_timeout_ms {
        Some(u64::MAX) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
        None => settings.idle_timeout,
    }
}
