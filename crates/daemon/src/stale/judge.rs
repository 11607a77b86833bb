//! What the rules say of running sessions, and what is done about it.

use std::collections::BTreeSet;

use pool::Settings;
use pool::stale::act::{self, Decision};
use pool::stale::rules;
use protocol::reap::{Action, Candidate, CandidateKind, Rule};
use protocol::session::Reason;
use protocol::{Event, Lifecycle, Session, SessionId, Tag};

use super::{MINUTE, count_kill, kills_left, with_signs};
use crate::context::Daemon;
use crate::engine::Turn;
use crate::slots;

/// Asks the rules, and does what they say. Answers what is to be put aside.
pub(crate) fn judge(turn: &mut Turn<'_>, daemon: &Daemon, force: bool) -> Vec<(SessionId, Tag)> {
    if turn.rest.view.ending {
        return Vec::new();
    }
    let settings = daemon.settings();
    let found = with_signs(turn, daemon, |turn, signs| rules::found(turn.pool(), &settings, signs));
    let (mut parks, mut told, mut waiting) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (id, rule, evidence) in found {
        // One that ended for the rule before is live no more.
        let live = turn.pool().session(id).filter(|s| s.lifecycle == Lifecycle::Live).cloned();
        let Some(session) = live else { continue };
        let Some(tag) = session.incarnation.as_ref().map(|run| run.tag) else { continue };
        let Decision { action, events } = decide(turn, &settings, &session, (rule, evidence));
        let ends = action != Action::Report;
        if ends && !force && was_refused(turn, (tag, rule)) {
            continue;
        }
        if ends && !force && kills_left(turn, &settings) == 0 {
            waiting.insert(id);
            continue;
        }
        let new = told.insert((tag, rule)) && !turn.rest.stale.told.contains(&(tag, rule));
        if !new && !ends {
            continue;
        }
        tracing::warn!(session = %id, rule = rule.word(), action = action.word(), "a rule applies");
        turn.emit_all(excess(turn, &session, rule, ends));
        let found = evidence_in(&events);
        turn.emit_all(events);
        if ends {
            turn.rest.stale.evidence.extend(found.map(|evidence| (tag, evidence)));
            count_kill(turn);
            turn.rest.view.verdicts.remove(&tag);
        }
        if action == Action::Park {
            parks.extend(slots::aside(turn, &session, Reason::Idle));
        }
    }
    (turn.rest.stale.told, turn.rest.stale.waiting) = (told, waiting.len());
    parks
}

/// What is done about it. What was said by hand alone could not be taken up again.
fn decide(
    turn: &mut Turn<'_>,
    settings: &Settings,
    session: &Session,
    (rule, evidence): (Rule, String),
) -> Decision {
    let tag = session.incarnation.as_ref().map(|run| run.tag);
    let by_hand = tag.is_some_and(|tag| turn.rest.view.touched.contains(&tag))
        && session.conversation.as_ref().is_some_and(|conversation| !conversation.begun);
    let decision = act::decide(turn.pool(), settings, session, (rule, evidence.clone()), turn.now());
    if decision.action == Action::Park && by_hand {
        let evidence = format!("{evidence}; not park: what was said to it by hand would be lost");
        let told = Event::StaleFound { session: session.id, rule, action: Action::Report, evidence };
        return Decision { action: Action::Report, events: vec![told] };
    }
    decision
}

/// What speaks for it, as it is told.
fn evidence_in(events: &[Event]) -> Option<String> {
    events.iter().find_map(|event| match event {
        Event::StaleFound { evidence, .. } => Some(evidence.clone()),
        _ => None,
    })
}

/// Whether the command before said no within the last minute.
fn was_refused(turn: &Turn<'_>, found: (Tag, Rule)) -> bool {
    let now = turn.mono();
    turn.rest.stale.refused.get(&found).is_some_and(|at| at.until(now) < MINUTE)
}

/// What sessions would be ended now, each as a candidate with the evidence.
pub(crate) fn would_end(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<Candidate> {
    let settings = daemon.settings();
    let found = with_signs(turn, daemon, |turn, signs| rules::found(turn.pool(), &settings, signs));
    let mut named = BTreeSet::new();
    let candidate = |(id, rule, evidence): (SessionId, Rule, String)| {
        let session = turn.pool().session(id)?;
        let Decision { action, .. } =
            act::decide(turn.pool(), &settings, session, (rule, evidence.clone()), turn.now());
        let run = session.incarnation.as_ref().filter(|_| action != Action::Report)?;
        if was_refused(turn, (run.tag, rule)) || !named.insert(id) {
            return None;
        }
        Some(Candidate {
            session: id,
            name: session.name.clone(),
            kind: CandidateKind::Requested,
            evidence: format!("{evidence} ({})", action.word()),
            tag: run.tag,
            server: run.server,
            pane: run.pane,
            init: run.init,
            agent: run.agent,
            grace_ms: settings.grace_ms,
            remove_pane: true,
            cgroup: run.cgroup.clone(),
            rule: Some(rule),
        })
    };
    found.into_iter().filter_map(candidate).collect()
}

/// What goes over a limit is told with its figures.
fn excess(turn: &Turn<'_>, session: &Session, rule: Rule, ended: bool) -> Option<Event> {
    let run = session.incarnation.as_ref()?;
    let used = turn.rest.stale.used.get(&run.tag).copied().unwrap_or_default();
    let limits = &session.spec.limits;
    let (used, allowed) = match rule {
        Rule::Memory => (used.memory?, limits.memory?),
        Rule::Disk => (used.disk?, limits.disk?),
        Rule::RunTime => (protocol::time::millis(turn.age(run.started_at)), session.policy.max_runtime_ms?),
        _ => return None,
    };
    Some(Event::LimitExceeded { session: session.id, limit: rule.word().to_owned(), used, allowed, ended })
}
