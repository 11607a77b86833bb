//! The rules about running sessions, each with its threshold and its evidence. None applies while a client is
//! attached. A session that is pinned, locked, or waits for a person is never ended for its silence; its
//! limits hold all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::reap::{Action, Leftovers, Rule};
use protocol::{Lifecycle, MessageId, MessageState, Session, SessionId, Timestamp};

use crate::pool::Pool;
use crate::queue::prompts::held_prompt;
use crate::reap::machine::Machine;
use crate::settings::Settings;
use crate::slots::eviction;
use crate::slots::eviction::EvictionInputs;

/// The rules about single running sessions, the most pressing first: a full disk stops the pool itself, and the
/// number of kills per minute is limited.
pub const SESSION_RULES: [Rule; 6] =
    [Rule::Disk, Rule::Memory, Rule::RunTime, Rule::StaleAgent, Rule::Hung, Rule::IdleSession];

/// Volatile facts about running sessions.
#[derive(Debug)]
pub struct RuleInputs<'a> {
    /// The facts that eviction is decided by.
    pub eviction: &'a EvictionInputs<'a>,
    /// Times since which the processes of sessions have used next to no processor time.
    pub low_cpu_since: &'a BTreeMap<SessionId, Timestamp>,
    /// Their use of limited resources.
    pub used: &'a BTreeMap<SessionId, ResourceUse>,
    /// Sessions that wait for a person.
    pub asking: &'a BTreeSet<SessionId>,
    /// The machine.
    pub machine: &'a Machine,
}

/// A session's use of limited resources, in bytes, as last sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceUse {
    pub memory: Option<u64>,
    pub disk: Option<u64>,
    /// True if some of its files could not be read: `disk` is without them.
    pub unread: bool,
}

/// The verdict of a rule on a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleVerdict {
    /// True if the rule is violated.
    pub applies: bool,
    /// The evidence, or the reason why the rule is not violated.
    pub why: String,
    /// Time at which it will be violated if nothing changes.
    pub at: Option<Timestamp>,
}

impl RuleVerdict {
    pub(super) fn no(why: impl Into<String>) -> Self {
        Self { applies: false, why: why.into(), at: None }
    }

    pub(super) fn yes(why: impl Into<String>) -> Self {
        Self { applies: true, why: why.into(), at: None }
    }

    /// The verdict on a state that has lasted since a time, and may last for `limit`.
    fn by_age(pool: &Pool, what: &str, (since, now): (Timestamp, Timestamp), limit: Duration) -> Self {
        let age = pool.age(now, since);
        let why = format!("{what} for {} s (limit {} s)", age.as_secs(), limit.as_secs());
        let applies = age >= limit;
        Self { applies, why, at: (!applies).then(|| pool.time_after(now, since, limit)) }
    }
}

/// The action on a violation of a rule, and where it is set: in the session's policy, in its agent's table,
/// in the configuration, or by default.
pub fn rule_action(settings: &Settings, session: Option<&Session>, rule: Rule) -> (Action, &'static str) {
    let own = session.and_then(|s| s.policy.reap.get(&rule));
    let agent = || session.and_then(|s| settings.agent_of(s).reap.get(&rule));
    let said = own
        .map(|action| (*action, "session"))
        .or_else(|| agent().map(|action| (*action, "agent")))
        .or_else(|| settings.reap.actions.get(&rule).map(|action| (*action, "configuration")));
    let leaves = session.map(|s| settings.agent_of(s).leftovers);
    match said {
        Some(said) => said,
        // The agent's setting `leftovers = 'report'` keeps its orphans.
        None if rule == Rule::Orphans && leaves == Some(Leftovers::Report) => (Action::Report, "agent"),
        None => (default_action(session, rule), "default"),
    }
}

/// The default action of a rule, chosen so that no quiet work is ended.
fn default_action(session: Option<&Session>, rule: Rule) -> Action {
    let resumes = session.is_some_and(|s| !s.spec.resume_args.is_empty());
    match rule {
        Rule::StaleAgent if resumes => Action::Restart,
        Rule::StaleAgent | Rule::Hung | Rule::IdleSession => Action::Report,
        Rule::HostMemory | Rule::HostDisk => Action::Report,
        _ => Action::Kill,
    }
}

/// The verdict of a rule on a running session.
pub fn rule_verdict(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    rule: Rule,
    inputs: &RuleInputs<'_>,
) -> RuleVerdict {
    // Limits also hold for a session that works off its queue before it ends.
    let is_limit = matches!(rule, Rule::Memory | Rule::Disk | Rule::RunTime);
    if session.lifecycle != Lifecycle::Live && !(is_limit && session.takes_prompts()) {
        return RuleVerdict::no("it does not run");
    }
    if session.attached_clients > 0 {
        return RuleVerdict::no("a client is attached");
    }
    let used = inputs.used.get(&session.id).copied().unwrap_or_default();
    match rule {
        Rule::Memory => limit_verdict("memory", session.spec.limits.memory, used.memory),
        Rule::Disk => disk_verdict(session, used),
        Rule::RunTime => run_time_verdict(pool, session, inputs.eviction.now),
        Rule::StaleAgent => stale_agent_verdict(pool, settings, session, inputs),
        Rule::Hung => hung_verdict(pool, settings, session, inputs),
        Rule::IdleSession => idle_session_verdict(pool, settings, session, inputs),
        _ => RuleVerdict::no("the rule is not about a single running session"),
    }
}

