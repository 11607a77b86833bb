//! Silence of running programs, by the modification times of their logs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Lifecycle, ProcId, Refusal, SessionId, Timestamp};

use tokio::time::Instant;
use world::processes::Processes;

use crate::engine::{Daemon, Turn, process_of};
use crate::host::blocking_pool::{Purpose, WORK_LIMIT};
use crate::host::files;

/// Time limit for reading all logs, and for each of them: a log that does not answer holds up the others no longer than
/// that.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// The log of a running session, and the start of its incarnation.
#[derive(Clone)]
struct RunningLog {
    session: SessionId,
    log: PathBuf,
    started_at: Timestamp,
    /// The process of the program, or else of its init.
    process: Option<ProcId>,
}

/// Samples since when running programs have written nothing, unless the last sample is recent. Programs whose
/// logs do not answer, or are missing, count as writing; so do those that have ended, whose silence says nothing.
pub(crate) async fn refresh(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    let context = Arc::clone(daemon);
    let Some(running_logs) = daemon.engine.turn(move |turn| running_logs(turn, &context)).await? else {
        return Ok(());
    };
    let (all, now, processes) = (running_logs.clone(), daemon.world.clock.now(), daemon.processes());
    let look = move || all.into_iter().filter_map(|log| written(log, &*processes, now)).collect();
    let place = (Purpose::Logs, daemon.paths.sessions.as_path());
    let found = match daemon.blocking.one_at_a_time(place, ANSWER_LIMIT, look).await {
        Some(found) => found,
        None => one_by_one(daemon, running_logs).await,
    };
    let note = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        let latest =
            |(session, times): (SessionId, [Timestamp; 2])| (session, turn.pool().latest(now, times));
        let quiet: BTreeMap<SessionId, Timestamp> = found.into_iter().map(latest).collect();
        turn.volatile.scheduler.note_quiet(quiet, now);
        if !turn.volatile.scheduler.waiting.is_empty() {
            // Requests that wait for a slot may find out that none will come free.
            turn.recheck();
        }
    };
    daemon.engine.turn(note).await
}

/// Looks at each log by itself, as one of them hangs.
async fn one_by_one(daemon: &Daemon, running_logs: Vec<RunningLog>) -> Vec<(SessionId, [Timestamp; 2])> {
    let (mut found, until) = (Vec::with_capacity(running_logs.len()), Instant::now() + WORK_LIMIT);
    for running_log in running_logs.into_iter().take_while(|_| Instant::now() < until) {
        let log = running_log.log.clone();
        let place = (Purpose::Logs, log.as_path());
        let (now, processes) = (daemon.world.clock.now(), daemon.processes());
        let look = move || written(running_log, &*processes, now);
        let look = daemon.blocking.one_at_a_time(place, ANSWER_LIMIT, look);
        found.extend(look.await.flatten());
    }
    found
}

/// Returns the logs of all running sessions; `None` if the last sample is recent.
fn running_logs(turn: &Turn<'_>, daemon: &Daemon) -> Option<Vec<RunningLog>> {
    if turn.volatile.scheduler.is_quiet_fresh(turn.now()) {
        return None;
    }
    let running =
        turn.pool().sessions().filter(|s| matches!(s.lifecycle, Lifecycle::Live | Lifecycle::Draining));
    let running_log = |session: &protocol::Session| {
        let log = daemon.paths.logs_of(session.id).join(protocol::logs::CURRENT);
        let run = session.incarnation.as_ref()?;
        let (started_at, process) = (run.started_at, process_of(run));
        Some(RunningLog { session: session.id, log, started_at, process })
    };
    Some(running.filter_map(running_log).collect())
}

fn written(
    running_log: RunningLog,
    processes: &dyn Processes,
    now: Timestamp,
) -> Option<(SessionId, [Timestamp; 2])> {
    let RunningLog { session, log, started_at, process } = running_log;
    let modified = files::last_written(&log, now)?;
    // Last: what was read before is of a living program.
    (!process.is_some_and(|process| processes.has_exited(process)))
        .then_some((session, [modified, started_at]))
}
