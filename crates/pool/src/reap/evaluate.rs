//! Evaluation of the rules over all running sessions: violations become events, and leases are reported.

use std::collections::BTreeSet;

use protocol::reap::{Action, Candidate, CandidateKind, Outcome, Rule};
use protocol::{Event, Reason, Session, SessionId, Tag};

use crate::reap::act::{Decision, continue_refused, end_reason};
use crate::reap::orphans::ended_owner;
use crate::reap::{act, candidates, gather, machine_rules, rules, state};
use crate::settings::Settings;
use crate::slots::park::begin_park;
use crate::turn::Turn;

/// Evaluates the rules, the most pressing first, and decides on each violation. Returns the incarnations to
/// park. `force` lifts the limit on kills.
pub fn evaluate_rules(turn: &mut Turn<'_>, settings: &Settings, force: bool) -> Vec<(SessionId, Tag)> {
    if turn.volatile.is_stopping() {
        return Vec::new();
    }
    let found = all_violations(turn, settings);
    let (mut parks, mut applied, mut held_back) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (id, rule, evidence) in found {
        // Looked up again, because an earlier rule of this round may have ended the session.
        let running = turn.pool().session(id).filter(|s| s.takes_prompts()).cloned();
        let Some(session) = running else { continue };
        if turn.volatile.scheduler.drained().contains(&id) {
            continue;
        }
        let Some(tag) = session.tag() else { continue };
        let Decision { action, events } = decide_violation(turn, settings, &session, (rule, evidence));
        let is_deferred = || turn.volatile.scheduler.is_parking_deferred(turn.pool(), id, turn.now());
        if action == Action::Park && is_deferred() {
            continue;
        }
        let (ends, mono) = (action != Action::Report, turn.mono());
        let asks = ends && !force;
        if asks && turn.volatile.reaping.was_refused((tag, rule), mono) {
            continue;
        }
        if asks && turn.volatile.reaping.kills_left(settings, mono) == 0 {
            held_back.insert(id);
            continue;
        }
        if asks && !turn.volatile.reaping.is_current((tag, rule), mono) {
            continue;
        }
        let is_new = applied.insert((tag, rule)) && !turn.volatile.reaping.has_applied((tag, rule));
        if !is_new && !ends {
            continue;
        }
        turn.emit_all(limit_exceeded(turn, &session, rule, ends));
        let evidence = reported_evidence(&events);
        turn.emit_all(events);
        if ends {
            evidence.into_iter().for_each(|evidence| turn.volatile.reaping.note_evidence(tag, evidence));
            turn.volatile.reaping.count_kill((tag, rule), mono);
            turn.volatile.reaping.forget_verdict(tag);
        }
        if action == Action::Park {
            let reason = if rule.is_about_machine() { end_reason(rule) } else { Reason::Idle };
            parks.extend(begin_park(turn, &session, reason));
        }
    }
    turn.volatile.reaping.evaluated(applied, held_back.len());
    parks
}

fn all_violations(turn: &Turn<'_>, settings: &Settings) -> Vec<(SessionId, Rule, String)> {
    let pool = turn.pool();
    gather::with_rule_inputs(pool, turn.volatile, turn.now(), |inputs| {
        let mut found = rules::violations(pool, settings, inputs);
        found.extend(machine_rules::machine_violations(pool, settings, inputs));
        found
    })
}

/// Decides on a violation. A session that only a person spoke to is not parked: its agent could not resume
/// that.
fn decide_violation(
    turn: &Turn<'_>,
    settings: &Settings,
    session: &Session,
    (rule, evidence): (Rule, String),
) -> Decision {
    let tag = session.tag();
    let by_hand = tag.is_some_and(|tag| turn.volatile.prompts.attended().contains(&tag))
        && session.conversation.as_ref().is_some_and(|conversation| !conversation.begun);
    let decision = act::decide(turn.pool(), settings, session, (rule, evidence.clone()), turn.now());
    if decision.action == Action::Park && by_hand {
        let evidence = format!("{evidence}; not parked: what a person said to it would be lost");
        let report = Event::StaleFound { session: session.id, rule, action: Action::Report, evidence };
        return Decision { action: Action::Report, events: vec![report] };
    }
    decision
}

/// The evidence as it is reported.
fn reported_evidence(events: &[Event]) -> Option<String> {
    events.iter().find_map(|event| match event {
        Event::StaleFound { evidence, .. } => Some(evidence.clone()),
        _ => None,
    })
}