/// All violations by single running sessions, the most pressing rule first.
pub fn violations(
    pool: &Pool,
    settings: &Settings,
    inputs: &RuleInputs<'_>,
) -> Vec<(SessionId, Rule, String)> {
    let applies = |(session, rule): (&Session, Rule)| {
        let verdict = rule_verdict(pool, settings, session, rule, inputs);
        verdict.applies.then_some((session.id, rule, verdict.why))
    };
    let running = || pool.sessions().filter(|s| s.takes_prompts());
    SESSION_RULES
        .into_iter()
        .flat_map(|rule| running().map(move |session| (session, rule)))
        .filter_map(applies)
        .collect()
}

fn disk_verdict(session: &Session, used: ResourceUse) -> RuleVerdict {
    let mut verdict = limit_verdict("disk", session.spec.limits.disk, used.disk);
    if session.spec.limits.disk.is_some() && used.unread {
        verdict.why.push_str("; some of its files cannot be read, and do not count");
    }
    verdict
}

fn limit_verdict(what: &str, allowed: Option<u64>, used: Option<u64>) -> RuleVerdict {
    match (allowed, used) {
        (None, _) => RuleVerdict::no(format!("no limit of {what} is set")),
        (Some(_), None) => RuleVerdict::no(format!("its use of {what} is not known yet")),
        (Some(allowed), Some(used)) => {
            let why = format!("it uses {used} bytes of {what} (limit {allowed})");
            RuleVerdict { applies: used > allowed, why, at: None }
        }
    }
}

fn run_time_verdict(pool: &Pool, session: &Session, now: Timestamp) -> RuleVerdict {
    let started = session.incarnation.as_ref().map(|run| run.started_at);
    match (session.policy.max_runtime_ms, started) {
        (None, _) => RuleVerdict::no("no run time is set"),
        (_, None) => RuleVerdict::no("it does not run"),
        (Some(ms), Some(started)) => {
            RuleVerdict::by_age(pool, "it has run", (started, now), Duration::from_millis(ms))
        }
    }
}

fn stale_agent_verdict(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &RuleInputs<'_>,
) -> RuleVerdict {
    let Some(id) = held_prompt_id(pool, session.id) else { return RuleVerdict::no("it holds no message") };
    if let Some(why) = is_left_alone(pool, session, inputs) {
        return RuleVerdict::no(why);
    }
    let what = format!("it holds message {} and showed no activity", id.0);
    silence_verdict(pool, &what, settings.reap.stale_agent, session, inputs)
}

fn hung_verdict(pool: &Pool, settings: &Settings, session: &Session, inputs: &RuleInputs<'_>) -> RuleVerdict {
    let waiting = pool.prompts(session.id).waiting;
    let busy = match (held_prompt_id(pool, session.id), waiting) {
        (Some(id), _) => format!("it works message {}", id.0),
        (None, 0) => return RuleVerdict::no("it has nothing to do"),
        (None, 1) => "a message waits for it".to_owned(),
        (None, n) => format!("{n} messages wait for it"),
    };
    if let Some(why) = is_left_alone(pool, session, inputs) {
        return RuleVerdict::no(why);
    }
    let what = format!("{busy}, and it neither wrote nor used the processor");
    silence_verdict(pool, &what, settings.reap.hung, session, inputs)
}

fn idle_session_verdict(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    inputs: &RuleInputs<'_>,
) -> RuleVerdict {
    if let Some(why) = is_left_alone(pool, session, inputs) {
        return RuleVerdict::no(why);
    }
    match eviction::idle_since(pool, settings, session, inputs.eviction) {
        Err(why) => RuleVerdict::no(why),
        Ok(since) => {
            let limit = settings.reap.idle_session;
            RuleVerdict::by_age(pool, "it has had nothing to do", (since, inputs.eviction.now), limit)
        }
    }
}

/// The prompt that a session's agent has.
fn held_prompt_id(pool: &Pool, session: SessionId) -> Option<MessageId> {
    held_prompt(pool, session).filter(|open| open.state.in_flight()).map(|open| open.id)
}

/// The reason for which a session is not judged by its silence.
fn is_left_alone(pool: &Pool, session: &Session, inputs: &RuleInputs<'_>) -> Option<&'static str> {
    if session.policy.pinned {
        Some("it is pinned")
    } else if session.lock.is_some() {
        Some("a user holds its lock")
    } else if inputs.asking.contains(&session.id) {
        Some("it waits for a person")
    } else if is_in_doubt(pool, session.id) {
        Some("one of its messages is in doubt, which a person has to resolve")
    } else {
        None
    }
}

/// True if the session's prompt is in doubt: nothing is typed before a person resolves it, so that its agent has
/// nothing to do.
fn is_in_doubt(pool: &Pool, session: SessionId) -> bool {
    held_prompt(pool, session).is_some_and(|open| open.state == MessageState::InDoubt)
}

/// The verdict on the time without output, processor time and messages.
fn silence_verdict(
    pool: &Pool,
    what: &str,
    limit: Duration,
    session: &Session,
    inputs: &RuleInputs<'_>,
) -> RuleVerdict {
    let eviction = inputs.eviction;
    let given = session.incarnation.as_ref().and_then(|run| eviction.delivered_at.get(&run.tag)).copied();
    let (Some(quiet), Some(calm)) =
        (eviction.quiet_since.get(&session.id), inputs.low_cpu_since.get(&session.id))
    else {
        return RuleVerdict::no("its output or its use of the processor is not known yet, or continues");
    };
    let all = [*quiet, *calm, session.changed_at].into_iter().chain(given);
    let since = pool.latest(eviction.now, all);
    RuleVerdict::by_age(pool, what, (since, eviction.now), limit)
}
