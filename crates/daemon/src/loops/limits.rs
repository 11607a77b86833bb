//! Limits that no control group enforces, run times, and lost log writers, sampled at intervals that depend
//! on their use.

use std::sync::Arc;
use std::time::Duration;

use pool::reap::ResourceUse;
use protocol::{Event, Session, Tag, Usage};
use tokio::time::{Instant, sleep, timeout};

use world::processes::Processes;

use crate::effect::{cgroup, reap_round};
use crate::engine::{Daemon, Turn, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::disk_usage::disk_usage_at_least;
use crate::sense::quiet;
use crate::sense::usage;

/// Time between two samples if a session has limits.
const LIMITED_PAUSE: Duration = Duration::from_secs(1);

/// Time between two samples otherwise.
const UNLIMITED_PAUSE: Duration = Duration::from_secs(5);

/// Time between two checks of all log writers.
const WRITERS_PAUSE: Duration = Duration::from_secs(10);

/// Time for counting the files of one session; files counted by then are the result.
const DISK_LIMIT: Duration = Duration::from_secs(10);

/// Time to wait for the result of such a count. The usage of a directory that does not answer is unknown.
const DISK_ANSWER: Duration = Duration::from_secs(11);

/// Idle time after a disk scan, as a multiple of the scan's duration (bounds the load to 1/11).
const DISK_REST: u32 = 10;

/// Time that a new incarnation has to start its log writer.
const WRITER_START_LIMIT: Duration = Duration::from_secs(5);

/// Samples until the daemon ends.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(memory_and_run_time(&daemon), disks(&daemon), log_writers(&daemon));
}

/// Returns the sessions that run, also those that work off their queues; none once the engine has stopped.
async fn live_sessions(daemon: &Daemon) -> Option<Vec<Session>> {
    let live = |turn: &mut Turn<'_>| {
        let sessions = turn.pool().sessions().filter(|s| s.takes_prompts());
        sessions.cloned().collect::<Vec<Session>>()
    };
    daemon.engine.turn(live).await.ok()
}

/// Enforces run times, and memory limits that no control group enforces. Does not wait for disks.
async fn memory_and_run_time(daemon: &Arc<Daemon>) {
    while let Some(sessions) = live_sessions(daemon).await {
        cgroup::refresh(daemon).await;
        let limited: Vec<Session> = sessions.into_iter().filter(has_limits).collect();
        let pause = if limited.is_empty() { UNLIMITED_PAUSE } else { LIMITED_PAUSE };
        // Only sessions with a memory limit are measured, so that a hanging process of any other session delays
        // nothing.
        let limited: Vec<Session> = limited.into_iter().filter(|s| s.spec.limits.memory.is_some()).collect();
        let processes = daemon.processes();
        let measured = if !limited.is_empty() {
            daemon
                .blocking
                .with_timeout(Purpose::Processes, move || memory_usage(&*processes, &limited))
                .await
        } else {
            Some(Vec::new())
        };
        match measured {
            Some(samples) if pause == LIMITED_PAUSE => apply_samples(daemon, samples).await,
            Some(_) => {}
            None => tracing::warn!("the process table does not answer: memory limits are not checked"),
        }
        sleep(pause).await;
    }
}

/// Enforces disk limits, one session after the other, with a rest in proportion to the time that counting
/// takes.
async fn disks(daemon: &Arc<Daemon>) {
    while let Some(sessions) = live_sessions(daemon).await {
        let limited: Vec<Session> = sessions.into_iter().filter(|s| s.spec.limits.disk.is_some()).collect();
        let mut rest = if limited.is_empty() { UNLIMITED_PAUSE } else { LIMITED_PAUSE };
        for session in limited {
            let began = Instant::now();
            let Some(tag) = session.tag() else { continue };
            let dir = session.dir.clone();
            let count = move || disk_usage_at_least(dir.as_path(), Instant::now() + DISK_LIMIT);
            let place = (Purpose::DiskLimits, session.dir.as_path());
            let counted = daemon.blocking.one_at_a_time(place, DISK_ANSWER, count).await;
            let unread = counted.is_some_and(|counted| counted.unread);
            let used = ResourceUse { disk: counted.map(|counted| counted.bytes), unread, memory: None };
            apply_samples(daemon, vec![(tag, used)]).await;
            // A count adds a multiple of its time to the pause; a directory that does not answer adds only the time
            // that was waited for it.
            rest += began.elapsed().min(DISK_LIMIT) * if counted.is_some() { DISK_REST } else { 1 };
        }
        sleep(rest).await;
    }
}

