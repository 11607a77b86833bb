//! Brings a decided incarnation to life: directories, job, tmux, and what came of it. Runs under
//! the session's lock, after the intent is on disk; each step may be the last one before a crash.

use crate::sense::snapshot;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use agents::wiring::{Wiring, WiringOptions};
use pool::launch::Places;
use protocol::job::Started;
use protocol::limits::Limits;
use protocol::session::Reason;
use protocol::tmux::Server;
use protocol::{Event, Exit, Incarnation, Lifecycle, Refusal, ServerId, Session, SessionId, Tag, Token};
use tmux::{Create, Created, Device, PaneRef, TmuxError};
use tokio::time::{Instant, sleep};

use crate::effect::{cgroup, leftover};
use crate::engine::Turn;
use crate::engine::context::{Daemon, tmux_size};
use crate::host::blocking::Purpose;
use crate::host::files::Fence;
use crate::host::{blocking, files, short_tmp};

/// How long a claimed job may take until its program runs.
const START_LIMIT: Duration = Duration::from_secs(5);

/// How long after tmux's answer is in doubt a pane may take to be seen.
const DOUBT_LIMIT: Duration = Duration::from_secs(2);

/// How long an agent waits for a hook of the pool, in milliseconds: a thousand times what it takes.
const HOOK_LIMIT_MS: u64 = 5000;

/// What came of a launch.
#[derive(Debug)]
pub(crate) enum Launched {
    /// It runs, or ran and ended already.
    Ran {
        /// The incarnation with what is known of it.
        run: Box<Incarnation>,
        /// How it ended, where it did.
        exit: Option<Exit>,
    },
    /// It certainly does not run and never will.
    Failed { reason: Reason, detail: String, exit: Option<Exit> },
    /// Not known yet: it stays `starting` until its tag is seen.
    Unknown {
        why: String,
        /// The incarnation with what is known of it.
        run: Box<Incarnation>,
    },
}

/// Launches the session's intended incarnation and commits what came of it. `finish` adds to that
/// commit.
pub(crate) async fn launch<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    session: SessionId,
    finish: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
) -> Result<R, Refusal> {
    let look =
        move |turn: &mut Turn<'_>| (turn.pool().session(session).cloned(), turn.volatile.locks.issue());
    let (record, token) = daemon.engine.turn(look).await?;
    let outcome = match record {
        Some(record) if record.lifecycle == Lifecycle::Starting => {
            Some(attempt(daemon, &record, token).await)
        }
        _ => None,
    };
    let settled = move |turn: &mut Turn<'_>| {
        if let Some(outcome) = outcome.flatten() {
            settle(turn, session, outcome);
        }
        finish(turn)
    };
    daemon.engine.turn(settled).await
}

async fn attempt(daemon: &Arc<Daemon>, session: &Session, token: Token) -> Option<(Tag, Launched)> {
    let run = session.incarnation.as_ref()?;
    // Never closed.
    let _place = daemon.launching.acquire().await.ok();
    let launched = match start(daemon, session, (run, token)).await {
        Ok(launched) => launched,
        Err((reason, detail)) => Launched::Failed { reason, detail, exit: None },
    };
    match &launched {
        Launched::Ran { .. } => tracing::info!(session = %session.id, tag = %run.tag, "launched"),
        Launched::Failed { reason, detail, .. } => {
            tracing::warn!(session = %session.id, ?reason, detail, "not launched");
        }
        Launched::Unknown { why, .. } => {
            tracing::warn!(session = %session.id, why, "not known whether it runs");
        }
    }
    Some((run.tag, launched))
}

