//! Starts that nobody asked for by name: how many, how far apart, and when there were too many. All of it
//! is in the record, so that a crash of anything neither forgives nor forgets one.

use std::cmp::Reverse;
use std::time::Duration;

use protocol::clock::ClockStep;
use protocol::policy::{Budget, RestartPolicy};
use protocol::session::Reason;
use protocol::{Event, Lifecycle, Session, Timestamp};

use crate::pool::{Pool, is_between};
use crate::settings::{RestartRules, Settings};

/// A program that ran for so long ran well: failures before it do not count.
pub const RAN_WELL: Duration = Duration::from_secs(60);
/// Starts that are remembered at most, whatever the window.
const STARTS_MAX: usize = 128;

/// Whether it may be started once more by itself; the time from which on it may, otherwise.
///
/// # Errors
/// That time.
pub fn allows(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Result<(), Timestamp> {
    let rules = &settings.restart;
    let recent = recent(pool, &session.budget, rules, now);
    let max = usize::try_from(max(rules, session)).unwrap_or(usize::MAX).clamp(1, STARTS_MAX);
    match recent.len().checked_sub(max) {
        None => Ok(()),
        Some(over) => Err(pool.time_after(now, recent[over], rules.window)),
    }
}

fn max(rules: &RestartRules, session: &Session) -> u32 {
    session.policy.max_restarts.unwrap_or(rules.max)
}

/// The starts that the window reaches, oldest first.
fn recent(pool: &Pool, budget: &Budget, rules: &RestartRules, now: Timestamp) -> Vec<Timestamp> {
    let is_recent = |at: &Timestamp| pool.age(now, *at) < rules.window;
    let mut recent: Vec<Timestamp> = budget.starts.iter().copied().filter(is_recent).collect();
    recent.sort_unstable_by_key(|at| (Reverse(pool.age(now, *at)), *at));
    recent
}

/// Pauses before starts, after the clock was set by this step: they neither end sooner nor last longer.
#[must_use]
pub fn shifted(pool: &Pool, step: ClockStep) -> Vec<Event> {
    let by = i64::try_from(i128::from(step.after.0) - i128::from(step.before.0)).unwrap_or(0);
    let event = |session: &Session| {
        let due_at = session.budget.due_at?.0.saturating_add_signed(by);
        let budget = Budget { due_at: Some(Timestamp(due_at)), ..session.budget.clone() };
        Some(Event::BudgetChanged { session: session.id, budget })
    };
    pool.sessions().filter_map(event).collect()
}

/// It is started by itself now. To wake what was parked is use, and no restart: it counts only where its program then fails
/// and is started once more.
#[must_use]
pub fn spent(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Event {
    let mut starts = recent(pool, &session.budget, &settings.restart, now);
    starts.extend((session.lifecycle != Lifecycle::Parked).then_some(now));
    let extra = starts.len().saturating_sub(STARTS_MAX);
    starts.drain(..extra);
    let budget = Budget { starts, failures: session.budget.failures, ..Budget::default() };
    Event::BudgetChanged { session: session.id, budget }
}

/// Somebody started it, or wants it to stay as it is: what was before does not count.
#[must_use]
pub fn renewed(session: &Session) -> Option<Event> {
    let fresh = Budget::default();
    let changed = session.budget != fresh;
    changed.then_some(Event::BudgetChanged { session: session.id, budget: fresh })
}

/// It is over, and was sent something that is to start it; an event where that is so.
#[must_use]
pub fn woken(session: &Session, now: Timestamp) -> Option<Event> {
    let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed | Lifecycle::Lost);
    let budget = Budget { due_at: Some(now), ..Budget::default() };
    (over && !is_between(session)).then_some(Event::BudgetChanged { session: session.id, budget })
}

/// What follows from the ends of programs, by their sessions' policies: when each is started again, or that
/// it is not any more. Nothing follows twice.
#[must_use]
pub fn decide(pool: &Pool, settings: &Settings, now: Timestamp) -> Vec<Event> {
    pool.sessions().filter_map(|session| after_end(pool, settings, session, now)).collect()
}

/// Whether it is about to be decided that it starts once more.
#[must_use]
pub fn is_to_start(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> bool {
    let decided = after_end(pool, settings, session, now);
    matches!(decided, Some(Event::BudgetChanged { budget, .. }) if budget.due_at.is_some())
}

fn after_end(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Option<Event> {
    let decided = session.budget.due_at.is_some() || session.budget.exhausted;
    let over = !session.lifecycle.holds_slot() && !is_between(session);
    if decided || !over || !(is_to_restart(session) || is_to_be_woken(pool, session)) {
        return None;
    }
    let budget = match allows(pool, settings, session, now) {
        Ok(()) => next(pool, settings, session, now),
        Err(_) => Budget { exhausted: true, ..session.budget.clone() },
    };
    Some(Event::BudgetChanged { session: session.id, budget })
}

pub(crate) fn next(pool: &Pool, settings: &Settings, session: &Session, now: Timestamp) -> Budget {
    let failures = if ran_well(pool, session) { 0 } else { session.budget.failures };
    let delay = delay(&settings.restart, session, failures);
    Budget { due_at: Some(now.after(delay)), failures: failures.saturating_add(1), ..session.budget.clone() }
}

/// From its start to its end.
fn ran_well(pool: &Pool, session: &Session) -> bool {
    let started = session.incarnation.as_ref().map(|run| run.started_at);
    started.is_some_and(|at| pool.age(session.changed_at, at) >= RAN_WELL)
}

/// Doubles with each failure in a row; up to a fifth longer, so that many that fail together do not start
/// together.
fn delay(rules: &RestartRules, session: &Session, failures: u32) -> Duration {
    let doubled = 2_u32.checked_pow(failures).and_then(|factor| rules.backoff.checked_mul(factor));
    let delay = doubled.unwrap_or(rules.backoff_max).min(rules.backoff_max);
    let mixed = (session.id.0 ^ (u64::from(session.incarnations) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    delay + delay.mul_f64((mixed >> 40) as f64 / (1_u64 << 24) as f64 / 5.0)
}

/// It was woken to work its messages, and could not be started: it is tried again, whatever its policy.
fn is_to_be_woken(pool: &Pool, session: &Session) -> bool {
    let failed = session.lifecycle == Lifecycle::Failed && session.incarnations > 1;
    failed && pool.prompts(session.id).waiting > 0
}

/// Whether what ended is to run, by its policy. What its user ended stays as it is.
fn is_to_restart(session: &Session) -> bool {
    use Reason::{
        DiskLimit, ExecFailed, Exited, Hung, MemoryLimit, Setup, StaleAgent, StartupMissingTmux, TmuxFailed,
        TmuxGone,
    };
    let Some(reason) = session.reason else { return false };
    let again = session.incarnations > 1;
    let failed = match (session.lifecycle, reason) {
        (Lifecycle::Stopped, Exited) => session.exit.is_none_or(|exit| exit.code != Some(0)),
        (Lifecycle::Stopped, MemoryLimit | Hung | StaleAgent) => true,
        (Lifecycle::Stopped, DiskLimit) => false,
        (Lifecycle::Failed, TmuxFailed | Setup | ExecFailed) => again,
        _ => false,
    };
    match session.policy.restart {
        RestartPolicy::No => false,
        RestartPolicy::OnFailure => failed,
        RestartPolicy::Always => {
            let ended = session.lifecycle == Lifecycle::Stopped
                && matches!(reason, Exited | TmuxGone | StartupMissingTmux);
            failed || ended || session.lifecycle == Lifecycle::Lost
        }
    }
}
