//! What the shell found among the machine's processes and connections that nothing of the pool's runs any more:
//! processes with the mark of something that is over, tmux clients of a dead daemon, workers that say nothing.

use std::collections::BTreeMap;

use protocol::ids::GeneratorId;
use protocol::reap::{Candidate, CandidateKind, Rule};
use protocol::{ProcId, Session, SessionId, Tag, Timestamp, Token};

use super::{Facts, unnamed};
use crate::pool::{Pool, is_between};
use crate::settings::Settings;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strays {
    /// Processes by the mark in their environment, seen in two looks; without those that serve others.
    pub marked: BTreeMap<Tag, Vec<Stray>>,
    /// tmux clients whose daemon is dead.
    pub clients: Vec<Client>,
    /// Workers that are connected, and of which nothing was heard lately.
    pub workers: Vec<Worker>,
}

/// A process with a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// Which.
    pub process: ProcId,
    /// Its name, for people.
    pub command: String,
    /// What it serves others with, where it does.
    pub serves: Option<String>,
}

/// A tmux client of a dead daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The client.
    pub process: ProcId,
    /// Whose it was.
    pub owner: ProcId,
}

/// A worker that is registered, and asks for nothing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// Which.
    pub id: GeneratorId,
    /// The session whose messages it works.
    pub session: SessionId,
    /// Its process.
    pub process: ProcId,
    /// When it last spoke.
    pub heard_at: Timestamp,
}

/// The tag under which a worker that holds nothing is named to the reaper: the token of no claim, because those
/// count from 1.
#[must_use]
pub fn tag_of_generator(id: GeneratorId) -> Tag {
    Tag::for_claim(Token { epoch: protocol::Epoch(0), n: id.0 })
}

pub(super) fn candidates(pool: &Pool, settings: &Settings, facts: &Facts<'_>) -> Vec<Candidate> {
    let marked = facts.strays.marked.iter().filter_map(|(tag, found)| of_mark(pool, facts, *tag, found));
    let clients = facts.strays.clients.iter().map(|client| of_client(pool, facts, *client));
    let silent = facts.strays.workers.iter().filter(|worker| is_silent(pool, settings, worker, facts.now));
    marked.chain(clients).chain(silent.map(|worker| of_worker(pool, facts, worker))).collect()
}

/// Whether nothing was heard of it for longer than it may be silent.
pub(crate) fn is_silent(pool: &Pool, settings: &Settings, worker: &Worker, now: Timestamp) -> bool {
    pool.age(now, worker.heard_at) > settings.reap.stale_worker
}

/// The session of an incarnation, or of a claim, that is over.
#[must_use]
pub fn over(pool: &Pool, tag: Tag) -> Option<SessionId> {
    let ended = |s: &&Session| !s.lifecycle.holds_slot() && !is_between(s);
    match pool.tagged(tag) {
        Some(session) => Some(session).filter(ended).map(|s| s.id),
        None => pool.retired(tag),
    }
}

fn of_mark(pool: &Pool, facts: &Facts<'_>, tag: Tag, found: &[Stray]) -> Option<Candidate> {
    // The marks of claims belong to no session's incarnation.
    let ours = over(pool, tag).or(tag.is_claim().then_some(SessionId(0)))?;
    let named: Vec<String> = found
        .iter()
        .filter(|stray| stray.serves.is_none())
        .map(|stray| format!("{} ({})", stray.process.pid, stray.command))
        .collect();
    if named.is_empty() {
        return None;
    }
    let evidence = format!("what it was part of is over, and its mark is on process {}", named.join(", "));
    Some(processes(pool, facts, ours, (CandidateKind::Orphan, Rule::Orphans), (tag, evidence)))
}

fn of_client(pool: &Pool, facts: &Facts<'_>, client: Client) -> Candidate {
    let (pid, owner) = (client.process.pid, client.owner.pid);
    let evidence = format!("process {pid} is a tmux client of poold {owner}, which is dead");
    // It belongs to no session.
    let tag =
        Tag::for_claim(Token { epoch: protocol::Epoch(0), n: (1 << 63) | u64::from(client.process.pid) });
    let what = (CandidateKind::StaleClient, Rule::StaleClient);
    Candidate {
        init: Some(client.process),
        agent: Some(client.process),
        ..processes(pool, facts, SessionId(0), what, (tag, evidence))
    }
}

fn of_worker(pool: &Pool, facts: &Facts<'_>, worker: &Worker) -> Candidate {
    let silent = pool.age(facts.now, worker.heard_at).as_secs();
    let evidence = format!("worker {} holds nothing and was silent for {silent} s", worker.id.0);
    let what = (CandidateKind::StaleWorker, Rule::StaleWorker);
    Candidate {
        init: Some(worker.process),
        agent: Some(worker.process),
        ..processes(pool, facts, worker.session, what, (tag_of_generator(worker.id), evidence))
    }
}

fn processes(
    pool: &Pool,
    facts: &Facts<'_>,
    session: SessionId,
    (kind, rule): (CandidateKind, Rule),
    (tag, evidence): (Tag, String),
) -> Candidate {
    Candidate {
        session,
        name: pool.session(session).map_or_else(unnamed, |s| s.name.clone()),
        kind,
        evidence,
        tag,
        server: None,
        pane: None,
        init: None,
        agent: None,
        grace_ms: facts.grace_ms,
        remove_pane: false,
        cgroup: None,
        rule: Some(rule),
    }
}
