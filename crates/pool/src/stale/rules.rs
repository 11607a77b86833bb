//! Whether a running session should end: each rule with its threshold and its evidence. While somebody is attached
//! none applies. What is pinned, locked by somebody, or waits for a person is never ended for its silence; limits that
//! were set for it hold all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::message::PROMPT;
use protocol::reap::Leftovers;
use protocol::reap::{Action, Rule};
use protocol::{Lifecycle, MessageId, MessageState, Session, SessionId, Timestamp};

use crate::pool::Pool;
use crate::settings::Settings;
use crate::slots;

/// The rules that are about running sessions, the most pressing first: what fills the disk keeps the pool itself from
/// working, and only so many sessions are ended a minute.
pub const OF_SESSIONS: [Rule; 6] =
    [Rule::Disk, Rule::Memory, Rule::RunTime, Rule::StaleAgent, Rule::Hung, Rule::IdleSession];

/// What the shell knows of running sessions.
#[derive(Debug)]
pub struct Signs<'a> {
    /// Output, messages, and who is at them.
    pub slots: &'a slots::Facts<'a>,
    /// Since when the processes of these sessions have used next to nothing of the processor.
    pub calm_since: &'a BTreeMap<SessionId, Timestamp>,
    /// What they use of what is limited.
    pub used: &'a BTreeMap<SessionId, Used>,
    /// Those that wait for a person.
    pub ask: &'a BTreeSet<SessionId>,
}

/// What a session uses of what is limited, in bytes, as last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Memory.
    pub memory: Option<u64>,
    /// Disk.
    pub disk: Option<u64>,
}

/// What a rule says of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it applies.
    pub applies: bool,
    /// Why, or why not.
    pub why: String,
    /// When it would, if nothing changes.
    pub at: Option<Timestamp>,
}

impl Verdict {
    pub(super) fn no(why: impl Into<String>) -> Self {
        Self { applies: false, why: why.into(), at: None }
    }

    pub(super) fn yes(why: impl Into<String>) -> Self {
        Self { applies: true, why: why.into(), at: None }
    }

    /// It applies once this has lasted for so long.
    fn after(pool: &Pool, what: &str, (since, now): (Timestamp, Timestamp), limit: Duration) -> Self {
        let age = pool.age(now, since);
        let why = format!("{what} for {} s (limit {} s)", age.as_secs(), limit.as_secs());
        let applies = age >= limit;
        Self { applies, why, at: (!applies).then(|| pool.time_after(now, since, limit)) }
    }
}

/// What becomes of what a rule finds, and who says so: the session's own policy, its agent's table, the configuration,
/// or the default.
#[must_use]
pub fn action(settings: &Settings, session: Option<&Session>, rule: Rule) -> (Action, &'static str) {
    let own = session.and_then(|s| s.policy.reap.get(&rule));
    let agent = || session.and_then(|s| settings.agents.get(&s.spec.agent)?.reap.get(&rule));
    let said = own
        .map(|action| (*action, "session"))
        .or_else(|| agent().map(|action| (*action, "agent")))
        .or_else(|| settings.reap.actions.get(&rule).map(|action| (*action, "configuration")));
    let leaves = session.and_then(|s| settings.agents.get(&s.spec.agent)).map(|agent| agent.leftovers);
    match said {
        Some(said) => said,
        // What its agent is to leave is no orphan to be ended.
        None if rule == Rule::Orphans && leaves == Some(Leftovers::Report) => (Action::Report, "agent"),
        None => (default(session, rule), "default"),
    }
}

/// Nobody's quiet work is ended.
fn default(session: Option<&Session>, rule: Rule) -> Action {
    let resumes = session.is_some_and(|s| !s.spec.resume_args.is_empty());
    match rule {
        Rule::StaleAgent if resumes => Action::Restart,
        Rule::StaleAgent | Rule::Hung | Rule::IdleSession => Action::Report,
        _ => Action::Kill,
    }
}

/// What a rule says of a running session.
#[must_use]
pub fn verdict(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    rule: Rule,
    signs: &Signs<'_>,
) -> Verdict {
    if session.lifecycle != Lifecycle::Live {
        return Verdict::no("it does not run");
    }
    if session.attached_clients > 0 {
        return Verdict::no("a client is attached");
    }
    let used = signs.used.get(&session.id).copied().unwrap_or_default();
    match rule {
        Rule::Memory => limit("memory", session.spec.limits.memory, used.memory),
        Rule::Disk => limit("disk", session.spec.limits.disk, used.disk),
        Rule::RunTime => run_time(pool, session, signs.slots.now),
        Rule::StaleAgent => stale_agent(pool, settings, session, signs),
        Rule::Hung => hung(pool, settings, session, signs),
        Rule::IdleSession => idle_session(pool, settings, session, signs),
        _ => Verdict::no("it is about what is over"),
    }
}

