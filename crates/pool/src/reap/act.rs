//! The consequences of a violated rule.

use protocol::policy::Budget;
use protocol::reap::{Action, Rule};
use protocol::{Event, Incarnation, Lifecycle, Reason, Session, Timestamp};

use crate::pool::Pool;
use crate::reap::machine::MACHINE_RULES;
use crate::reap::rules;
use crate::reap::rules::SESSION_RULES;
use crate::session::lifecycle::begin_end;
use crate::session::restart_budget;
use crate::settings::Settings;
use crate::slots::eviction;

/// A decision about a running session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The action. If there is an objection to the configured one, such as a loss that could not be undone, it is
    /// `report`.
    pub action: Action,
    /// The events, the finding first.
    pub events: Vec<Event>,
}

/// Decides on a running session that violates a rule.
#[must_use]
pub fn decide(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    (rule, evidence): (Rule, String),
    now: Timestamp,
) -> Decision {
    let drains = session.lifecycle == Lifecycle::Draining;
    let wanted = match rules::rule_action(settings, Some(session), rule).0 {
        Action::Restart | Action::Park if drains => Action::Kill,
        wanted => wanted,
    };
    let against = objection(pool, settings, session, wanted, now);
    let action = if against.is_some() { Action::Report } else { wanted };
    let evidence = match against {
        Some(why) => format!("{evidence}; not {}: {why}", wanted.as_str()),
        None => evidence,
    };
    let mut events = vec![Event::StaleFound { session: session.id, rule, action, evidence }];
    match action {
        // The session is draining, so it does not run again. With this reason the operator's command is not asked
        // whether it may end.
        Action::Kill if drains => events.push(begin_end(session, Reason::DrainDeadline)),
        Action::Kill => events.push(begin_end(session, end_reason(rule))),
        Action::Restart => {
            events.push(begin_end(session, end_reason(rule)));
            // The budget is computed as if the session ended now, so that its run time up to now counts.
            let ended = Session { changed_at: now, ..session.clone() };
            let budget = restart_budget::next_budget(pool, settings, &ended, now);
            events.push(Event::BudgetChanged { session: session.id, budget });
        }
        // A session is only parked once tmux has shown that no client is attached.
        Action::Park | Action::Report => {}
    }
    Decision { action, events }
}

/// The reason against an action.
fn objection(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    action: Action,
    now: Timestamp,
) -> Option<&'static str> {
    let adopted = session.incarnation.as_ref().is_some_and(Incarnation::is_adopted);
    match action {
        Action::Restart | Action::Park if adopted => Some("it was adopted, and could not be started again"),
        Action::Restart if restart_budget::check_restarts(pool, settings, session, now).is_err() => {
            Some("it was started too often already")
        }
        Action::Park if session.policy.pinned => Some("it is pinned"),
        Action::Park if !eviction::is_parkable(settings, session) => {
            Some("its agent cannot resume its conversation")
        }
        _ => None,
    }
}

/// The reason of a session that a rule ends.
pub fn end_reason(rule: Rule) -> Reason {
    match rule {
        Rule::Memory => Reason::MemoryLimit,
        Rule::Disk => Reason::DiskLimit,
        Rule::RunTime => Reason::RunTime,
        Rule::StaleAgent => Reason::StaleAgent,
        Rule::IdleSession => Reason::TooIdle,
        Rule::HostMemory => Reason::HostMemory,
        Rule::HostDisk => Reason::HostDisk,
        _ => Reason::Hung,
    }
}

/// The rule that ends a session with this reason.
pub fn rule_of(reason: Reason) -> Option<Rule> {
    SESSION_RULES.into_iter().chain(MACHINE_RULES).find(|rule| end_reason(*rule) == reason)
}

/// Returns the events of a session's removal. If only this session's own policy says to leave its orphans, its tags are
/// forgotten as well: otherwise the orphans would be found by the tags and ended.
#[must_use]
pub fn leave_orphans(pool: &Pool, settings: &Settings, session: &Session, events: Vec<Event>) -> Vec<Event> {
    let is_left = |session| rules::rule_action(settings, session, Rule::Orphans).0 == Action::Report;
    if !is_left(Some(session)) || is_left(None) {
        return events;
    }
    let forgotten = pool.retired_tags().filter(|tag| pool.retired(*tag) == Some(session.id));
    let kept = events.into_iter().filter(|event| !matches!(event, Event::TagRetired { .. }));
    kept.chain(forgotten.map(Event::TagForgotten)).collect()
}

/// Makes a session live again that a rule was to end, because the operator's command `before` refused that.
#[must_use]
pub(crate) fn continue_refused(session: &Session) -> Vec<Event> {
    let ends = session.lifecycle == Lifecycle::Draining && session.reason.and_then(rule_of).is_some();
    let Some(incarnation) = session.incarnation.clone().filter(|_| ends) else { return Vec::new() };
    let live = Event::SessionLive { session: session.id, incarnation, recovered: session.recovered };
    let budget = Budget { due_at: None, ..session.budget.clone() };
    let kept = (budget != session.budget).then_some(Event::BudgetChanged { session: session.id, budget });
    std::iter::once(live).chain(kept).collect()
}
