//! Candidates among the orphans.

use protocol::reap::{Candidate, CandidateKind, Rule};
use protocol::{Epoch, SessionId, Tag, Token};

use crate::pool::Pool;
use crate::reap::inputs::{ReapInputs, session_name};
use crate::reap::orphans::{OrphanClient, OrphanProcess, SilentWorker, ended_owner, is_silent};
use crate::settings::Settings;

pub(crate) fn orphan_candidates(pool: &Pool, settings: &Settings, inputs: &ReapInputs<'_>) -> Vec<Candidate> {
    let orphans = inputs.orphans;
    let marked = orphans.marked.iter().filter_map(|(tag, found)| marked_candidate(pool, inputs, *tag, found));
    let clients = orphans.clients.iter().map(|client| client_candidate(pool, inputs, *client));
    let is_over = |worker: &SilentWorker| inputs.exited.contains(&worker.process);
    let silent = orphans
        .workers
        .iter()
        .filter(|worker| is_silent(pool, settings, worker, inputs.now) && !is_over(worker));
    marked.chain(clients).chain(silent.map(|worker| worker_candidate(pool, inputs, worker))).collect()
}

fn marked_candidate(
    pool: &Pool,
    inputs: &ReapInputs<'_>,
    tag: Tag,
    found: &[OrphanProcess],
) -> Option<Candidate> {
    // The tag of a claim belongs to no session's incarnation.
    let session = ended_owner(pool, tag).or(tag.is_claim().then_some(SessionId(0)))?;
    let named: Vec<String> = found
        .iter()
        .filter(|orphan| orphan.serves.is_none())
        .map(|orphan| format!("{} ({})", orphan.process.pid, orphan.command))
        .collect();
    if named.is_empty() {
        return None;
    }
    let evidence =
        format!("its incarnation or claim has ended, and its marker is on process {}", named.join(", "));
    let kind = (CandidateKind::Orphan, Rule::Orphans);
    Some(process_candidate(pool, inputs, session, kind, (tag, evidence)))
}

fn client_candidate(pool: &Pool, inputs: &ReapInputs<'_>, client: OrphanClient) -> Candidate {
    let (pid, owner) = (client.process.pid, client.owner.pid);
    let evidence = format!("process {pid} is a tmux client of poold {owner}, which is dead");
    // A tmux client belongs to no session.
    let tag = Tag::for_claim(Token { epoch: Epoch(0), n: (1 << 63) | u64::from(client.process.pid) });
    let kind = (CandidateKind::StaleClient, Rule::StaleClient);
    Candidate {
        init: Some(client.process),
        agent: Some(client.process),
        ..process_candidate(pool, inputs, SessionId(0), kind, (tag, evidence))
    }
}

fn worker_candidate(pool: &Pool, inputs: &ReapInputs<'_>, worker: &SilentWorker) -> Candidate {
    let silent = pool.age(inputs.now, worker.last_seen_at).as_secs();
    let evidence = format!("{}, and holds nothing", worker.silence(silent));
    let kind = (CandidateKind::StaleWorker, Rule::StaleWorker);
    Candidate {
        init: Some(worker.process),
        agent: Some(worker.process),
        ..process_candidate(pool, inputs, worker.session, kind, (worker.tag(), evidence))
    }
}

/// Returns a candidate whose processes and pane are not known yet, for the caller to add.
pub(crate) fn process_candidate(
    pool: &Pool,
    inputs: &ReapInputs<'_>,
    session: SessionId,
    (kind, rule): (CandidateKind, Rule),
    (tag, evidence): (Tag, String),
) -> Candidate {
    Candidate {
        session,
        name: session_name(pool, session),
        kind,
        evidence,
        tag,
        server: None,
        pane: None,
        init: None,
        agent: None,
        grace_ms: inputs.grace_ms,
        remove_pane: false,
        cgroup: None,
        rule: Some(rule),
    }
}