/// The event of an exceeded limit, with its figures.
fn limit_exceeded(turn: &Turn<'_>, session: &Session, rule: Rule, ended: bool) -> Option<Event> {
    let run = session.incarnation.as_ref()?;
    let used = turn.volatile.reaping.used(run.tag).unwrap_or_default();
    let limits = &session.spec.limits;
    let (used, allowed) = match rule {
        Rule::Memory => (used.memory?, limits.memory?),
        Rule::Disk => (used.disk?, limits.disk?),
        Rule::RunTime => (protocol::time::millis(turn.age(run.started_at)), session.policy.max_runtime_ms?),
        _ => return None,
    };
    Some(Event::LimitExceeded { session: session.id, limit: rule.as_str().to_owned(), used, allowed, ended })
}

/// The running sessions that the rules would end now, each as a candidate with its evidence.
pub fn would_end(turn: &Turn<'_>, settings: &Settings) -> Vec<Candidate> {
    let mut named = BTreeSet::new();
    let candidate = |(id, rule, evidence): (SessionId, Rule, String)| {
        let session = turn.pool().session(id)?;
        let found = (rule, evidence.clone());
        let Decision { action, .. } = act::decide(turn.pool(), settings, session, found, turn.now());
        let run = session.incarnation.as_ref().filter(|_| action != Action::Report)?;
        if turn.volatile.reaping.was_refused((run.tag, rule), turn.mono()) || !named.insert(id) {
            return None;
        }
        Some(Candidate {
            session: id,
            name: session.name.clone(),
            kind: CandidateKind::Requested,
            evidence: format!("{evidence} ({})", action.as_str()),
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
    all_violations(turn, settings).into_iter().filter_map(candidate).collect()
}

/// Exempts candidates from the limit on kills.
pub fn force(turn: &mut Turn<'_>, candidates: &[Candidate]) {
    turn.volatile.reaping.force(candidates);
    turn.wake();
}

/// Handles a reaper's lease: the violation of a rule is reported, once.
pub fn lease_taken(turn: &mut Turn<'_>, candidate: &Candidate) {
    if let Some(rule) = candidate.rule.filter(|_| state::counts_as_kill(candidate)) {
        let now = turn.mono();
        turn.volatile.reaping.count_kill((candidate.tag, rule), now);
        report_once(turn, candidate, Action::Kill);
    }
}

/// Reports violations by candidates that are only to be reported, once each.
pub fn report_findings(turn: &mut Turn<'_>, settings: &Settings, named: &[Candidate]) {
    for candidate in named {
        if !candidates::is_to_end(turn.pool(), settings, candidate) {
            report_once(turn, candidate, Action::Report);
        }
    }
}

fn report_once(turn: &mut Turn<'_>, candidate: &Candidate, action: Action) {
    let Some(rule) = candidate.rule else { return };
    if turn.volatile.reaping.report_once((candidate.tag, rule)) {
        let (session, evidence) = (candidate.session, candidate.evidence.clone());
        turn.emit(Event::StaleFound { session, rule, action, evidence });
    }
}

/// Reports, once, a process with the tag of an ended incarnation that is left because it serves others.
pub fn report_spared_server(
    turn: &mut Turn<'_>,
    tag: Tag,
    (process, command, serves): (protocol::ProcId, &str, &str),
) {
    let Some(session) = ended_owner(turn.pool(), tag) else { return };
    if turn.volatile.reaping.report_once((tag, Rule::Orphans)) {
        let evidence = format!("process {} ({command}) {serves}, and is left", process.pid);
        turn.emit(Event::StaleFound { session, rule: Rule::Orphans, action: Action::Report, evidence });
    }
}

/// Handles the outcome of a lease. A session that a rule was to end goes on if the command before the kill
/// refused it.
pub fn lease_settled(turn: &mut Turn<'_>, candidate: &Candidate, outcome: &Outcome) {
    let now = turn.mono();
    turn.volatile.reaping.settled(candidate, outcome, now);
    if matches!(outcome, Outcome::Refused { .. }) && candidate.rule.is_some() {
        let session = turn.pool().tagged(candidate.tag);
        let its = session.filter(|_| candidate.kind == CandidateKind::Requested);
        let events = its.map(continue_refused).unwrap_or_default();
        turn.emit_all(events);
    }
}

/// Updates the workers that hold nothing and have no waiting request.
pub fn note_silent_workers(turn: &mut Turn<'_>) {
    let now = turn.now();
    let (pool, volatile) = turn.state();
    let silent = volatile.workers.silent(pool, now);
    volatile.reaping.note_silent_workers(silent);
}
