//! Starts that no user asked for: their number, their spacing, and their exhaustion. All of it is on record,
//! so that no crash forgives or forgets a start.

use std::cmp::Reverse;
use std::time::Duration;

use protocol::clock::ClockStep;
use protocol::policy::{Budget, RestartPolicy};
use protocol::{Event, Lifecycle, Reason, Session, Timestamp};

use crate::clock;
use crate::pool::Pool;
use crate::session::lifecycle::is_restarting;
use crate::settings::{RestartRules, Settings};

/// Run time after which a program ran well: earlier failures no longer count.
pub(crate) const RAN_WELL: Duration = Duration::from_secs(60);

/// Most starts remembered, whatever the window.
pub const STARTS_MAX: u32 = 128;

/// Failures in a row from which on a session is reported as one that fails each time. The pauses are then 16 s and
/// more, so that the session may never have more starts within the window than its budget allows.
const LOOP_FAILURES: u32 = 5;

/// Checks that the pool may start a session once more by itself.
///
/// # Errors
/// The time from which on it may.
pub fn check_restarts(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    now: Timestamp,
) -> Result<(), Timestamp> {
    let rules = &settings.restart;
    let recent = recent_starts(pool, &session.budget, rules, now);
    let max = max_restarts(rules, session).clamp(1, STARTS_MAX) as usize;
    match recent.len().checked_sub(max) {
        None => Ok(()),
        Some(over) => Err(pool.time_after(now, recent[over], rules.window)),
    }
}

fn max_restarts(rules: &RestartRules, session: &Session) -> u32 {
    session.policy.max_restarts.unwrap_or(rules.max)
}

/// The starts within the window, oldest first.
fn recent_starts(pool: &Pool, budget: &Budget, rules: &RestartRules, now: Timestamp) -> Vec<Timestamp> {
    let is_recent = |at: &Timestamp| pool.age(now, *at) < rules.window;
    let mut recent: Vec<Timestamp> = budget.starts.iter().copied().filter(is_recent).collect();
    recent.sort_unstable_by_key(|at| (Reverse(pool.age(now, *at)), *at));
    recent
}

/// Moves due starts by a step of the clock, so that their pauses keep their length.
pub(crate) fn shift_due_starts(pool: &Pool, step: ClockStep) -> Vec<Event> {
    let event = |session: &Session| {
        let due_at = Some(clock::shifted(step, session.budget.due_at?));
        let budget = Budget { due_at, ..session.budget.clone() };
        Some(Event::BudgetChanged { session: session.id, budget })
    };
    pool.sessions().filter_map(event).collect()
}

