//! Candidates for the reaper, and the facts that its rules are asked with.

use std::collections::{BTreeMap, BTreeSet};

use protocol::reap::Candidate;
use protocol::{Session, SessionId, Timestamp};

use crate::activity;
use crate::deadlines::Mono;
use crate::pool::Pool;
use crate::settings::Settings;
use crate::slots;
use crate::stale::rules::{Signs, Used};
use crate::stale::{self, Facts};
use crate::volatile::Volatile;

/// Everything that should be dead now and that no reaper is at; without what the limit on kills holds back.
#[must_use]
pub fn candidates(
    pool: &Pool,
    volatile: &Volatile,
    settings: &Settings,
    (now, mono): (Timestamp, Mono),
) -> Vec<Candidate> {
    let mut found = named(pool, volatile, settings, now);
    found.retain(|candidate| stale::is_to_end(pool, settings, candidate));
    found.retain(|candidate| !volatile.reaping.is_held_back(settings, candidate, mono));
    found
}

/// Everything that should be dead now and that no reaper is at, with what is only reported, or held back.
#[must_use]
pub fn named(pool: &Pool, volatile: &Volatile, settings: &Settings, now: Timestamp) -> Vec<Candidate> {
    let reaping = &volatile.reaping;
    let mut found = with_facts(volatile, settings, now, |facts| stale::named(pool, settings, facts));
    found.retain(|candidate| !reaping.is_leased(candidate.tag) && !reaping.is_guarded(candidate.tag));
    for candidate in &mut found {
        if let Some(evidence) = candidate.rule.and_then(|_| reaping.evidence(candidate.tag)) {
            candidate.evidence.clone_from(evidence);
        }
        if let Some(grace_ms) = reaping.grace(candidate.tag) {
            candidate.grace_ms = grace_ms;
        }
    }
    found
}

/// Calls `with` with the facts about what is over.
pub fn with_facts<R>(
    volatile: &Volatile,
    settings: &Settings,
    now: Timestamp,
    with: impl FnOnce(&Facts<'_>) -> R,
) -> R {
    with(&Facts {
        state: volatile.observed.state(),
        exited: volatile.reaping.exited(),
        now,
        listed_from: volatile.observed.listed_from(),
        grace_ms: settings.grace_ms,
        drained: volatile.scheduler.drained(),
        strays: volatile.reaping.strays(),
    })
}

/// Calls `with` with the facts about running sessions that decisions on slots rest on.
pub fn with_slot_facts<R>(
    pool: &Pool,
    volatile: &Volatile,
    now: Timestamp,
    with: impl FnOnce(&slots::Facts<'_>) -> R,
) -> R {
    let Volatile { scheduler, prompts, observed, .. } = volatile;
    with(&slots::Facts {
        now,
        quiet_since: scheduler.quiet_since(),
        worked: prompts.delivered_at(),
        touched: prompts.attended(),
        busy: &scheduler.busy(pool, observed.state(), prompts.delivering(), now),
    })
}

/// Calls `with` with the facts about running sessions that the rules of the reaper rest on.
pub fn with_signs<R>(
    pool: &Pool,
    volatile: &Volatile,
    now: Timestamp,
    with: impl FnOnce(&Signs<'_>) -> R,
) -> R {
    let reaping = &volatile.reaping;
    // What an earlier incarnation used is none of this one's.
    let used = |s: &Session| Some((s.id, reaping.used(s.incarnation.as_ref()?.tag)?));
    let used: BTreeMap<SessionId, Used> = pool.sessions().filter_map(used).collect();
    let asks = |s: &&Session| activity::asks(&activity::shown(pool, s));
    let ask: BTreeSet<SessionId> = pool.sessions().filter(asks).map(|s| s.id).collect();
    with_slot_facts(pool, volatile, now, |slots| {
        with(&Signs { slots, calm_since: &reaping.calm_since(), used: &used, ask: &ask })
    })
}