/// The sessions that should end, or of which something is to be told, with each rule that says so: the most pressing
/// rule first, of all sessions.
#[must_use]
pub fn found(pool: &Pool, settings: &Settings, signs: &Signs<'_>) -> Vec<(SessionId, Rule, String)> {
    let applies = |(session, rule): (&Session, Rule)| {
        let verdict = verdict(pool, settings, session, rule, signs);
        verdict.applies.then_some((session.id, rule, verdict.why))
    };
    let live = || pool.sessions().filter(|s| s.lifecycle == Lifecycle::Live);
    OF_SESSIONS
        .into_iter()
        .flat_map(|rule| live().map(move |session| (session, rule)))
        .filter_map(applies)
        .collect()
}

fn limit(what: &str, allowed: Option<u64>, used: Option<u64>) -> Verdict {
    match (allowed, used) {
        (None, _) => Verdict::no(format!("no limit of {what} is set")),
        (Some(_), None) => Verdict::no(format!("its use of {what} is not known yet")),
        (Some(allowed), Some(used)) => {
            let why = format!("it uses {used} bytes of {what} (limit {allowed})");
            Verdict { applies: used > allowed, why, at: None }
        }
    }
}

fn run_time(pool: &Pool, session: &Session, now: Timestamp) -> Verdict {
    let started = session.incarnation.as_ref().map(|run| run.started_at);
    match (session.policy.max_runtime_ms, started) {
        (None, _) => Verdict::no("no run time is set"),
        (_, None) => Verdict::no("it does not run"),
        (Some(ms), Some(started)) => {
            Verdict::after(pool, "it has run", (started, now), Duration::from_millis(ms))
        }
    }
}

fn stale_agent(pool: &Pool, settings: &Settings, session: &Session, signs: &Signs<'_>) -> Verdict {
    let Some(id) = held(pool, session.id) else { return Verdict::no("it holds no message") };
    if let Some(why) = is_left_alone(pool, session, signs) {
        return Verdict::no(why);
    }
    let what = format!("it holds message {} and nothing was seen of it", id.0);
    silence(pool, &what, settings.reap.stale_agent, session, signs)
}

fn hung(pool: &Pool, settings: &Settings, session: &Session, signs: &Signs<'_>) -> Verdict {
    let waiting = pool.prompts(session.id).waiting;
    let busy = match (held(pool, session.id), waiting) {
        (Some(id), _) => format!("it works message {}", id.0),
        (None, 0) => return Verdict::no("it has nothing to do"),
        (None, 1) => "a message waits for it".to_owned(),
        (None, n) => format!("{n} messages wait for it"),
    };
    if let Some(why) = is_left_alone(pool, session, signs) {
        return Verdict::no(why);
    }
    let what = format!("{busy}, and it neither wrote nor used the processor");
    silence(pool, &what, settings.reap.hung, session, signs)
}

fn idle_session(pool: &Pool, settings: &Settings, session: &Session, signs: &Signs<'_>) -> Verdict {
    if let Some(why) = is_left_alone(pool, session, signs) {
        return Verdict::no(why);
    }
    match slots::idle_since(pool, settings, session, signs.slots) {
        Err(why) => Verdict::no(why),
        Ok(since) => {
            let limit = settings.reap.idle_session;
            Verdict::after(pool, "it has had nothing to do", (since, signs.slots.now), limit)
        }
    }
}

/// The prompt that its agent has.
fn held(pool: &Pool, session: SessionId) -> Option<MessageId> {
    let mut held = pool.held_messages().filter(|open| open.session == session && open.kind == PROMPT);
    held.find(|open| open.state.in_flight()).map(|open| open.id)
}

/// Why nothing is ended or told for its silence.
fn is_left_alone(pool: &Pool, session: &Session, signs: &Signs<'_>) -> Option<&'static str> {
    if session.policy.pinned {
        Some("it is pinned")
    } else if session.lock.is_some() {
        Some("somebody holds its lock")
    } else if signs.ask.contains(&session.id) {
        Some("it waits for a person")
    } else if is_in_doubt(pool, session.id) {
        Some("a message of it is in doubt, which is for a person to say")
    } else {
        None
    }
}

/// Nothing more is typed before somebody says whether one arrived: its agent is not at it.
fn is_in_doubt(pool: &Pool, session: SessionId) -> bool {
    let mut held = pool.held_messages().filter(|open| open.session == session && open.kind == PROMPT);
    held.any(|open| open.state == MessageState::InDoubt)
}

/// Since when nothing has moved: no output, no use of the processor, no message given.
fn silence(pool: &Pool, what: &str, limit: Duration, session: &Session, signs: &Signs<'_>) -> Verdict {
    let facts = signs.slots;
    let given = session.incarnation.as_ref().and_then(|run| facts.worked.get(&run.tag)).copied();
    let (Some(quiet), Some(calm)) = (facts.quiet_since.get(&session.id), signs.calm_since.get(&session.id))
    else {
        return Verdict::no("its output or its use of the processor is not known yet, or goes on");
    };
    let all = [*quiet, *calm, session.changed_at].into_iter().chain(given);
    let since = pool.latest(facts.now, all);
    Verdict::after(pool, what, (since, facts.now), limit)
}