/// Replaces lost log writers.
async fn log_writers(daemon: &Arc<Daemon>) {
    while let Some(sessions) = live_sessions(daemon).await {
        for session in sessions {
            timeout(WRITERS_PAUSE, replace_lost_writer(daemon, &session)).await.ok();
        }
        sleep(WRITERS_PAUSE).await;
    }
}

/// Records the usage of sessions, and evaluates the rules on it.
async fn apply_samples(daemon: &Arc<Daemon>, samples: Vec<(Tag, ResourceUse)>) {
    let context = Arc::clone(daemon);
    if quiet::refresh(daemon).await.is_err() {
        return;
    }
    let judge = move |turn: &mut Turn<'_>| {
        let mono = turn.mono();
        samples.into_iter().for_each(|(tag, sample)| turn.volatile.reaping.note_used(tag, sample, mono));
        pool::reap::evaluate_rules(turn, &context.settings(), false)
    };
    if let Ok(parks) = daemon.engine.turn(judge).await {
        reap_round::park_all(daemon, parks);
    }
}

/// True if the session has a limit that is sampled.
fn has_limits(session: &Session) -> bool {
    let limits = &session.spec.limits;
    limits.memory.is_some() || limits.disk.is_some() || session.policy.max_runtime_ms.is_some()
}

/// Returns the memory in use by the sessions that have a limit for it.
fn memory_usage(processes: &dyn Processes, limited: &[Session]) -> Vec<(Tag, ResourceUse)> {
    let memory = |(s, used): (&Session, Option<Usage>)| {
        let tag = s.incarnation.as_ref()?.tag;
        Some((tag, ResourceUse { memory: Some(used?.memory), ..ResourceUse::default() }))
    };
    limited.iter().zip(usage::of_sessions(processes, limited)).filter_map(memory).collect()
}

/// Starts another log writer for a session that has lost its own.
async fn replace_lost_writer(daemon: &Arc<Daemon>, session: &Session) {
    let id = session.id;
    let Some(run) = session.incarnation.clone() else { return };
    let young = daemon.age(run.started_at).await.is_ok_and(|age| age < WRITER_START_LIMIT);
    let Some(pane) = pane_of(&run).filter(|_| !young && !run.dead) else { return };
    let log = daemon.log_options(id);
    let (dir, processes) = (log.dir.clone(), daemon.processes());
    if daemon
        .blocking
        .with_timeout(Purpose::Logs, move || processes.has_log_writer(&dir))
        .await
        .unwrap_or(true)
    {
        return;
    }
    // The user of an adopted pane may have replaced the log writer by a `pipe-pane` command of their own.
    if run.is_adopted() && daemon.tmux.pane_use(pane.server, pane.pane).await.is_ok_and(|told| told.piped) {
        return tracing::debug!(session = %id, "its log writer was replaced by a command of its user");
    }
    let Ok(grant) = daemon.engine.lock_inside(id, "log").await else { return };
    let answer = daemon.tmux.reopen_log(pane, &log, &daemon.reaper_program).await;
    drop(grant);
    match answer {
        Ok(tmux::Answer::Done) => {
            tracing::warn!(session = %id, "its log writer was lost; another one was started");
            daemon.engine.post(move |turn| turn.emit(Event::LogResumed { session: id }));
        }
        other => {
            tracing::warn!(session = %id, ?other, "its log writer was lost, and no other one was started");
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Incarnation;

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_command_to_which_a_user_pipes_an_adopted_pane_is_not_replaced() {
        for is_piped in [false, true] {
            let test = TestDaemon::start(TestProcesses::default());
            let running = test.run("a").await;
            let id = running.id;
            let adopt = move |turn: &mut Turn<'_>| {
                let incarnation = Incarnation { agent: running.run.init, ..running.run };
                turn.emit(Event::SessionLive { session: id, incarnation, recovered: false });
                turn.pool().session(id).unwrap().clone()
            };
            let session = test.turn(adopt).await;
            if is_piped {
                test.tmux.pipe(running.pane.pane);
            }
            tokio::time::advance(WRITER_START_LIMIT).await;
            replace_lost_writer(&test.daemon, &session).await;
            assert_eq!(test.has_called("reopen_log"), !is_piped);
        }
    }
}