/// Records a start by the pool itself. Waking a parked session counts only if its program then fails and is
/// started once more.
#[must_use]
pub fn spend_restart(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Event {
    let mut starts = recent_starts(pool, &session.budget, &settings.restart, now);
    starts.extend((session.lifecycle != Lifecycle::Parked).then_some(now));
    let extra = starts.len().saturating_sub(STARTS_MAX as usize);
    starts.drain(..extra);
    // A start without a due time wakes a parked session, whose run was not judged when it ended.
    let ran_well = session.budget.due_at.is_none() && has_run_well(pool, session);
    let failures = if ran_well { 0 } else { session.budget.failures };
    let budget = Budget { starts, failures, ..Budget::default() };
    Event::BudgetChanged { session: session.id, budget }
}

/// True for a session that is not started by itself because the pool is a copy or was restored.
pub fn is_held_as_copy(session: &Session) -> bool {
    session.budget.exhausted && session.budget.starts.is_empty() && session.incarnation.is_none()
}

/// True for a session that is started by itself again and again, and has ended soon after each of its last starts.
pub fn fails_each_time(pool: &Pool, session: &Session, now: Timestamp) -> bool {
    let started = session.incarnation.as_ref().map(|run| run.started_at);
    let is_young = started.is_some_and(|at| pool.age(now, at) < RAN_WELL);
    let goes_on = session.budget.due_at.is_some() || session.lifecycle.holds_slot() && is_young;
    session.budget.failures >= LOOP_FAILURES && goes_on
}

/// Forgets earlier starts and failures: a user started the session, or wants it to stay as it is. Returns no
/// event if there are none.
#[must_use]
pub fn reset_budget(session: &Session) -> Option<Event> {
    let fresh = Budget::default();
    let changed = session.budget != fresh;
    changed.then_some(Event::BudgetChanged { session: session.id, budget: fresh })
}

/// Makes a session start at once because of a message that is to start it. Returns an event for a session that is
/// over, is ending by itself, or is parked in a copy of its pool, and none for any other.
#[must_use]
pub(crate) fn wake_ended(session: &Session, now: Timestamp) -> Option<Event> {
    let over = session.lifecycle.is_over() && !is_restarting(session);
    let over = over || session.lifecycle == Lifecycle::Parked && is_held_as_copy(session);
    let budget = Budget { due_at: Some(now), ..Budget::default() };
    (over || ends_by_itself(session)).then_some(Event::BudgetChanged { session: session.id, budget })
}

/// True if a session ends for certain, and not by order of its user or of the pool.
pub(crate) fn ends_by_itself(session: &Session) -> bool {
    use Reason::{Drained, StartupMissingTmux, TmuxGone};
    let is_end = |why: Reason| !why.is_order() && !matches!(why, Drained | TmuxGone | StartupMissingTmux);
    session.lifecycle == Lifecycle::Draining && session.reason.is_some_and(is_end)
}

/// Decides on the sessions that ended, by their policies: the time of the next start, or that there is none.
/// Decides only once per end.
#[must_use]
pub fn decide_restarts(pool: &Pool, settings: &Settings, now: Timestamp) -> Vec<Event> {
    pool.user_sessions().filter_map(|session| decide_restart(pool, settings, session, now)).collect()
}

/// True if [`decide_restarts`] is about to start the session once more.
pub fn will_restart(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> bool {
    let decided = decide_restart(pool, settings, session, now);
    matches!(decided, Some(Event::BudgetChanged { budget, .. }) if budget.due_at.is_some())
}

fn decide_restart(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Option<Event> {
    let decided = session.budget.due_at.is_some() || session.budget.exhausted;
    let over = !session.lifecycle.holds_slot() && !is_restarting(session);
    if decided || !over || !(policy_restarts(session) || is_failed_wake(pool, session)) {
        return None;
    }
    Some(next_or_exhausted(pool, settings, session, now))
}

/// The time of the next start, or that there is none.
pub(crate) fn next_or_exhausted(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    now: Timestamp,
) -> Event {
    let budget = match check_restarts(pool, settings, session, now) {
        Ok(()) => next_budget(pool, settings, session, now),
        Err(_) => Budget { exhausted: true, ..session.budget.clone() },
    };
    Event::BudgetChanged { session: session.id, budget }
}

pub(crate) fn next_budget(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Budget {
    let failures = if has_run_well(pool, session) { 0 } else { session.budget.failures };
    let delay = backoff(&settings.restart, session, failures);
    Budget { due_at: Some(now.after(delay)), failures: failures.saturating_add(1), ..session.budget.clone() }
}

/// True if the last incarnation ran for [`RAN_WELL`].
fn has_run_well(pool: &Pool, session: &Session) -> bool {
    let started = session.incarnation.as_ref().map(|run| run.started_at);
    started.is_some_and(|at| pool.age(session.changed_at, at) >= RAN_WELL)
}

/// The pause before a start: doubles with each failure in a row, and is up to a fifth longer, so that many
/// sessions that fail together do not start together.
fn backoff(rules: &RestartRules, session: &Session, failures: u32) -> Duration {
    let doubled = 2_u32.checked_pow(failures).and_then(|factor| rules.backoff.checked_mul(factor));
    let delay = doubled.unwrap_or(rules.backoff_max).min(rules.backoff_max);
    let mixed = (session.id.0 ^ (u64::from(session.incarnations) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    delay + delay.mul_f64((mixed >> 40) as f64 / (1_u64 << 24) as f64 / 5.0)
}

/// True if a start of a session that ran before has failed, and prompts wait for it. It is started once more, whatever
/// its policy.
fn is_failed_wake(pool: &Pool, session: &Session) -> bool {
    let failed = session.lifecycle == Lifecycle::Failed && session.incarnations > 1;
    failed && pool.prompts(session.id).waiting > 0
}

/// True if the session's policy starts it again after this end, which may be still in progress. A session that its user
/// ended stays ended.
pub(crate) fn policy_restarts(session: &Session) -> bool {
    use Reason::{
        ExecFailed, Exited, Hung, MemoryLimit, Setup, StaleAgent, StartupMissingTmux, TmuxFailed, TmuxGone,
    };
    let Some(reason) = session.reason else { return false };
    let again = session.incarnations > 1;
    let failed = match (session.lifecycle, reason) {
        (Lifecycle::Stopped | Lifecycle::Draining, Exited) => {
            session.exit.is_none_or(|exit| exit.code != Some(0))
        }
        (Lifecycle::Stopped | Lifecycle::Draining, MemoryLimit | Hung | StaleAgent) => true,
        (Lifecycle::Failed, TmuxFailed | Setup | ExecFailed) => again,
        _ => false,
    };
    match session.policy.restart {
        RestartPolicy::No => false,
        RestartPolicy::OnFailure => failed,
        RestartPolicy::Always => {
            let ended = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Draining)
                && matches!(reason, Exited | TmuxGone | StartupMissingTmux);
            failed || ended || session.lifecycle == Lifecycle::Lost
        }
    }
}
