//! Launches a decided incarnation: directories, job, tmux, and the commit of the outcome. Runs under the
//! session's lock, after the intent is committed; a crash may follow each step.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agents::Adapter;
use agents::wiring::{Wiring, WiringOptions};
use pool::session::LaunchInputs;
use process::init::LIMIT_NOT_HELD;
use protocol::job::{Job, StderrLog};
use protocol::{
    Event, Incarnation, Lifecycle, Limits, Name, Reason, Refusal, ServerId, Session, SessionId, Tag, Token,
};
use tmux::{Create, Created, LogOptions, PaneRef, TmuxError};

use crate::effect::claimed_job::{Launched, await_start, find_by_tag, follow_claimed, with_claimed_init};
use crate::effect::{cgroup, chat_history, next_name, retired_session, tmux_server};
use crate::engine::{Daemon, Turn, tmux_size};
use crate::host::blocking_pool::Purpose;
use crate::host::files::Fence;
use crate::host::{files, short_tmp};
use crate::sense::user_dirs;

/// Time for a pane to appear after tmux's answer was in doubt.
const DOUBT_LIMIT: Duration = Duration::from_secs(2);

/// Bytes of disk for the records that an init writes, each with a block of its own.
const RECORDS: usize = 16 << 10;

/// Time in milliseconds for which an agent waits for a hook of the pool: a thousand times its usual duration.
const HOOK_LIMIT_MS: u64 = 5000;

/// Launches the session's intended incarnation and commits the outcome. `finish` adds to that commit. If tmux already
/// has the name of a session that `is_numbered`, the session takes the next number and tries again.
pub(crate) async fn launch<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    (session, is_numbered): (SessionId, bool),
    finish: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
) -> Result<R, Refusal> {
    let read =
        move |turn: &mut Turn<'_>| (turn.pool().session(session).cloned(), turn.volatile.locks.issue_token());
    let (record, token) = daemon.engine.turn(read).await?;
    let (mut record, mut outcome) = (record, None);
    for _ in 0..if is_numbered { next_name::TRIES } else { 1 } {
        let Some(starting) = record.filter(|record| record.lifecycle == Lifecycle::Starting) else { break };
        outcome = attempt(daemon, &starting, token).await;
        let is_taken = matches!(&outcome, Some((_, Launched::Failed { reason: Reason::NameTaken, .. })));
        record = if is_numbered && is_taken { next_name::renumber(daemon, session).await } else { None };
    }
    let commit = move |turn: &mut Turn<'_>| {
        if let Some(outcome) = outcome {
            commit_outcome(turn, session, outcome);
        }
        finish(turn)
    };
    daemon.engine.turn(commit).await
}

async fn attempt(daemon: &Arc<Daemon>, session: &Session, token: Token) -> Option<(Tag, Launched)> {
    let run = session.incarnation.as_ref()?;
    let checked = check(daemon, session).await;
    // The semaphore is never closed.
    let _permit = daemon.launch_permits.acquire().await.ok();
    // A permit may take long.
    let again = tmux_server::check_not_replaced_since(daemon).await;
    let checked = checked.and(again.map_err(|refusal| (Reason::TmuxFailed, refusal.message)));
    let started = match checked {
        Err(why) if !is_claimed(daemon, run.tag) => Err(why),
        _ => start(daemon, session, (run, token)).await,
    };
    let launched = started.unwrap_or_else(|(reason, detail)| Launched::Failed { reason, detail, exit: None });
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

/// Emits the outcome of a launch, unless its incarnation was settled otherwise meanwhile.
pub(crate) fn commit_outcome(turn: &mut Turn<'_>, session: SessionId, (tag, launched): (Tag, Launched)) {
    let record = turn.pool().session(session).filter(|s| s.lifecycle.holds_slot());
    let Some(record) = record.filter(|s| s.is_run(tag)) else {
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
            // The next start, or the removal of the session, retires the tag of the failed start, as after any other
            // end.
            turn.emit(Event::SessionFailed { session, reason: failed, detail, exit });
        }
        // The session is being ended: the reaper reports when it is gone.
        Launched::Failed { .. } => {}
        Launched::Unknown { run, .. } => turn.emit(Event::SessionPlaced { session, incarnation: *run }),
    }
}

