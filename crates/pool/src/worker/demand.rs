//! The hosts of the pool's workers: started when a message for them waits, restarted with pauses after a
//! failure, and what they held freed once they are proved gone.

use protocol::policy::Budget;
use protocol::{Event, Lifecycle, Reason, Session, Timestamp};

use crate::lock::hold_back::holds_back;
use crate::queue::settle::release_of_host;
use crate::session::lifecycle::is_restarting;
use crate::session::restart_budget::next_or_exhausted;
use crate::settings::Settings;
use crate::slots::{RunIdentity, Starter, begin_start};
use crate::turn::Turn;
use crate::worker::claims::has_message;
use crate::worker::coverage::is_off;
use crate::worker::host::is_over;

/// The outcome of a look at the workers.
#[derive(Debug, Default)]
pub struct Demand {
    /// The sessions to launch, as before the decision.
    pub starts: Vec<Session>,
    /// Time of the next start after a failure.
    pub next_due: Option<Timestamp>,
}

/// Decides which hosts are started now. A second call without a change in between starts nothing.
pub fn decide(
    turn: &mut Turn<'_>,
    settings: &Settings,
    identities: &mut dyn FnMut() -> Option<RunIdentity>,
) -> Demand {
    if turn.volatile.is_stopping() {
        return Demand::default();
    }
    let freed = release_of_host(turn.pool(), &settings.queue, |tag| is_over(turn.pool(), tag), turn.now());
    turn.emit_all(freed);
    let budgets: Vec<Event> =
        turn.pool().workers().filter_map(|(host, _)| after_end(turn, settings, host)).collect();
    turn.emit_all(budgets);
    let hosts: Vec<Session> = turn
        .pool()
        .workers()
        .filter(|(host, _)| is_wanted(turn, host))
        .map(|(host, _)| host.clone())
        .collect();
    let mut starts = Vec::new();
    for host in hosts {
        let Some(identity) = identities() else { break };
        let starter = if has_ended_well(&host) { Starter::Message } else { Starter::Policy };
        begin_start(turn, settings, &host, (starter, identity));
        starts.push(host);
    }
    let due = turn.pool().workers().filter_map(|(host, _)| host.budget.due_at);
    let next_due = due.chain(turn.volatile.scheduler.pause_ends()).filter(|at| *at > turn.now()).min();
    Demand { starts, next_due }
}

fn is_stopped(host: &Session) -> bool {
    !host.lifecycle.holds_slot() && !is_restarting(host)
}

/// True if a host's last end was no failure: it had nothing to do, or its tmux server died.
fn has_ended_well(host: &Session) -> bool {
    matches!(host.lifecycle, Lifecycle::Parked | Lifecycle::Lost) || has_finished(host)
}

/// True if a host ended because it had nothing to do, with code 0, whether its exit or the loss of its pane was noticed
/// first.
fn has_finished(host: &Session) -> bool {
    host.lifecycle == Lifecycle::Stopped
        && matches!(host.reason, Some(Reason::Exited | Reason::TmuxGone | Reason::StartupMissingTmux))
        && host.exit.is_some_and(|exit| exit.code == Some(0))
}

/// The new budget of a host that ended. After a failure it has the time of the next start, or says that there is none;
/// this is decided once per end. After an end for lack of work it has no failures any more.
fn after_end(turn: &Turn<'_>, settings: &Settings, host: &Session) -> Option<Event> {
    if has_finished(host) && host.budget.failures > 0 {
        let budget = Budget { failures: 0, ..host.budget.clone() };
        return Some(Event::BudgetChanged { session: host.id, budget });
    }
    let decided = host.budget.due_at.is_some() || host.budget.exhausted;
    if decided || !is_stopped(host) || has_ended_well(host) || is_off(host) {
        return None;
    }
    Some(next_or_exhausted(turn.pool(), settings, host, turn.now()))
}

fn is_wanted(turn: &Turn<'_>, host: &Session) -> bool {
    let (pool, volatile, now) = (turn.pool(), &*turn.volatile, turn.now());
    let is_due = host.budget.due_at.map_or_else(|| has_ended_well(host), |at| at <= now);
    is_stopped(host)
        && is_due
        && !volatile.scheduler.holds_starts()
        && !host.budget.exhausted
        && !is_off(host)
        && !volatile.scheduler.is_starting(host.id)
        && !volatile.scheduler.is_paused(host.id, now)
        && !holds_back(pool, volatile, host.id)
        && has_message(pool, host, now)
}
