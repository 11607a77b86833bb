//! The rules about the machine: while it is short of memory or disk space, the idlest session that loses
//! nothing by it is parked, one at a time. Until the machine has enough again, no prompt wakes a parked one.

use std::cmp::Reverse;
use std::time::Duration;

use protocol::reap::{Action, Rule};
use protocol::{Lifecycle, Session, SessionId, Timestamp};

use crate::pool::Pool;
use crate::reap::act::rule_of;
use crate::reap::gather::with_rule_inputs;
use crate::reap::machine::{MACHINE_RULES, MachineUse};
use crate::reap::rules::{RuleInputs, RuleVerdict, rule_action};
use crate::settings::Settings;
use crate::slots::eviction::{EvictionInputs, parkable_since};
use crate::turn::Turn;
use crate::volatile::Volatile;

/// Minimum time between the proved end of a session that was parked for the machine and the next one: what it
/// used has to come free, and to show.
pub(crate) const MACHINE_PAUSE: Duration = Duration::from_secs(30);

/// The verdict of a rule about the machine on a running session: it applies to the idlest one that loses
/// nothing.
pub fn machine_verdict(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    rule: Rule,
    inputs: &RuleInputs<'_>,
) -> RuleVerdict {
    let figures = match inputs.machine.shortage(&settings.reap, rule) {
        Err(why) => return RuleVerdict::no(why),
        Ok(figures) => figures,
    };
    if let Err(why) = parkable_since(pool, settings, session, inputs.eviction) {
        return RuleVerdict::no(format!("{figures}; but {why}"));
    }
    match idlest(pool, settings, rule, inputs.eviction).filter(|first| *first != session.id) {
        Some(first) => RuleVerdict::no(format!("{figures}; but {first} comes first")),
        None => match another_first(pool, inputs).filter(|_| parks(settings, session, rule)) {
            Some(why) => RuleVerdict::no(format!("{figures}; but {why}")),
            None => RuleVerdict::yes(figures),
        },
    }
}

/// The violations of the rules about the machine: at most one session is to be parked.
pub(super) fn machine_violations(
    pool: &Pool,
    settings: &Settings,
    inputs: &RuleInputs<'_>,
) -> Vec<(SessionId, Rule, String)> {
    let mut has_park = false;
    let mut found = Vec::new();
    for rule in MACHINE_RULES {
        let first = idlest(pool, settings, rule, inputs.eviction).and_then(|id| pool.session(id));
        let Some(session) = first else { continue };
        let verdict = machine_verdict(pool, settings, session, rule, inputs);
        let is_park = parks(settings, session, rule);
        if verdict.applies && !(is_park && has_park) {
            has_park |= is_park;
            found.push((session.id, rule, verdict.why));
        }
    }
    found
}

/// The session to park for the machine: the one that has been idle for longest, of those that may be parked.
fn idlest(pool: &Pool, settings: &Settings, rule: Rule, eviction: &EvictionInputs<'_>) -> Option<SessionId> {
    let idle = |s: &Session| {
        let since = parkable_since(pool, settings, s, eviction).ok()?;
        Some((!parks(settings, s, rule), Reverse(pool.age(eviction.now, since)), since, s.id))
    };
    pool.sessions().filter_map(idle).min().map(|(.., id)| id)
}

fn parks(settings: &Settings, session: &Session, rule: Rule) -> bool {
    rule_action(settings, Some(session), rule).0 == Action::Park
}

/// The reason why no further session is parked for the machine yet: the last one is not proved gone, or no sample shows
/// yet whether that was enough.
fn another_first(pool: &Pool, inputs: &RuleInputs<'_>) -> Option<String> {
    let now = inputs.eviction.now;
    let parked = || pool.sessions().filter(|s| is_parked_for_machine(s));
    if let Some(session) = parked().find(|s| s.lifecycle == Lifecycle::Draining) {
        return Some(format!("{} is just being parked for it", session.id));
    }
    let last = parked().map(|s| s.changed_at).min_by_key(|at| pool.age(now, *at))?;
    let is_seen = inputs.machine.sampled_at().is_some_and(|at| pool.is_earlier(now, last, at));
    let age = pool.age(now, last);
    (age < MACHINE_PAUSE || !is_seen).then(|| {
        format!(
            "a session was parked for it {} s ago: the next one waits for {} s and a new sample",
            age.as_secs(),
            MACHINE_PAUSE.as_secs()
        )
    })
}

fn is_parked_for_machine(session: &Session) -> bool {
    let is_parked = matches!(session.lifecycle, Lifecycle::Draining | Lifecycle::Parked);
    is_parked && session.reason.and_then(rule_of).is_some_and(Rule::is_about_machine)
}

/// The reason why prompts do not wake a parked session: the machine has a shortage for which the session would be
/// parked again.
pub fn held_by_shortage(volatile: &Volatile, settings: &Settings, session: &Session) -> Option<String> {
    let is_short = |rule: Rule| volatile.reaping.machine.shortage(&settings.reap, rule).ok();
    let holds = |rule: &Rule| session.lifecycle == Lifecycle::Parked && parks(settings, session, *rule);
    MACHINE_RULES.into_iter().filter(holds).find_map(is_short)
}

/// Takes a sample of the machine.
pub fn note_machine(turn: &mut Turn<'_>, settings: &Settings, sample: MachineUse) {
    let now = turn.now();
    if turn.volatile.reaping.machine.note(&settings.reap, sample, now) {
        // No event tells the scheduler that parked sessions may, or may not, be woken.
        turn.wake();
    }
}

/// The shortages of the machine, with the figures, and whether no running session can be parked for it although
/// one should be.
pub fn shortages(
    pool: &Pool,
    volatile: &Volatile,
    settings: &Settings,
    now: Timestamp,
) -> Vec<(Rule, String, bool)> {
    let figures = |rule: Rule| Some((rule, volatile.reaping.machine.shortage(&settings.reap, rule).ok()?));
    let short: Vec<(Rule, String)> = MACHINE_RULES.into_iter().filter_map(figures).collect();
    if short.is_empty() {
        return Vec::new();
    }
    with_rule_inputs(pool, volatile, now, |inputs| {
        let is_unrelieved = |rule: Rule| {
            rule_action(settings, None, rule).0 == Action::Park
                && pool.user_sessions().any(|s| s.lifecycle == Lifecycle::Live)
                && another_first(pool, inputs).is_none()
                && !idlest(pool, settings, rule, inputs.eviction)
                    .and_then(|id| pool.session(id))
                    .is_some_and(|first| parks(settings, first, rule))
        };
        short.into_iter().map(|(rule, figures)| (rule, figures, is_unrelieved(rule))).collect()
    })
}
