//! One round of the reaper's rules: samples running sessions, decides, and parks.

use std::collections::BTreeSet;
use std::sync::Arc;

use pool::reap;
use protocol::reap::CandidateKind;
use protocol::{Lifecycle, PROMPT, Session, SessionId, Tag, Usage};
use world::processes::Processes;

use crate::effect::park;
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::sense::{machine_capacity, quiet, usage};

/// Samples, applies the rules, and starts their actions. `force` lifts the limit on kills. Returns false once
/// the engine has stopped.
pub(crate) async fn round(daemon: &Arc<Daemon>, force: bool) -> bool {
    if !sample(daemon).await {
        return false;
    }
    let context = Arc::clone(daemon);
    let decide = move |turn: &mut Turn<'_>| {
        let settings = context.settings();
        let named = reap::all_candidates(turn.pool(), turn.volatile, &settings, turn.now());
        reap::report_findings(turn, &settings, &named);
        // A worker becomes stale by age alone, without an event, so the waiting tasks are woken here.
        if named.iter().any(|candidate| candidate.kind == CandidateKind::StaleWorker) {
            turn.wake();
        }
        reap::evaluate_rules(turn, &settings, force)
    };
    let Ok(parks) = daemon.engine.turn(decide).await else { return false };
    park_all(daemon, parks);
    true
}

/// Samples processor time, logs, workers and the machine. Returns false once the engine has stopped.
pub(crate) async fn sample(daemon: &Arc<Daemon>) -> bool {
    let Ok(suspects) = daemon.engine.turn(|turn| suspects(turn)).await else { return false };
    let processes = daemon.processes();
    let used = if suspects.is_empty() {
        Vec::new()
    } else {
        daemon
            .blocking
            .with_timeout(Purpose::Processes, move || cpu(&*processes, &suspects))
            .await
            .unwrap_or_default()
    };
    let note = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        let (pool, volatile) = turn.state();
        volatile.reaping.note_cpu(pool, used, now);
        reap::note_silent_workers(turn);
    };
    daemon.engine.turn(note).await.is_ok()
        && quiet::refresh(daemon).await.is_ok()
        && machine_capacity::refresh(daemon).await.is_ok()
}

/// Returns the sessions that have work; only their processes are sampled.
fn suspects(turn: &Turn<'_>) -> Vec<Session> {
    let pool = turn.pool();
    let holds: BTreeSet<SessionId> =
        pool.held_messages().filter(|open| open.kind == PROMPT).map(|open| open.session).collect();
    let live = pool.sessions().filter(|s| s.lifecycle == Lifecycle::Live);
    live.filter(|s| holds.contains(&s.id) || pool.prompts(s.id).waiting > 0).cloned().collect()
}

fn cpu(processes: &dyn Processes, suspects: &[Session]) -> Vec<(SessionId, Tag, u64)> {
    let used = usage::of_sessions(processes, suspects);
    let cpu = |(s, used): (&Session, Option<Usage>)| Some((s.id, s.incarnation.as_ref()?.tag, used?.cpu_us));
    suspects.iter().zip(used).filter_map(cpu).collect()
}

/// Parks incarnations, each in a task of its own.
pub(crate) fn park_all(daemon: &Arc<Daemon>, parks: Vec<(SessionId, Tag)>) {
    for (session, tag) in parks {
        let (daemon, world) = (Arc::clone(daemon), daemon.world.clone());
        world.spawn("park", async move { drop(park::end_unattended(&daemon, session, tag).await) });
    }
}
