//! Looks what sessions use, where something hangs on it: limits that no control group holds, run times, logs
//! whose writers were lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use process::tree::Table;
use protocol::life::Usage;
use protocol::session::Reason;
use protocol::{Event, Lifecycle, Session, SessionId, Tag};
use tokio::time::sleep;

use crate::context::{Daemon, pane_of};
use crate::disk_use::disk_use_at_least;
use crate::engine::Turn;
use crate::files;

/// Time between two looks at what has limits.
const OFTEN: Duration = Duration::from_secs(1);
/// And otherwise.
const SELDOM: Duration = Duration::from_secs(5);
/// Time between two looks at the writers of all logs.
const WRITERS: Duration = Duration::from_secs(10);
/// How long counting the files of one session may take.
const DISK_LIMIT: Duration = Duration::from_secs(2);
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
    let mut last = Instant::now();
    loop {
        let running = |turn: &mut Turn<'_>| {
            let live = turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Live);
            live.cloned().collect::<Vec<Session>>()
        };
        let Ok(sessions) = daemon.engine.turn(running).await else { return };
        let limited: Vec<Session> = sessions.iter().filter(|s| has_limits(s)).cloned().collect();
        let pause = if limited.is_empty() { SELDOM } else { OFTEN };
        let excesses = files::elsewhere(move || all_excesses(&limited)).await;
        let context = Arc::clone(&daemon);
        let act = move |turn: &mut Turn<'_>| {
            excesses.into_iter().flatten().for_each(|excess| exceeded(turn, &context, excess));
        };
        if daemon.engine.turn(act).await.is_err() {
            return;
        }
        if last.elapsed() >= WRITERS {
            last = Instant::now();
            for session in &sessions {
                keep_log(&daemon, session).await;
            }
        }
        sleep(pause).await;
    }
}

fn has_limits(session: &Session) -> bool {
    let limits = &session.spec.limits;
    limits.memory.is_some() || limits.disk.is_some() || session.policy.max_runtime_ms.is_some()
}

fn all_excesses(limited: &[Session]) -> Vec<Excess> {
    // One look at the machine's processes serves all of them.
    let table = if limited.is_empty() { None } else { Table::look().ok() };
    limited.iter().flat_map(|session| excesses(session, table.as_ref())).collect()
}

/// The limits of a session that it exceeds.
fn excesses(session: &Session, table: Option<&Table>) -> Vec<Excess> {
    let Some(run) = &session.incarnation else { return Vec::new() };
    let (limits, now) = (&session.spec.limits, crate::clock::now());
    let excess = |limit, reason, (used, allowed): (u64, u64)| {
        (used > allowed).then_some(Excess { session: session.id, tag: run.tag, limit, reason, used, allowed })
    };
    let memory = limits.memory.and_then(|allowed| Some((usage_in(table?, session)?.memory, allowed)));
    let dir = session.dir.as_path();
    let disk = limits.disk.map(|allowed| (disk_use_at_least(dir, Instant::now() + DISK_LIMIT), allowed));
    let time = session.policy.max_runtime_ms.map(|allowed| (now.0.saturating_sub(run.started_at.0), allowed));
    [
        memory.and_then(|figures| excess("memory", Reason::MemoryLimit, figures)),
        disk.and_then(|figures| excess("disk", Reason::DiskLimit, figures)),
        time.and_then(|figures| excess("run_time", Reason::RunTime, figures)),
    ]
    .into_iter()
    .flatten()
    .collect()
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