/// A failed start: the reason, and its description.
type StartError = (Reason, String);

/// Runs the checks that may hang. They come before the permit is taken, because other launches wait for permits.
async fn check(daemon: &Arc<Daemon>, session: &Session) -> Result<(), StartError> {
    let checked = user_dirs::check_cwd(daemon, (session.id, &session.spec.cwd)).await;
    checked.map_err(|refusal| (Reason::Setup, refusal.message))?;
    let checked = tmux_server::check_not_replaced(daemon).await;
    checked.map_err(|refusal| (Reason::TmuxFailed, refusal.message))
}

/// True if an init has claimed the job of the incarnation: this task waited for the lock while another one launched it.
/// A job runs once.
fn is_claimed(daemon: &Daemon, tag: Tag) -> bool {
    matches!(files::fence(&daemon.paths.run, tag), Ok(Fence::Claimed))
}

async fn start(
    daemon: &Arc<Daemon>,
    session: &Session,
    (run, token): (&Incarnation, Token),
) -> Result<Launched, StartError> {
    cgroup::refresh(daemon).await;
    let grouped = with_cgroup(daemon, session, run).map_err(|detail| (Reason::Setup, detail))?;
    let run = &grouped;
    if is_claimed(daemon, run.tag) {
        return Ok(follow_claimed(daemon, run, DOUBT_LIMIT).await.launched);
    }
    let job = prepare(daemon, session, run).await.map_err(|detail| (Reason::Setup, detail))?;
    crate::crash::point("new-before-tmux");
    let create = Create {
        name: session.name.clone(),
        tag: run.tag,
        token,
        size: tmux_size(session.spec.size),
        history_limit: daemon.history_limit(),
        init: daemon.reaper_program.clone(),
        job,
        log: daemon.log_options(session.id),
        start_server: true,
    };
    let mut created = create_in_tmux(daemon, &create).await;
    if matches!(created, Err(TmuxError::Duplicate(_)))
        && retired_session::free_name(daemon, &create.name, (run.tag, session.incarnations > 1)).await
    {
        created = create_in_tmux(daemon, &create).await;
    }
    crate::crash::point("new-after-tmux");
    let placed = match created {
        Ok(created) => placed(daemon, run, &created),
        Err(error) if !error.in_doubt() => {
            drop(files::fence(&daemon.paths.run, run.tag));
            let taken = matches!(error, TmuxError::Duplicate(_));
            let reason = if taken { Reason::NameTaken } else { Reason::TmuxFailed };
            return Err((reason, explain(daemon, &error, session).await));
        }
        Err(error) => match resolve_doubt(daemon, run, &error).await {
            Ok(placed) => placed,
            Err(launched) => return Ok(launched),
        },
    };
    Ok(await_start(daemon, placed).await)
}

/// Returns the incarnation with a control group of its own, if possible.
fn with_cgroup(daemon: &Daemon, session: &Session, run: &Incarnation) -> Result<Incarnation, String> {
    let limits = &session.spec.limits;
    // Memory that no group limits is watched instead.
    let bounds = daemon.loaded().settings.enforceable;
    let enforced = Limits { memory: limits.memory.filter(|_| bounds.memory), ..limits.clone() };
    match cgroup::create(daemon, run.tag, &enforced) {
        Ok(Some(group)) if group.unenforced.is_empty() || limits.best_effort || !needs_group(limits) => {
            Ok(Incarnation { cgroup: Some(group.path.into()), unenforced: group.unenforced, ..run.clone() })
        }
        Ok(Some(group)) => {
            cgroup::remove(&group.path);
            Err(format!("{LIMIT_NOT_HELD} {}", group.unenforced.join("; ")))
        }
        Ok(None) => Ok(Incarnation { unenforced: unenforced_without_group(limits), ..run.clone() }),
        Err(why) if limits.best_effort || !needs_group(limits) => {
            Ok(Incarnation { unenforced: vec![why], ..run.clone() })
        }
        Err(why) => Err(format!("{LIMIT_NOT_HELD} {limits}: {why}")),
    }
}

