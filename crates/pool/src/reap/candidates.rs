//! Candidates of the reaper, each with its evidence: incarnations that are ending, panes and processes that
//! ended ones left, workers that fell silent. The reaper never picks by itself. Running sessions are judged
//! by [`crate::reap::rules`]; one that a rule ends drains, and is a candidate from then on.

use protocol::reap::{Action, Candidate, CandidateKind, Rule};
use protocol::tmux::{Server, TmuxPane};
use protocol::{Incarnation, Lifecycle, MessageState, PaneId, Reason, Session, Tag, Timestamp};

use crate::clock::Moment;
use crate::observe::reconcile::{ABSENCE_PROOF, runs_on};
use crate::pool::Pool;
use crate::reap::act::rule_of;
use crate::reap::inputs::ReapInputs;
use crate::reap::orphan_candidates::{orphan_candidates, process_candidate};
use crate::reap::orphans::ended_owner;
use crate::reap::rules;
use crate::session::lifecycle::is_loss;
use crate::settings::Settings;
use crate::worker::host::is_hosted;

/// All candidates, including those that are only to be reported.
pub fn find_candidates(pool: &Pool, settings: &Settings, inputs: &ReapInputs<'_>) -> Vec<Candidate> {
    let sessions = pool.sessions().filter_map(|s| session_candidate(pool, s, inputs));
    let panes = inputs.state.panes.iter().filter_map(|(id, pane)| pane_candidate(pool, inputs, *id, pane));
    let orphans = orphan_candidates(pool, settings, inputs);
    sessions.chain(panes).chain(revoked_workers(pool, inputs)).chain(orphans).collect()
}

/// True if a candidate is to be ended, not only reported.
pub fn is_to_end(pool: &Pool, settings: &Settings, candidate: &Candidate) -> bool {
    let session = pool.session(candidate.session);
    // If a rule ends the session, that was decided when the session began to drain.
    if candidate.kind == CandidateKind::Requested {
        return true;
    }
    candidate.rule.is_none_or(|rule| rules::rule_action(settings, session, rule).0 != Action::Report)
}

/// Registered workers that outlived the lease on a message, and are to be ended.
fn revoked_workers<'a>(pool: &'a Pool, inputs: &'a ReapInputs<'_>) -> impl Iterator<Item = Candidate> + 'a {
    let revoked = pool.held_messages().filter(|m| m.state == MessageState::Revoking);
    revoked.filter_map(|m| {
        let (token, process) = (m.token?, m.holder?.process?);
        // A dead host of a worker is no candidate here: its session's end is proved like any other, and frees the
        // messages.
        if inputs.exited.contains(&process) && is_hosted(pool, m.holder) {
            return None;
        }
        let evidence = format!("silent about message {} for longer than its lease", m.id);
        let kind = (CandidateKind::StaleWorker, Rule::StaleWorker);
        Some(Candidate {
            // A worker counts as its own init: it is ended together with what it started.
            init: Some(process),
            agent: Some(process),
            ..process_candidate(pool, inputs, m.session, kind, (Tag::for_claim(token), evidence))
        })
    })
}

fn session_candidate(pool: &Pool, session: &Session, inputs: &ReapInputs<'_>) -> Option<Candidate> {
    let incarnation = session.incarnation.as_ref()?;
    if session.lifecycle != Lifecycle::Draining {
        return None;
    }
    let reason = session.reason?;
    let requested = |evidence| (CandidateKind::Requested, evidence);
    let (kind, evidence) = match reason {
        Reason::Killed => requested("kill was requested"),
        Reason::DrainDeadline => requested("its drain is over: its deadline, a limit or a rule ends it"),
        reason if reason.parks() => requested("it is being parked"),
        reason if rule_of(reason).is_some() => requested("a rule ends it"),
        Reason::Drained if inputs.drained.contains(&session.id) || is_zombie(incarnation, inputs) => {
            requested("it was drained, and has ended or worked off its queue")
        }
        Reason::Restarted => requested("restart was requested"),
        // Left over is also a draining session whose server died, and a session that has been missing since its
        // program ended.
        reason
            if (is_loss(reason) || matches!(reason, Reason::Drained | Reason::Exited))
                && is_left_over(pool, reason, incarnation, inputs) =>
        {
            (CandidateKind::Leftover, "its pane is gone and its processes are left")
        }
        // If the pane is missing and the program lives, it is no zombie: it is named as left over once a second look
        // proves that.
        Reason::Exited
            if is_zombie(incarnation, inputs)
                && !(incarnation.missing_since.is_some()
                    && !is_seen(incarnation, inputs)
                    && runs_on(incarnation, inputs.exited)) =>
        {
            (CandidateKind::ZombiePane, "its program ended and its pane is left")
        }
        _ => return None,
    };
    let named = incarnation_candidate(session, incarnation, kind, evidence, inputs);
    // The pane of a session that restarts stays: the start of the next incarnation still needs it.
    Some(Candidate { remove_pane: named.remove_pane && reason != Reason::Restarted, ..named })
}

