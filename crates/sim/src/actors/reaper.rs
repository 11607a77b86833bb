//! The reaper: ends what the daemon names, under a lease, and reports what it has proved.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::reap::{Candidate, CandidateKind, Lease, Outcome, Verdict};
use protocol::{ProcId, Request, Response, Role, Tag};
use tmux::{Driver, PaneRef};
use tokio::time::{Instant, sleep};

use crate::actors::doctor::REAPER;
use crate::client::Client;
use crate::land::Land;
use crate::rng::Rng;
use crate::world::machine::{Kind, Proc};

/// Pause before a candidate that is not gone is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// Beginning of the evidence of a session that was drained.
const DRAINED: &str = "it was drained";

/// End of the evidence of a silent worker without a claim.
const IDLE: &str = "and holds nothing";

/// Reaps, for ever.
pub(crate) async fn run(land: Land) {
    let mut rng = land.rng("reaper");
    loop {
        if !land.is_away(REAPER)
            && let Some(client) = Client::connect(&land.net, Role::Reaper, None).await
        {
            land.judge.helper(REAPER, true);
            reap(&land, client, &mut rng).await;
            land.judge.helper(REAPER, false);
        }
        sleep(Duration::from_millis(rng.between(50, 1500))).await;
    }
}

async fn reap(land: &Land, mut client: Client, rng: &mut Rng) -> Option<()> {
    let mut paused: BTreeMap<Tag, Instant> = BTreeMap::new();
    while !land.is_away(REAPER) {
        let Response::Candidates(found) =
            client.call(None, Request::NextCandidate { wait_ms: 5000 }).await?.ok()?
        else {
            return None;
        };
        paused.retain(|_, until| Instant::now() < *until);
        let is_empty = found.is_empty();
        let Some(candidate) = found.into_iter().find(|found| !paused.contains_key(&found.tag)) else {
            if !is_empty {
                sleep(Duration::from_millis(200)).await;
            }
            continue;
        };
        if land.suffers(rng, land.climate.helper_faults) {
            // It hangs, until the daemon gives it up.
            land.judge.count("fault:reaper-hangs");
            while client.frame().await.is_some() {}
            return None;
        }
        let (session, tag) = (candidate.session, candidate.tag);
        let Ok(Response::Lease(lease)) = client.call(None, Request::TakeLease { session, tag }).await? else {
            sleep(Duration::from_millis(200)).await;
            continue;
        };
        if land.suffers(rng, land.climate.helper_faults) {
            // It dies before it has done anything.
            return None;
        }
        let outcome = if land.suffers(rng, land.climate.helper_faults) {
            // It cannot read the table of processes.
            land.judge.count("fault:no-processes");
            Outcome::Untouched { why: "no processes".to_owned() }
        } else {
            end(land, &lease).await
        };
        if land.suffers(rng, land.climate.helper_faults) {
            // It dies before it reports.
            return None;
        }
        land.judge.count(format!("verdict:{:?}", lease.candidate.kind));
        if !outcome.is_gone() {
            paused.insert(tag, Instant::now() + PAUSE);
        }
        let verdict = Verdict { token: lease.token, session, tag, outcome };
        drop(client.call(None, Request::Settle(verdict)).await?);
    }
    None
}

/// Ends the processes of a candidate, and its pane.
async fn end(land: &Land, lease: &Lease) -> Outcome {
    let candidate = &lease.candidate;
    land.trace.tell(|| format!("reaper ends {:?} {} {}", candidate.kind, candidate.name, candidate.tag));
    let is_worker = candidate.kind == CandidateKind::StaleWorker;
    let own = || -> Vec<ProcId> {
        let living = land.machine.living().into_iter();
        let own = living.filter(|found| {
            is_worker && Some(found.id) == candidate.init || found.tag == Some(candidate.tag)
        });
        own.map(|found| found.id).collect()
    };
    let processes = own();
    check_strangers(land, candidate);
    check_rest(land, candidate);
    check_silence(land, candidate);
    processes.iter().for_each(|process| land.machine.hang_up(*process));
    await_end(own, candidate.grace_ms).await;
    own().into_iter().for_each(|process| land.machine.kill(process));
    await_end(own, lease.verify_ms).await;
    if candidate.remove_pane
        && let (Some(server), Some(pane)) = (candidate.server, candidate.pane)
    {
        let pane = PaneRef { server: server.into(), pane, tag: candidate.tag };
        if let Err(error) = land.tmux.kill_pane(pane).await
            && (!matches!(error, tmux::TmuxError::NoServer) || land.machine.lives(server.process))
        {
            return Outcome::Untouched { why: error.to_string() };
        }
    }
    let left: Vec<String> = own().iter().map(ToString::to_string).collect();
    if left.is_empty() { Outcome::Gone { killed: processes } } else { Outcome::Survivors { left } }
}

/// Waits until all processes have ended, for at most `limit_ms`, and never longer than a minute.
async fn await_end(left: impl Fn() -> Vec<ProcId>, limit_ms: u64) {
    let (limit, step) = (Duration::from_millis(limit_ms.min(60_000)), Duration::from_millis(100));
    let mut waited = Duration::ZERO;
    while !left().is_empty() && waited < limit {
        sleep(step).await;
        waited += step;
    }
}

/// Checks that no program of a person is named, and no worker for a claim of another timeline. While an adoption is in
/// doubt, its program may be: the reaper itself checks whose it is.
fn check_strangers(land: &Land, candidate: &Candidate) {
    // A process that is left of a claim of another timeline may be named as an orphan only.
    if land.judge.is_old_claim(candidate.tag) && candidate.kind != CandidateKind::Orphan {
        land.judge.violated(format!("P6: {}, of another timeline, is to be ended", candidate.evidence));
    }
    let named: Vec<ProcId> = candidate.init.into_iter().chain(candidate.agent).collect();
    let is_strange = |found: &Proc| found.kind == Kind::Foreign && found.tag.is_none();
    let strangers = land.machine.living().into_iter().filter(is_strange);
    let named_stranger = strangers.map(|found| found.id).find(|process| named.contains(process));
    if let Some(stranger) = named_stranger.filter(|_| !land.judge.has_adoptions()) {
        land.judge.violated(format!("P6: {stranger}, which is not the pool's, is to be ended"));
    }
}

/// Checks that a session that ends because it was drained is at rest, unless its program is over in any case.
fn check_rest(land: &Land, candidate: &Candidate) {
    let runs =
        candidate.init.is_some_and(|init| land.machine.lives(init)) && land.tmux.has_pane(candidate.tag);
    if candidate.evidence.starts_with(DRAINED) && runs {
        land.judge.ended_as_drained(candidate.tag);
    }
}

/// Checks that a worker that is to be ended for its silence is silent.
fn check_silence(land: &Land, candidate: &Candidate) {
    if let Some(worker) = candidate.init.filter(|_| candidate.kind == CandidateKind::StaleWorker) {
        land.judge.to_end_silent(worker, (candidate.tag, candidate.evidence.ends_with(IDLE)));
    }
}