fn needs_group(limits: &Limits) -> bool {
    limits.tasks.is_some() || limits.cpu.is_some()
}

/// Returns the requested limits that need a control group, as sentences.
fn unenforced_without_group(limits: &Limits) -> Vec<String> {
    let missing = |name: &str| format!("{name} is not limited: there is no control group");
    let tasks = limits.tasks.map(|_| missing("tasks"));
    let cpu = limits.cpu.map(|_| missing("cpu"));
    tasks.into_iter().chain(cpu).collect()
}

/// Creates the session in tmux. A server is started only if no earlier one lives: one that cannot be reached,
/// because its socket was deleted for instance, would stay beside it.
async fn create_in_tmux(daemon: &Daemon, create: &Create) -> Result<Created, TmuxError> {
    let known = |turn: &mut Turn<'_>| {
        let running = turn.pool().sessions().filter(|s| s.lifecycle.holds_slot());
        let servers = running.filter_map(|s| s.incarnation.as_ref()?.server).chain(turn.pool().server());
        servers.map(|server| server.process).collect::<std::collections::BTreeSet<_>>()
    };
    // A stopping engine does not answer; then nothing is started.
    let servers = daemon.engine.turn(known).await.map_err(|_| TmuxError::NoServer)?;
    let lives = servers.into_iter().any(|server| !daemon.world.processes.has_exited(server));
    let create = Create { start_server: !lives, ..create.clone() };
    daemon.tmux.create(&create).await
}

/// Creates the directories and the job file. The error is a sentence.
async fn prepare(daemon: &Daemon, session: &Session, run: &Incarnation) -> Result<PathBuf, String> {
    let settings = daemon.settings();
    let (dir, meta) = (daemon.paths.session(session.id), daemon.paths.meta_of(session.id));
    let run_dir = daemon.paths.run.clone();
    let wiring = wiring(daemon, session, (&dir, &meta));
    let tmp = short_tmp::session_tmp(&daemon.paths, session.id);
    let places = LaunchInputs { paths: &daemon.paths, tmp: &tmp, wiring: wiring.as_ref() };
    let stderr = session.spec.separate_stderr.then(|| stderr_log(daemon, session.id));
    let job = Job { stderr, ..pool::session::launch_job(session, run, &settings, places) };
    let begins = (!run.resumed).then_some(settings.agent_of(session).adapter);
    let fence = |run_dir: &Path, tag| drop(files::fence(run_dir, tag));
    let awaited = Arc::new(());
    let (caller, tag) = (Arc::downgrade(&awaited), run.tag);
    let write = move || {
        files::make_session_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        let is_own = job.cwd.as_path().starts_with(&dir);
        if is_own && !job.cwd.as_path().is_dir() {
            return Err(format!("{} is not a directory", job.cwd.as_path().display()));
        }
        begins.map_or(Ok(()), |adapter| chat_history::set_aside(adapter, &dir))?;
        let files = wiring.iter().flat_map(|wiring| &wiring.files);
        for (name, bytes) in files {
            let path = meta.join(name);
            files::write_atomic(&path, bytes).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        }
        let written = files::write_job(&run_dir, &job);
        // A program whose init can write no record runs, and its session stays starting.
        let written = written.and_then(|path| files::try_space(&run_dir, RECORDS).map(|()| path));
        // The job file was written in part, or after the caller had given up. It holds secrets, and must not run.
        if written.is_err() || caller.strong_count() == 0 {
            fence(&run_dir, tag);
        }
        written.map_err(|e| format!("cannot write the job file: {e}"))
    };
    let written = daemon.blocking.with_timeout(Purpose::Launch, write).await;
    drop(awaited);
    written.unwrap_or_else(|| {
        fence(&daemon.paths.run, tag);
        Err("the file system does not answer".to_owned())
    })
}

