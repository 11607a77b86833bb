//! What is done about what a rule found.

use protocol::reap::{Action, Rule};
use protocol::session::Reason;
use protocol::{Event, Session, Timestamp};

use crate::admit;
use crate::budget;
use crate::settings::Settings;

/// A decision about a running session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What is done in the end: a restart of what was started again too often is only reported.
    pub action: Action,
    /// The facts, the finding first.
    pub events: Vec<Event>,
}

/// Decides on what a rule found in a running session.
#[must_use]
pub fn decide(settings: &Settings, session: &Session, (rule, evidence): (Rule, String), now: Timestamp) -> Decision {
    let wanted = super::rules::action(settings, Some(session), rule).0;
    let worn_out = wanted == Action::Restart && budget::allows(settings, session, now).is_err();
    let action = if worn_out { Action::Report } else { wanted };
    let evidence =
        if worn_out { format!("{evidence}; it was started again too often already") } else { evidence };
    let mut events = vec![Event::StaleFound { session: session.id, rule, action, evidence }];
    match action {
        Action::Kill => events.push(admit::put_aside(session, reason(rule))),
        Action::Restart => {
            events.push(admit::put_aside(session, reason(rule)));
            let budget = budget::next(settings, session, now);
            events.push(Event::BudgetChanged { session: session.id, budget });
        }
        // To put it aside it is first seen, within tmux, that nobody is attached.
        Action::Park | Action::Report => {}
    }
    Decision { action, events }
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
