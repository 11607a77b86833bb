//! What should be dead, each with its evidence. The reaper asks for these and picks none by itself:
//! incarnations that are ending, what ended ones left, workers that fell silent. Whether a running session
//! should end is for the [`rules`]; what they decide drains, and is a candidate then.

pub mod act;
pub mod explain;
pub mod rules;
mod strays;

use std::collections::BTreeSet;

use protocol::reap::{Action, Candidate, CandidateKind, Rule};
use protocol::session::Reason;
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{
    Incarnation, Lifecycle, MessageState, Name, PaneId, ProcId, Session, SessionId, Tag, Timestamp,
};

use crate::pool::{Pool, is_between};
use crate::reconcile::{ABSENCE_PROOF, is_loss};
use crate::settings::Settings;

pub use strays::{Client, Stray, Strays, Worker, over, tag_of_generator};

/// What the shell knows beside the pool.
#[derive(Debug)]
pub struct Facts<'a> {
    /// tmux as last seen.
    pub state: &'a TmuxState,
    /// Processes of the records that are proved to have ended.
    pub exited: &'a BTreeSet<ProcId>,
    /// Now.
    pub now: Timestamp,
    /// When the last complete listing of a server that answered began.
    pub listed_from: Option<Timestamp>,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
    /// Sessions that have worked off what they had, and are still.
    pub drained: &'a BTreeSet<SessionId>,
    /// Processes that nothing of the pool's runs any more.
    pub strays: &'a Strays,
}

/// Everything that should be dead now, and is not only to be reported.
#[must_use]
pub fn candidates(pool: &Pool, settings: &Settings, facts: &Facts<'_>) -> Vec<Candidate> {
    let mut all = named(pool, settings, facts);
    all.retain(|candidate| is_to_end(pool, settings, candidate));
    all
}

/// The same, with what is only to be reported.
#[must_use]
pub fn named(pool: &Pool, settings: &Settings, facts: &Facts<'_>) -> Vec<Candidate> {
    let sessions = pool.sessions().filter_map(|s| of_session(pool, s, facts));
    let panes = facts.state.panes.iter().filter_map(|(id, pane)| of_pane(pool, facts, *id, pane));
    let strays = strays::candidates(pool, settings, facts);
    sessions.chain(panes).chain(workers(pool, facts)).chain(strays).collect()
}

/// Whether it is to be ended, not only reported.
#[must_use]
pub fn is_to_end(pool: &Pool, settings: &Settings, candidate: &Candidate) -> bool {
    let session = pool.session(candidate.session);
    // What a rule ends was decided when it drained.
    if candidate.kind == CandidateKind::Requested {
        return true;
    }
    candidate.rule.is_none_or(|rule| rules::action(settings, session, rule).0 != Action::Report)
}

/// Generators that were silent for longer than their lease and live on.
fn workers<'a>(pool: &'a Pool, facts: &'a Facts<'_>) -> impl Iterator<Item = Candidate> + 'a {
    let revoked = pool.held_messages().filter(|m| m.state == MessageState::Revoking);
    revoked.filter_map(|m| {
        let (token, process) = (m.token?, m.holder?.process?);
        Some(Candidate {
            session: m.session,
            name: pool.session(m.session).map_or_else(unnamed, |s| s.name.clone()),
            kind: CandidateKind::StaleWorker,
            evidence: format!("silent about message {} for longer than its lease", m.id),
            tag: Tag::for_claim(token),
            server: None,
            pane: None,
            // It is its own init: ended along with what it started.
            init: Some(process),
            agent: Some(process),
            grace_ms: facts.grace_ms,
            remove_pane: false,
            cgroup: None,
            rule: Some(Rule::StaleWorker),
        })
    })
}

fn of_session(pool: &Pool, session: &Session, facts: &Facts<'_>) -> Option<Candidate> {
    let incarnation = session.incarnation.as_ref()?;
    if session.lifecycle != Lifecycle::Draining {
        return None;
    }
    match session.reason? {
        Reason::Killed => {
            Some(candidate(session, incarnation, CandidateKind::Requested, "kill was asked for", facts))
        }
        Reason::Evicted | Reason::Idle | Reason::Parked => {
            let evidence = "its slot is to come free";
            Some(candidate(session, incarnation, CandidateKind::Requested, evidence, facts))
        }
        reason if act::rule_of(reason).is_some() => {
            let evidence = "a rule ends it";
            Some(candidate(session, incarnation, CandidateKind::Requested, evidence, facts))
        }
        Reason::Drained if facts.drained.contains(&session.id) || is_zombie(incarnation, facts) => {
            let evidence = "it was drained, and is over or has worked off its queue";
            Some(candidate(session, incarnation, CandidateKind::Requested, evidence, facts))
        }
        Reason::Restarted => {
            let named =
                candidate(session, incarnation, CandidateKind::Requested, "restart was asked for", facts);
            Some(Candidate { remove_pane: false, ..named })
        }
        // What has something left to work and cannot any more is over too.
        reason
            if (is_loss(reason) || reason == Reason::Drained)
                && is_left_over(pool, reason, incarnation, facts) =>
        {
            let evidence = "its pane is gone and its processes are left";
            Some(candidate(session, incarnation, CandidateKind::Leftover, evidence, facts))
        }
        Reason::Exited | Reason::Drained if is_zombie(incarnation, facts) => {
            let evidence = "its program ended and its pane is left";
            Some(candidate(session, incarnation, CandidateKind::ZombiePane, evidence, facts))
        }
        _ => None,
    }
}