/// Returns the log of a program's standard error, within the session's log directory.
fn stderr_log(daemon: &Daemon, session: SessionId) -> StderrLog {
    let LogOptions { dir, max_size, keep, compress } = daemon.log_options(session);
    StderrLog { dir: dir.join(protocol::logs::STDERR).into(), max_size, keep, compress }
}

/// Returns the wiring of its agent's hooks; `None` if it has none, or the program that they call is missing.
fn wiring(daemon: &Daemon, session: &Session, (own_dir, dir): (&Path, &Path)) -> Option<Wiring> {
    let loaded = daemon.loaded();
    let agent = loaded.settings.agent_of(session);
    let poolctl = daemon.poolctl();
    if !agent.hooks || agent.adapter == Adapter::None {
        return None;
    }
    if !poolctl.is_file() {
        let missing = poolctl.display();
        tracing::warn!(session = %session.id, %missing, "no hooks: there is no poolctl beside reaper");
        return None;
    }
    let (approve_ms, hook_ms) = (protocol::time::millis(agent.approve_wait), HOOK_LIMIT_MS);
    let wire = WiringOptions { poolctl: &poolctl, dir, own_dir, approve_ms, hook_ms };
    Some(agents::wiring::wire(agent.adapter, &wire))
}

async fn explain(daemon: &Arc<Daemon>, error: &TmuxError, session: &Session) -> String {
    match error {
        TmuxError::Missing(binary) => format!("tmux not found ({}): install tmux", binary.display()),
        TmuxError::TooOld { .. } => format!("{error}; install it, or set [tmux] binary"),
        TmuxError::NoServer => tmux_server::why_none_answers(daemon).await,
        TmuxError::Duplicate(_) => has_name(daemon, &session.name).await,
        other => other.to_string(),
    }
}

/// Returns a sentence that says whose tmux session has the name already, and what to do.
pub(crate) async fn has_name(daemon: &Daemon, name: &Name) -> String {
    let wanted = name.clone();
    let find = move |turn: &mut Turn<'_>| {
        let (pool, observed) = (turn.pool(), &turn.volatile.observed);
        let found = pool::observe::named_in_tmux(pool, observed, wanted.as_str());
        let is_unknown = pool::observe::is_of_unknown_incarnation(pool, observed, wanted.as_str());
        (found.map(|session| session.name.clone()), is_unknown)
    };
    match daemon.engine.turn(find).await {
        Ok((Some(other), _)) => format!(
            "{other} has the name {name} in tmux: `poolctl rename {other} {other}` gives it its own there"
        ),
        Ok((None, true)) => format!(
            "the tmux session {name} runs a program that a pool started and that is not on record, as the \
             database was replaced, or another pool's: look at it with `tmux -S {socket} attach -t ={name}`, and \
             end it there, or rename one of them",
            socket = daemon.device.socket.display()
        ),
        _ => format!("tmux has a session named {name} that is not the pool's; rename one of them"),
    }
}

fn placed(daemon: &Daemon, run: &Incarnation, created: &Created) -> Incarnation {
    let PaneRef { server, pane, .. } = created.pane;
    let identify = |pid| daemon.world.processes.identify(pid);
    Incarnation {
        server: identify(server.pid).map(|process| ServerId { process, started_at: server.started_at }),
        session: Some(created.session),
        pane: Some(pane),
        init: identify(created.pid),
        ..run.clone()
    }
}

