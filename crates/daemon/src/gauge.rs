//! Looks what sessions use, where something hangs on it: limits that no control group holds, run times, logs
//! whose writers were lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use process::tree::Table;
use protocol::life::Usage;
use protocol::session::Reason;
use protocol::time::millis;
use protocol::{Event, Lifecycle, Session, SessionId, Tag};
use tokio::time::sleep;

use crate::context::{Daemon, pane_of};
use crate::disk_use::disk_use_at_least;
use crate::engine::Turn;
use crate::{cgroups, files};

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

/// A limit that was exceeded.
struct Excess {
    session: SessionId,
    tag: Tag,
    limit: &'static str,
    reason: Reason,
    used: u64,
    allowed: u64,
}

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
        act(daemon, limited.iter().filter_map(run_time).collect());
        if limited.iter().any(|s| s.spec.limits.memory.is_some()) {
            match files::elsewhere(move || memories(&limited)).await {
                Some(excesses) => act(daemon, excesses),
                None => tracing::warn!("the process table does not answer: memory is not looked at"),
            }
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
            let counted = tokio::task::spawn_blocking(move || disk(&session)).await;
            act(daemon, counted.ok().flatten().into_iter().collect());
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

fn act(daemon: &Arc<Daemon>, excesses: Vec<Excess>) {
    if excesses.is_empty() {
        return;
    }
    let context = Arc::clone(daemon);
    daemon.engine.post(move |turn| {
        excesses.into_iter().for_each(|excess| exceeded(turn, &context, excess));
    });
}

fn has_limits(session: &Session) -> bool {
    let limits = &session.spec.limits;
    limits.memory.is_some() || limits.disk.is_some() || session.policy.max_runtime_ms.is_some()
}

fn excess(
    session: &Session,
    (limit, reason): (&'static str, Reason),
    (used, allowed): (u64, u64),
) -> Option<Excess> {
    let tag = session.incarnation.as_ref()?.tag;
    (used > allowed).then_some(Excess { session: session.id, tag, limit, reason, used, allowed })
}

fn run_time(session: &Session) -> Option<Excess> {
    let allowed = session.policy.max_runtime_ms?;
    let used = crate::clock::now().since(session.incarnation.as_ref()?.started_at);
    excess(session, ("run_time", Reason::RunTime), (millis(used), allowed))
}

fn memories(limited: &[Session]) -> Vec<Excess> {
    // One look at the machine's processes serves all of them.
    let Ok(table) = Table::look() else { return Vec::new() };
    let memory = |session: &Session| {
        let allowed = session.spec.limits.memory?;
        let used = usage_in(&table, session)?.memory;
        excess(session, ("memory", Reason::MemoryLimit), (used, allowed))
    };
    limited.iter().filter_map(memory).collect()
}

fn disk(session: &Session) -> Option<Excess> {
    let allowed = session.spec.limits.disk?;
    let used = disk_use_at_least(session.dir.as_path(), Instant::now() + DISK_LIMIT);
    excess(session, ("disk", Reason::DiskLimit), (used, allowed))
}

/// What the processes of a session use, while it runs.
pub(crate) fn usage_in(table: &Table, session: &Session) -> Option<Usage> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot())?;
    process::usage::usage_in(table, run.init?, run.agent, run.cgroup.as_ref().map(|path| path.as_path()))
}

/// It is ended or reported, by policy; reported once in each incarnation.
fn exceeded(turn: &mut Turn<'_>, daemon: &Daemon, excess: Excess) {
    let Excess { session: id, tag, limit, reason, used, allowed } = excess;
    let is_it = |s: &&Session| {
        s.lifecycle == Lifecycle::Live && s.incarnation.as_ref().is_some_and(|run| run.tag == tag)
    };
    if turn.pool().session(id).filter(is_it).is_none() {
        return;
    }
    let (memory, disk, time) = daemon.loaded().life.ends;
    let ended = match reason {
        Reason::MemoryLimit => memory,
        Reason::DiskLimit => disk,
        _ => time,
    };
    if !turn.rest.view.reported.insert((tag, limit)) {
        return;
    }
    tracing::warn!(session = %id, limit, used, allowed, ended, "a limit was exceeded");
    turn.emit(Event::LimitExceeded { session: id, limit: limit.to_owned(), used, allowed, ended });
    if ended {
        turn.rest.view.verdicts.remove(&tag);
        turn.emit(Event::SessionDraining { session: id, reason, exit: None, missing_since: None });
    }
}

/// Gives a session another log writer, where the one it had is gone.
async fn keep_log(daemon: &Arc<Daemon>, session: &Session) {
    let id = session.id;
    let Some(run) = session.incarnation.clone() else { return };
    let young = crate::clock::now().since(run.started_at) < WRITER_START;
    let Some(pane) = pane_of(&run).filter(|_| !young && !run.dead) else { return };
    let log = daemon.log_options(id);
    let dir = log.dir.clone();
    if files::elsewhere(move || process::log_writer::has_writer(&dir)).await.unwrap_or(true) {
        return;
    }
    let Ok(grant) = daemon.engine.lock(id, "log").await else { return };
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
    turn.rest.view.reported.retain(|(tag, _)| runs.contains(tag));
    turn.rest.view.worked.retain(|tag, _| runs.contains(tag));
    turn.rest.view.touched.retain(|tag| runs.contains(tag));
    daemon.cgroups.sweep(&|tag| runs.contains(&tag));
}
