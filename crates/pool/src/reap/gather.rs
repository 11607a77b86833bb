//! Candidates and inputs, gathered from both halves of the state.

use std::collections::{BTreeMap, BTreeSet};

use protocol::reap::Candidate;
use protocol::{Session, SessionId, Timestamp};

use crate::agent::activity::{current_activity, waits_for_person};
use crate::deadlines::Mono;
use crate::pool::Pool;
use crate::reap::candidates::{find_candidates, is_to_end};
use crate::reap::inputs::ReapInputs;
use crate::reap::rules::{ResourceUse, RuleInputs};
use crate::settings::Settings;
use crate::slots::inputs;
use crate::volatile::Volatile;

/// The candidates that a reaper can lease now, except for those that the limit on kills holds back.
pub fn candidates(
    pool: &Pool,
    volatile: &Volatile,
    settings: &Settings,
    (now, mono): (Timestamp, Mono),
) -> Vec<Candidate> {
    let mut found = all_candidates(pool, volatile, settings, now);
    found.retain(|candidate| is_to_end(pool, settings, candidate));
    found.retain(|candidate| !volatile.reaping.is_held_back(settings, candidate, mono));
    found
}

/// The candidates that no reaper holds a lease on, including those that are only to be reported or are held
/// back.
pub fn all_candidates(
    pool: &Pool,
    volatile: &Volatile,
    settings: &Settings,
    now: Timestamp,
) -> Vec<Candidate> {
    let reaping = &volatile.reaping;
    let mut found = with_inputs(volatile, settings, now, |inputs| find_candidates(pool, settings, inputs));
    // The guard of a parking holds only while the session is to be parked: it may have to end for another reason by
    // now.
    let is_guarded = |candidate: &Candidate| {
        let is_parked = pool.session(candidate.session).is_none_or(Session::is_being_parked);
        is_parked && reaping.is_guarded(candidate.tag)
    };
    found.retain(|candidate| !reaping.is_leased(candidate.tag) && !is_guarded(candidate));
    for candidate in &mut found {
        if let Some(evidence) = candidate.rule.and_then(|_| reaping.evidence(candidate.tag)) {
            candidate.evidence.clone_from(evidence);
        }
        if let Some(grace_ms) = pool.tagged(candidate.tag).and_then(|session| session.end_grace_ms) {
            candidate.grace_ms = grace_ms;
        }
    }
    found
}

/// Calls `with` with the inputs to the search for candidates.
pub fn with_inputs<R>(
    volatile: &Volatile,
    settings: &Settings,
    now: Timestamp,
    with: impl FnOnce(&ReapInputs<'_>) -> R,
) -> R {
    with(&ReapInputs {
        state: volatile.observed.state(),
        exited: volatile.reaping.exited(),
        now,
        listed_from: volatile.observed.listed_from(),
        grace_ms: settings.grace_ms,
        drained: volatile.scheduler.drained(),
        orphans: volatile.reaping.orphans(),
    })
}

/// Calls `with` with the inputs to the rules about running sessions.
pub fn with_rule_inputs<R>(
    pool: &Pool,
    volatile: &Volatile,
    now: Timestamp,
    with: impl FnOnce(&RuleInputs<'_>) -> R,
) -> R {
    let reaping = &volatile.reaping;
    // The use of an earlier incarnation does not count.
    let used = |s: &Session| Some((s.id, reaping.used(s.incarnation.as_ref()?.tag)?));
    let used: BTreeMap<SessionId, ResourceUse> = pool.sessions().filter_map(used).collect();
    let asks = |s: &&Session| waits_for_person(&current_activity(pool, s));
    let asking: BTreeSet<SessionId> = pool.sessions().filter(asks).map(|s| s.id).collect();
    inputs::with_inputs(pool, volatile, now, |eviction| {
        with(&RuleInputs {
            eviction,
            low_cpu_since: &reaping.low_cpu_since(),
            used: &used,
            asking: &asking,
            machine: &reaping.machine,
        })
    })
}