/// Resolves a launch after tmux's answer was in doubt: withdraws the job, or else looks for the pane.
async fn resolve_doubt(
    daemon: &Daemon,
    run: &Incarnation,
    error: &TmuxError,
) -> Result<Incarnation, Launched> {
    let unknown = |why: String| Launched::Unknown { why, run: Box::new(with_claimed_init(daemon, run)) };
    match files::fence(&daemon.paths.run, run.tag) {
        Ok(Fence::Never) => Err(Launched::Failed {
            reason: Reason::TmuxFailed,
            detail: format!("{error}; the program was not started"),
            exit: None,
        }),
        Ok(Fence::Claimed) => {
            let found = find_by_tag(daemon, run, DOUBT_LIMIT).await;
            found.ok_or_else(|| unknown(format!("{error}; the program may run")))
        }
        Err(fence) => Err(unknown(format!("{error}; and {fence}"))),
    }
}

#[cfg(test)]
mod tests {
    use tmux::fake::Fault;
    use tokio::time::sleep;

    use super::*;
    use crate::engine::tests::{session, start};
    use crate::run::tests::{TestDaemon, TestProcesses};
    use crate::sense::tmux_snapshot;

    #[tokio::test(start_paused = true)]
    async fn a_program_whose_job_an_init_has_claimed_is_not_started_again() {
        let test = TestDaemon::start(TestProcesses::default());
        let id = test.create("a").await;
        let run = test.daemon.incarnation(id).await.unwrap();
        test.report_start((id, &run));
        launch(&test.daemon, (id, false), |_| ()).await.unwrap();
        assert!(!test.has_called("create"));
        assert_eq!(test.lifecycle(id).await, Lifecycle::Live);
    }

    #[tokio::test(start_paused = true)]
    async fn the_job_of_a_start_that_tmux_refused_is_withdrawn() {
        let test = TestDaemon::start(TestProcesses::default());
        let id = test.create("a").await;
        let tag = test.daemon.incarnation(id).await.unwrap().tag;
        test.tmux.fail([Fault::Refuse("no room".to_owned())]);
        launch(&test.daemon, (id, false), |_| ()).await.unwrap();
        assert_eq!(test.tmux.calls(), ["create"]);
        assert!(!test.daemon.paths.job(tag).exists());
        assert_eq!(test.lifecycle(id).await, Lifecycle::Failed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_waited_for_its_permit_does_not_go_into_another_server() {
        let test = TestDaemon::start(TestProcesses::default());
        test.run("a").await;
        let id = test.create("b").await;
        let permits = &test.daemon.launch_permits;
        let all = u32::try_from(permits.available_permits()).unwrap();
        let held = permits.acquire_many(all).await.unwrap();
        let replace = async {
            // The clock stands still until the start waits for a permit.
            sleep(Duration::from_secs(1)).await;
            test.tmux.restart_server();
            tmux_snapshot::take(&test.daemon).await.unwrap();
            drop(held);
        };
        let (launched, ()) = tokio::join!(launch(&test.daemon, (id, false), |_| ()), replace);
        launched.unwrap();
        assert!(!test.has_called("create"));
        assert_eq!(test.lifecycle(id).await, Lifecycle::Failed);
    }

    #[tokio::test]
    async fn the_outcome_of_an_earlier_launch_says_nothing_of_the_next_one() {
        for is_own in [false, true] {
            let commit = move |turn: &mut Turn<'_>| {
                let id = session(turn, "a");
                let own = turn.pool().session(id).and_then(Session::tag).unwrap();
                let tag = if is_own { own } else { Tag([9; 16]) };
                let (reason, detail) = (Reason::TmuxFailed, "no room".to_owned());
                commit_outcome(turn, id, (tag, Launched::Failed { reason, detail, exit: None }));
                turn.pool().session(id).unwrap().lifecycle
            };
            let expected = if is_own { Lifecycle::Failed } else { Lifecycle::Starting };
            assert_eq!(start().turn(commit).await.unwrap(), expected);
        }
    }
}