/// True if an incarnation is proved missing and its init or its program is known to live: its server is dead,
/// or a complete listing that began long enough after it was first missed lacks it too.
pub(crate) fn is_left_over(
    pool: &Pool,
    reason: Reason,
    incarnation: &Incarnation,
    inputs: &ReapInputs<'_>,
) -> bool {
    let moment = |at| pool.moment(inputs.now, at);
    let looked = if reason == Reason::ServerGone { Some(moment(inputs.now)) } else { inputs.listed_from };
    let apart = |(since, looked): (Timestamp, Moment)| moment(since).until(looked) >= ABSENCE_PROOF;
    let missed = incarnation.missing_since.zip(looked).is_some_and(apart) && !is_seen(incarnation, inputs);
    // A draining session keeps its reason when its server dies.
    let cut_off = reason == Reason::Drained
        && incarnation.server.is_some_and(|server| inputs.exited.contains(&server.process));
    (missed || cut_off) && runs_on(incarnation, inputs.exited)
}

/// True if the last observation shows its pane.
fn is_seen(incarnation: &Incarnation, inputs: &ReapInputs<'_>) -> bool {
    inputs.state.tagged_pane(incarnation.tag).is_some()
}

/// True if the pane is closed, or its init has ended, which closes it.
pub(crate) fn is_zombie(incarnation: &Incarnation, inputs: &ReapInputs<'_>) -> bool {
    let seen = incarnation.pane.and_then(|id| inputs.state.panes.get(&id));
    let dead = seen.is_some_and(|pane| pane.dead && pane.tag == Some(incarnation.tag));
    dead || incarnation.init.is_some_and(|init| inputs.exited.contains(&init))
}

/// A pane that an ended incarnation left.
fn pane_candidate(pool: &Pool, inputs: &ReapInputs<'_>, id: PaneId, pane: &TmuxPane) -> Option<Candidate> {
    let tag = pane.tag?;
    let Server::Up(server) = inputs.state.server else { return None };
    let session = ended_owner(pool, tag)?;
    let evidence = "its incarnation is over and its pane is left".to_owned();
    let kind = (CandidateKind::RetiredTag, Rule::ZombiePane);
    Some(Candidate {
        server: Some(server),
        pane: Some(id),
        init: pane.process,
        remove_pane: true,
        ..process_candidate(pool, inputs, session, kind, (tag, evidence))
    })
}

fn incarnation_candidate(
    session: &Session,
    run: &Incarnation,
    kind: CandidateKind,
    evidence: &str,
    inputs: &ReapInputs<'_>,
) -> Candidate {
    // The last observation may complete the record.
    let seen = inputs.state.tagged_pane(run.tag);
    let server = if let Server::Up(server) = inputs.state.server { Some(server) } else { None };
    Candidate {
        session: session.id,
        name: session.name.clone(),
        kind,
        evidence: evidence.to_owned(),
        tag: run.tag,
        server: run.server.or(seen.and(server)),
        pane: run.pane.or(seen.map(|(id, _)| id)),
        init: run.init.or_else(|| seen.and_then(|(_, pane)| pane.process)),
        agent: run.agent,
        grace_ms: inputs.grace_ms,
        remove_pane: true,
        cgroup: run.cgroup.clone(),
        rule: match kind {
            CandidateKind::Leftover => Some(Rule::Leftovers),
            CandidateKind::ZombiePane => Some(Rule::ZombiePane),
            _ => session.reason.and_then(rule_of),
        },
    }
}
