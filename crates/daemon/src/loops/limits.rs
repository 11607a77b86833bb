//! Limits that no control group holds, run times, and logs whose writers were lost: looked at where something depends on it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::stale::rules::Used;
use process::tree::Table;
use protocol::{Event, Lifecycle, Session, Tag};
use tokio::time::sleep;

use crate::effect::{cgroup, rules};
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::host::disk_usage::disk_use_at_least;
use crate::sense::quiet;
use crate::sense::usage::usage_in;

/// Time between two looks at what has limits.
pub(crate) const OFTEN: Duration = Duration::from_secs(1);

/// And otherwise.
pub(crate) const SELDOM: Duration = Duration::from_secs(5);

/// Time between two looks at the writers of all logs.
pub(crate) const WRITERS: Duration = Duration::from_secs(10);

/// How long counting the files of one session may take: what is counted by then counts.
pub(crate) const DISK_LIMIT: Duration = Duration::from_secs(10);

/// Idle time after a disk scan, as a multiple of the scan's duration (bounds the load to 1/11).
pub(crate) const REST: u32 = 10;

/// A log writer is not missed before its incarnation is so old.
pub(crate) const WRITER_START: Duration = Duration::from_secs(5);

/// Looks for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(quick(&daemon), disks(&daemon), logs(&daemon));
}

pub(crate) async fn running(daemon: &Daemon) -> Option<Vec<Session>> {
    let running = |turn: &mut Turn<'_>| {
        let live = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Live);
        live.cloned().collect::<Vec<Session>>()
    };
    daemon.engine.turn(running).await.ok()
}

/// Run times, and memory that no control group holds. None of it waits for the other sessions' disks.
pub(crate) async fn quick(daemon: &Arc<Daemon>) {
    while let Some(sessions) = running(daemon).await {
        cgroup::look(daemon).await;
        let limited: Vec<Session> = sessions.into_iter().filter(has_limits).collect();
        let pause = if limited.is_empty() { SELDOM } else { OFTEN };
        let bounded = limited.iter().any(|s| s.spec.limits.memory.is_some());
        let measured = if bounded {
            blocking::limited(Purpose::Processes, move || memories(&limited)).await
        } else {
            Some(Vec::new())
        };
        match measured {
            Some(used) if pause == OFTEN => note(daemon, used).await,
            Some(_) => {}
            None => tracing::warn!("the process table does not answer: memory is not looked at"),
        }
        sleep(pause).await;
    }
}

/// Disks, one session after the other: a large one takes its time, and is given a rest.
pub(crate) async fn disks(daemon: &Arc<Daemon>) {
    while let Some(sessions) = running(daemon).await {
        let limited: Vec<Session> = sessions.into_iter().filter(|s| s.spec.limits.disk.is_some()).collect();
        let mut rest = if limited.is_empty() { SELDOM } else { OFTEN };
        for session in limited {
            let began = Instant::now();
            let Some(tag) = session.incarnation.as_ref().map(|run| run.tag) else { continue };
            let dir = session.dir.clone();
            let count = move || disk_use_at_least(dir.as_path(), Instant::now() + DISK_LIMIT);
            let counted = blocking::unlimited(Purpose::House, count).await.ok();
            note(daemon, vec![(tag, Used { disk: counted, memory: None })]).await;
            rest += began.elapsed() * REST;
        }
        sleep(rest).await;
    }
}

/// Logs whose writers are gone.
pub(crate) async fn logs(daemon: &Arc<Daemon>) {
    while let Some(sessions) = running(daemon).await {
        for session in sessions {
            tokio::time::timeout(WRITERS, keep_log(daemon, &session)).await.ok();
        }
        sleep(WRITERS).await;
    }
}

/// What sessions use now, and what follows from it.
pub(crate) async fn note(daemon: &Arc<Daemon>, used: Vec<(Tag, Used)>) {
    let context = Arc::clone(daemon);
    if quiet::refresh(daemon).await.is_err() {
        return;
    }
    let judge = move |turn: &mut Turn<'_>| {
        used.into_iter().for_each(|(tag, sample)| turn.volatile.reaping.note_used(tag, sample));
        pool::reap::judge(turn, &context.settings(), false)
    };
    if let Ok(parks) = daemon.engine.turn(judge).await {
        rules::park_all(daemon, parks);
    }
}

pub(crate) fn has_limits(session: &Session) -> bool {
    let limits = &session.spec.limits;
    limits.memory.is_some() || limits.disk.is_some() || session.policy.max_runtime_ms.is_some()
}

pub(crate) fn memories(limited: &[Session]) -> Vec<(Tag, Used)> {
    // One look at the machine's processes serves all of them.
    let Ok(table) = Table::read() else { return Vec::new() };
    let bounded = limited.iter().filter(|s| s.spec.limits.memory.is_some());
    let memory = |s: &Session| {
        let tag = s.incarnation.as_ref()?.tag;
        Some((tag, Used { memory: Some(usage_in(&table, s)?.memory), disk: None }))
    };
    bounded.filter_map(memory).collect()
}

/// Gives a session another log writer, where the one it had is gone.
pub(crate) async fn keep_log(daemon: &Arc<Daemon>, session: &Session) {
    let id = session.id;
    let Some(run) = session.incarnation.clone() else { return };
    let young = daemon.age(run.started_at).await.is_ok_and(|age| age < WRITER_START);
    let Some(pane) = pane_of(&run).filter(|_| !young && !run.dead) else { return };
    let log = daemon.log_options(id);
    let dir = log.dir.clone();
    if blocking::limited(Purpose::Logs, move || process::log_writer::has_writer(&dir)).await.unwrap_or(true) {
        return;
    }
    let Ok(grant) = daemon.engine.lock_inside(id, "log").await else { return };
    let answer = daemon.tmux.reopen_log(pane, &log, &daemon.init).await;
    drop(grant);
    match answer {
        Ok(tmux::Answer::Done) => {
            tracing::warn!(session = %id, "its log writer was lost; another one goes on");
            daemon.engine.post(move |turn| turn.emit(Event::LogResumed { session: id }));
        }
        other => tracing::warn!(session = %id, ?other, "its log writer was lost, and no other one started"),
    }
}