/// The facts of what came of a launch, unless its incarnation was settled by somebody else meanwhile.
pub(crate) fn settle(turn: &mut Turn<'_>, session: SessionId, (tag, launched): (Tag, Launched)) {
    let record = turn.pool().session(session).filter(|s| s.lifecycle.holds_slot());
    let Some(record) = record.filter(|s| s.incarnation.as_ref().is_some_and(|i| i.tag == tag)) else {
        return;
    };
    let wanted = matches!(record.lifecycle, Lifecycle::Starting | Lifecycle::Live);
    let reason = record.reason.unwrap_or(Reason::Exited);
    match launched {
        Launched::Ran { run, exit } => {
            let incarnation = *run;
            turn.emit(if wanted {
                Event::SessionLive { session, incarnation, recovered: false }
            } else {
                Event::SessionPlaced { session, incarnation }
            });
            if exit.is_some() {
                turn.emit(Event::SessionDraining { session, reason, exit, missing_since: None });
            }
        }
        Launched::Failed { reason: failed, detail, exit } if wanted || reason == Reason::Exited => {
            turn.emit(Event::SessionFailed { session, reason: failed, detail, exit });
            turn.emit(Event::TagRetired { tag, session });
        }
        // It is being ended: the reaper says when it is over.
        Launched::Failed { .. } => {}
        Launched::Unknown { run, .. } => turn.emit(Event::SessionPlaced { session, incarnation: *run }),
    }
}

type Setup = (Reason, String);

async fn start(
    daemon: &Arc<Daemon>,
    session: &Session,
    (run, token): (&Incarnation, Token),
) -> Result<Launched, Setup> {
    cgroup::look(daemon).await;
    let grouped = grouped(daemon, session, run).map_err(|detail| (Reason::Setup, detail))?;
    let run = &grouped;
    let job = prepare(daemon, session, run).await.map_err(|detail| (Reason::Setup, detail))?;
    crate::crash::point("new-before-tmux");
    let create = Create {
        name: session.name.clone(),
        tag: run.tag,
        token,
        size: tmux_size(session.spec.size),
        history_limit: daemon.history_limit(),
        init: daemon.init.clone(),
        job,
        log: daemon.log_options(session.id),
    };
    let mut created = create_in_tmux(daemon, &create).await;
    if matches!(created, Err(TmuxError::Duplicate(_))) && leftover::give_up_name(daemon, &create.name).await {
        created = create_in_tmux(daemon, &create).await;
    }
    crate::crash::point("new-after-tmux");
    let placed = match created {
        Ok(created) => placed(run, &created),
        Err(error) if !error.in_doubt() => {
            drop(files::fence(&daemon.paths.run, run.tag));
            let taken = matches!(error, TmuxError::Duplicate(_));
            let reason = if taken { Reason::NameTaken } else { Reason::TmuxFailed };
            return Err((reason, explain(&error, session)));
        }
        Err(error) => match doubted(daemon, run, &error).await {
            Ok(placed) => placed,
            Err(launched) => return Ok(launched),
        },
    };
    Ok(await_start(daemon, placed).await)
}

/// The incarnation with a control group of its own, where that can be had.
fn grouped(daemon: &Daemon, session: &Session, run: &Incarnation) -> Result<Incarnation, String> {
    let limits = &session.spec.limits;
    // Memory that no group holds is looked at.
    let bounds = daemon.loaded().settings.bounds;
    let held = Limits { memory: limits.memory.filter(|_| bounds.memory), ..limits.clone() };
    match cgroup::create(daemon, run.tag, &held) {
        Ok(Some(group)) if group.unenforced.is_empty() || limits.best_effort || !needs_group(limits) => {
            Ok(Incarnation { cgroup: Some(group.path.into()), unenforced: group.unenforced, ..run.clone() })
        }
        Ok(Some(group)) => {
            cgroup::remove(&group.path);
            Err(group.unenforced.join("; "))
        }
        Ok(None) => Ok(Incarnation { unenforced: without_group(limits), ..run.clone() }),
        Err(why) if limits.best_effort || !needs_group(limits) => {
            Ok(Incarnation { unenforced: vec![why], ..run.clone() })
        }
        Err(why) => Err(why),
    }
}

fn needs_group(limits: &Limits) -> bool {
    limits.tasks.is_some() || limits.cpu.is_some()
}