/// It is proved missing, and its first process is known to live: its server is dead, or a complete
/// listing that began long enough after it was first missed lacks it too.
pub(crate) fn is_left_over(
    pool: &Pool,
    reason: Reason,
    incarnation: &Incarnation,
    facts: &Facts<'_>,
) -> bool {
    let looked = if reason == Reason::ServerGone { Some(facts.now) } else { facts.listed_from };
    let apart = |(since, looked): (Timestamp, Timestamp)| pool.age(looked, since) >= ABSENCE_PROOF;
    let seen = || facts.state.panes.values().any(|pane| pane.tag == Some(incarnation.tag));
    let missed = incarnation.missing_since.zip(looked).is_some_and(apart) && !seen();
    // One that drains says so to its end, and not that its server died.
    let cut_off = reason == Reason::Drained
        && incarnation.server.is_some_and(|server| facts.exited.contains(&server.process));
    (missed || cut_off) && incarnation.init.is_some_and(|init| !facts.exited.contains(&init))
}

/// The pane is closed, or its first process is over, which closes it.
pub(crate) fn is_zombie(incarnation: &Incarnation, facts: &Facts<'_>) -> bool {
    let seen = incarnation.pane.and_then(|id| facts.state.panes.get(&id));
    let dead = seen.is_some_and(|pane| pane.dead && pane.tag == Some(incarnation.tag));
    dead || incarnation.init.is_some_and(|init| facts.exited.contains(&init))
}

/// A pane that an ended incarnation left.
fn of_pane(pool: &Pool, facts: &Facts<'_>, id: PaneId, pane: &TmuxPane) -> Option<Candidate> {
    let tag = pane.tag?;
    let Server::Up(server) = facts.state.server else { return None };
    let over = |s: &&Session| !s.lifecycle.holds_slot() && !is_between(s);
    let session = match pool.tagged(tag) {
        Some(session) => Some(session).filter(over)?.id,
        None => pool.retired(tag)?,
    };
    Some(Candidate {
        session,
        name: pool.session(session).map_or_else(unnamed, |s| s.name.clone()),
        kind: CandidateKind::RetiredTag,
        evidence: "its incarnation is over and its pane is left".to_owned(),
        tag,
        server: Some(server),
        pane: Some(id),
        init: pane.process,
        agent: None,
        grace_ms: facts.grace_ms,
        remove_pane: true,
        cgroup: None,
        rule: Some(Rule::ZombiePane),
    })
}

fn candidate(
    session: &Session,
    run: &Incarnation,
    kind: CandidateKind,
    evidence: &str,
    facts: &Facts<'_>,
) -> Candidate {
    // What the record does not have yet, the last look may.
    let seen = facts.state.panes.iter().find(|(_, pane)| pane.tag == Some(run.tag));
    let server = if let Server::Up(server) = facts.state.server { Some(server) } else { None };
    Candidate {
        session: session.id,
        name: session.name.clone(),
        kind,
        evidence: evidence.to_owned(),
        tag: run.tag,
        server: run.server.or(seen.and(server)),
        pane: run.pane.or(seen.map(|(id, _)| *id)),
        init: run.init.or_else(|| seen.and_then(|(_, pane)| pane.process)),
        agent: run.agent,
        grace_ms: facts.grace_ms,
        remove_pane: true,
        cgroup: run.cgroup.clone(),
        rule: match kind {
            CandidateKind::Leftover => Some(Rule::Leftovers),
            CandidateKind::ZombiePane => Some(Rule::ZombiePane),
            _ => session.reason.and_then(act::rule_of),
        },
    }
}

/// Stands for the name of a session whose record is gone.
pub(crate) fn unnamed() -> Name {
    "removed".parse().unwrap_or_else(|_| unreachable!("a valid name"))
}
