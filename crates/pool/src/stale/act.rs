//! What is done about what a rule found.

use protocol::policy::Budget;
use protocol::reap::{Action, Rule};
use protocol::session::Reason;
use protocol::{Event, Incarnation, Lifecycle, Session, Timestamp};

use crate::admit;
use crate::budget;
use crate::pool::Pool;
use crate::settings::Settings;
use crate::slots;

/// A decision about a running session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What is done in the end: what cannot be started again, or not by itself, is only reported.
    pub action: Action,
    /// The facts, the finding first.
    pub events: Vec<Event>,
}

/// Decides on what a rule found in a running session.
#[must_use]
pub fn decide(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    (rule, evidence): (Rule, String),
    now: Timestamp,
) -> Decision {
    let wanted = super::rules::action(settings, Some(session), rule).0;
    let against = against(pool, settings, session, wanted, now);
    let action = if against.is_some() { Action::Report } else { wanted };
    let evidence = match against {
        Some(why) => format!("{evidence}; not {}: {why}", wanted.as_str()),
        None => evidence,
    };
    let mut events = vec![Event::StaleFound { session: session.id, rule, action, evidence }];
    match action {
        Action::Kill => events.push(admit::put_aside(session, reason(rule))),
        Action::Restart => {
            events.push(admit::put_aside(session, reason(rule)));
            // As it will be at its end: that it ran well until now counts.
            let ended = Session { changed_at: now, ..session.clone() };
            let budget = budget::next(pool, settings, &ended, now);
            events.push(Event::BudgetChanged { session: session.id, budget });
        }
        // To put it aside it is first seen, within tmux, that nobody is attached.
        Action::Park | Action::Report => {}
    }
    Decision { action, events }
}

/// What speaks against it.
fn against(
    pool: &Pool,
    settings: &Settings,
    session: &Session,
    action: Action,
    now: Timestamp,
) -> Option<&'static str> {
    let adopted = session.incarnation.as_ref().is_some_and(Incarnation::is_adopted);
    match action {
        Action::Restart | Action::Park if adopted => Some("it was adopted, and could not be started again"),
        Action::Restart if budget::allows(pool, settings, session, now).is_err() => {
            Some("it was started again too often already")
        }
        Action::Park if session.policy.pinned => Some("it is pinned"),
        Action::Park if !slots::is_parkable(settings, session) => Some("it cannot take up where it was"),
        _ => None,
    }
}

/// Why a session ends for which a rule says so.
#[must_use]
pub fn reason(rule: Rule) -> Reason {
    match rule {
        Rule::Memory => Reason::MemoryLimit,
        Rule::Disk => Reason::DiskLimit,
        Rule::RunTime => Reason::RunTime,
        Rule::StaleAgent => Reason::StaleAgent,
        Rule::IdleSession => Reason::TooIdle,
        _ => Reason::Hung,
    }
}

/// The rule for which a session ends, where one ends it.
#[must_use]
pub fn rule_of(reason: Reason) -> Option<Rule> {
    super::rules::OF_SESSIONS.into_iter().find(|rule| self::reason(*rule) == reason)
}

/// It was to end for a rule, and goes on: somebody refused it.
#[must_use]
pub fn go_on(session: &Session) -> Vec<Event> {
    let ends = session.lifecycle == Lifecycle::Draining && session.reason.and_then(rule_of).is_some();
    let Some(incarnation) = session.incarnation.clone().filter(|_| ends) else { return Vec::new() };
    let live = Event::SessionLive { session: session.id, incarnation, recovered: session.recovered };
    let budget = Budget { due_at: None, ..session.budget.clone() };
    let kept = (budget != session.budget).then_some(Event::BudgetChanged { session: session.id, budget });
    std::iter::once(live).chain(kept).collect()
}