/// What is asked for and cannot be held without a control group.
fn without_group(limits: &Limits) -> Vec<String> {
    let missing = |name: &str| format!("{name} is not limited: there is no control group");
    let tasks = limits.tasks.map(|_| missing("tasks"));
    let cpu = limits.cpu.map(|_| missing("cpu"));
    tasks.into_iter().chain(cpu).collect()
}

/// A new server is never started beside one that lives and cannot be reached, its socket having
/// been deleted, say: then there would be two.
async fn create_in_tmux(daemon: &Daemon, create: &Create) -> Result<Created, TmuxError> {
    let known = |turn: &mut Turn<'_>| {
        let running = turn.pool().sessions().filter(|s| s.lifecycle.holds_slot());
        let servers = running.filter_map(|s| s.incarnation.as_ref()?.server).chain(turn.pool().server());
        servers.map(|server| server.process).collect::<std::collections::BTreeSet<_>>()
    };
    // A stopping engine answers nothing; then nothing is started either.
    let servers = daemon.engine.turn(known).await.map_err(|_| TmuxError::NoServer)?;
    let lives = servers.into_iter().any(|server| !process::identity::exited(server).unwrap_or(false));
    if lives {
        Device { start_server: false, ..daemon.device.clone() }.create(create).await
    } else {
        daemon.tmux.create(create).await
    }
}

