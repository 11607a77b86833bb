//! Looks what sessions use, where something hangs on it: limits that no control group holds, run times, logs
//! whose writers were lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pool::stale::rules::Used;
use process::tree::Table;
use protocol::life::Usage;
use protocol::{Event, Lifecycle, Session, Tag};
use tokio::time::sleep;

use crate::context::{Daemon, pane_of};
use crate::disk_use::disk_use_at_least;
use crate::engine::Turn;
use crate::slow::{self, Purpose};
use crate::{cgroups, stale};

/// Time between two looks at what has limits.
const OFTEN: Duration = Duration::from_secs(1);
/// And otherwise.
const SELDOM: Duration = Duration::from_secs(5);
/// Time between two looks at the writers of all logs.
const WRITERS: Duration = Duration::from_secs(10);
/// How long counting the files of one session may take: what is counted by then counts.
const DISK_LIMIT: Duration = Duration::from_secs(10);
/// So many times as long as the counting took nothing is counted after it.
const REST: u32 = 10;
/// A log writer is not missed before its incarnation is so old.
const WRITER_START: Duration = Duration::from_secs(5);

/// Looks for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    tokio::join!(quick(&daemon), disks(&daemon), logs(&daemon));
}

async fn running(daemon: &Daemon) -> Option<Vec<Session>> {
    let running = |turn: &mut Turn<'_>| {
        let live = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Live);
        live.cloned().collect::<Vec<Session>>()
    };
    daemon.engine.turn(running).await.ok()
}

/// Run times, and memory that no control group holds. None of it waits for the other sessions' disks.
async fn quick(daemon: &Arc<Daemon>) {
    while let Some(sessions) = running(daemon).await {
        cgroups::look(daemon).await;
        let limited: Vec<Session> = sessions.into_iter().filter(has_limits).collect();
        let pause = if limited.is_empty() { SELDOM } else { OFTEN };
        let bounded = limited.iter().any(|s| s.spec.limits.memory.is_some());
        let measured = if bounded {
            slow::limited(Purpose::Processes, move || memories(&limited)).await
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
async fn disks(daemon: &Arc<Daemon>) {
    while let Some(sessions) = running(daemon).await {
        let limited: Vec<Session> = sessions.into_iter().filter(|s| s.spec.limits.disk.is_some()).collect();
        let mut rest = if limited.is_empty() { SELDOM } else { OFTEN };
        for session in limited {
            let began = Instant::now();
            let Some(tag) = session.incarnation.as_ref().map(|run| run.tag) else { continue };
            let dir = session.dir.clone();
            let count = move || disk_use_at_least(dir.as_path(), Instant::now() + DISK_LIMIT);
            let counted = slow::unlimited(Purpose::House, count).await.ok();
            note(daemon, vec![(tag, Used { disk: counted, memory: None })]).await;
            rest += began.elapsed() * REST;
        }
        sleep(rest).await;
    }
}

/// Logs whose writers are gone.
async fn logs(daemon: &Arc<Daemon>) {
    while let Some(sessions) = running(daemon).await {
        for session in sessions {
            tokio::time::timeout(WRITERS, keep_log(daemon, &session)).await.ok();
        }
        sleep(WRITERS).await;
    }
}

/// What sessions use now, and what follows from it.
async fn note(daemon: &Arc<Daemon>, used: Vec<(Tag, Used)>) {
    let context = Arc::clone(daemon);
    let judge = move |turn: &mut Turn<'_>| {
        for (tag, now) in used {
            let known = turn.rest.stale.used.entry(tag).or_default();
            *known = Used { memory: now.memory.or(known.memory), disk: now.disk.or(known.disk) };
        }
        stale::judge(turn, &context, false)
    };
    if let Ok(parks) = daemon.engine.turn(judge).await {
        stale::park_all(daemon, parks);
    }
}

fn has_limits(session: &Session) -> bool {
    let limits = &session.spec.limits;
    limits.memory.is_some() || limits.disk.is_some() || session.policy.max_runtime_ms.is_some()
}

fn memories(limited: &[Session]) -> Vec<(Tag, Used)> {
    // One look at the machine's processes serves all of them.
    let Ok(table) = Table::look() else { return Vec::new() };
    let bounded = limited.iter().filter(|s| s.spec.limits.memory.is_some());
    let memory = |s: &Session| {
        let tag = s.incarnation.as_ref()?.tag;
        Some((tag, Used { memory: Some(usage_in(&table, s)?.memory), disk: None }))
    };
    bounded.filter_map(memory).collect()
}

/// What the processes of a session use, while it runs.
pub(crate) fn usage_in(table: &Table, session: &Session) -> Option<Usage> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot())?;
    process::usage::usage_in(table, run.init?, run.agent, run.cgroup.as_ref().map(|path| path.as_path()))
}

/// Gives a session another log writer, where the one it had is gone.
async fn keep_log(daemon: &Arc<Daemon>, session: &Session) {
    let id = session.id;
    let Some(run) = session.incarnation.clone() else { return };
    let young = daemon.age(run.started_at).await.is_ok_and(|age| age < WRITER_START);
    let Some(pane) = pane_of(&run).filter(|_| !young && !run.dead) else { return };
    let log = daemon.log_options(id);
    let dir = log.dir.clone();
    if slow::limited(Purpose::Logs, move || process::log_writer::has_writer(&dir)).await.unwrap_or(true) {
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

/// Incarnations of which nothing is to be remembered any more.
pub(crate) fn forget(turn: &mut Turn<'_>, daemon: &Daemon) {
    let runs: BTreeSet<Tag> =
        turn.pool().sessions().filter_map(|s| s.incarnation.as_ref()).map(|run| run.tag).collect();
    stale::forget(turn, daemon);
    turn.rest.view.worked.retain(|tag, _| runs.contains(tag));
    turn.rest.view.touched.retain(|tag| runs.contains(tag));
    daemon.cgroups.sweep(&|tag| runs.contains(&tag));
}