/// Directories and the job file. A sentence where that is not possible.
async fn prepare(daemon: &Daemon, session: &Session, run: &Incarnation) -> Result<PathBuf, String> {
    let settings = daemon.settings();
    let (dir, meta) = (daemon.paths.session(session.id), daemon.paths.meta_of(session.id));
    let run_dir = daemon.paths.run.clone();
    let wiring = wired(daemon, session, (&dir, &meta));
    let tmp = short_tmp::dir(&daemon.paths, session.id);
    let places = Places { paths: &daemon.paths, tmp: &tmp, wiring: wiring.as_ref() };
    let job = pool::launch::job(session, run, &settings, places);
    let fence = |run_dir: &Path, tag| drop(files::fence(run_dir, tag));
    let awaited = Arc::new(());
    let (caller, tag) = (Arc::downgrade(&awaited), run.tag);
    let write = move || {
        files::make_session_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        if !job.cwd.as_path().is_dir() {
            return Err(format!("{} is not a directory", job.cwd.as_path().display()));
        }
        let files = wiring.iter().flat_map(|wiring| &wiring.files);
        for (name, bytes) in files {
            let path = meta.join(name);
            files::replace(&path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
        let written = files::write_job(&run_dir, &job);
        // Written half, or after everybody had given it up: it holds secrets, and nobody may run it.
        if written.is_err() || caller.strong_count() == 0 {
            fence(&run_dir, tag);
        }
        written.map_err(|e| format!("cannot write the job file: {e}"))
    };
    let written = blocking::limited(Purpose::Launch, write).await;
    drop(awaited);
    written.unwrap_or_else(|| {
        fence(&daemon.paths.run, tag);
        Err("the file system does not answer".to_owned())
    })
}

/// How its agent's hooks are told to it. Without the program that they call there are none.
fn wired(daemon: &Daemon, session: &Session, (own_dir, dir): (&Path, &Path)) -> Option<Wiring> {
    let loaded = daemon.loaded();
    let agent = loaded.settings.agent_of(session);
    let poolctl = daemon.init.with_file_name("poolctl");
    if !agent.hooks || agent.adapter == Adapter::None {
        return None;
    }
    if !poolctl.is_file() {
        let missing = poolctl.display();
        tracing::warn!(session = %session.id, %missing, "its hooks cannot be wired: no poolctl beside reaper");
        return None;
    }
    let (approve_ms, hook_ms) = (protocol::time::millis(agent.approve_wait), HOOK_LIMIT_MS);
    let wire = WiringOptions { poolctl: &poolctl, dir, own_dir, approve_ms, hook_ms };
    Some(agents::wiring::wire(agent.adapter, &wire))
}

fn explain(error: &TmuxError, session: &Session) -> String {
    match error {
        TmuxError::Missing(binary) => format!("tmux not found ({}): install tmux", binary.display()),
        TmuxError::NoServer => "no tmux server answers at the pool's socket: start its unit, or, where one \
             lives and its socket was deleted, send it SIGUSR1"
            .to_owned(),
        TmuxError::Duplicate(_) => {
            format!("tmux has a session named {} that is not the pool's; rename one of them", session.name)
        }
        other => other.to_string(),
    }
}

fn placed(run: &Incarnation, created: &Created) -> Incarnation {
    let PaneRef { server, pane, .. } = created.pane;
    let identify = |pid| process::identity::identify(pid).ok().flatten();
    Incarnation {
        server: identify(server.pid).map(|process| ServerId { process, started_at: server.started_at }),
        session: Some(created.session),
        pane: Some(pane),
        init: identify(created.pid),
        ..run.clone()
    }
}

/// tmux's answer is in doubt: takes the job away if it can, else looks for the pane.
async fn doubted(daemon: &Daemon, run: &Incarnation, error: &TmuxError) -> Result<Incarnation, Launched> {
    let unknown = |why: String| Launched::Unknown { why, run: Box::new(claimed(daemon, run)) };
    match files::fence(&daemon.paths.run, run.tag) {
        Ok(Fence::Never) => Err(Launched::Failed {
            reason: Reason::TmuxFailed,
            detail: format!("{error}; the program was not started"),
            exit: None,
        }),
        Ok(Fence::Claimed) => {
            let found = find(daemon, run, DOUBT_LIMIT).await;
            found.ok_or_else(|| unknown(format!("{error}; the program may run")))
        }
        Err(fence) => Err(unknown(format!("{error}; and {fence}"))),
    }
}

/// The incarnation with the init that claimed its job.
pub(crate) fn claimed(daemon: &Daemon, run: &Incarnation) -> Incarnation {
    let init = run.init.or_else(|| files::claimed_by(&daemon.paths.run, run.tag));
    let cgroup = run.cgroup.clone().or_else(|| daemon.cgroups.find(run.tag).map(Into::into));
    Incarnation { init, cgroup, ..run.clone() }
}

/// Looks for the incarnation's tag in complete listings.
pub(crate) async fn find(daemon: &Daemon, run: &Incarnation, limit: Duration) -> Option<Incarnation> {
    let deadline = Instant::now() + limit;
    loop {
        let state = snapshot::look(daemon).await;
        if let Server::Up(server) = state.server
            && let Some((id, pane)) = state.panes.iter().find(|(_, pane)| pane.tag == Some(run.tag))
        {
            let found = run.clone();
            return Some(Incarnation {
                server: Some(server),
                session: Some(pane.session),
                pane: Some(*id),
                init: pane.process.or(run.init),
                ..found
            });
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the program runs, or its init says why not.
pub(crate) async fn await_start(daemon: &Daemon, run: Incarnation) -> Launched {
    let deadline = Instant::now() + START_LIMIT;
    let mut pause = Duration::from_micros(500);
    loop {
        let dir = &daemon.paths.run;
        let ended = files::read_exit(dir, run.tag);
        if let Some((exit, Some(error))) = ended {
            return Launched::Failed { reason: Reason::ExecFailed, detail: error, exit: Some(exit) };
        }
        if let Some(started) = files::read_started(dir, run.tag) {
            let exit = ended.map(|(exit, _)| exit);
            return Launched::Ran { run: Box::new(with_processes(run, started)), exit };
        }
        if let Some((exit, None)) = ended {
            return Launched::Ran { run: Box::new(claimed(daemon, &run)), exit: Some(exit) };
        }
        if Instant::now() >= deadline {
            let why = "the program did not start in time".to_owned();
            return Launched::Unknown { why, run: Box::new(claimed(daemon, &run)) };
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn with_processes(run: Incarnation, started: Started) -> Incarnation {
    let unenforced = run.unenforced.iter().cloned().chain(started.unenforced).collect();
    Incarnation { init: Some(started.init), agent: Some(started.agent), unenforced, ..run }
}
