//! `adopt`: takes over a tmux session that the pool did not create. The record is on disk first; then its
//! pane gets the pool's mark, in one command list of tmux that checks the pane. Nothing else of it changes.

use std::sync::Arc;
use std::time::Duration;

use pool::session::{AdoptTarget, CreateInputs, ForeignPane, ForeignProgram};
use protocol::request::Adopt;
use protocol::tmux::Server;
use protocol::{
    ErrorCode, Event, Incarnation, Lifecycle, OsBytes, PaneId, Refusal, Reply, Session, SessionId, Tag,
    Timestamp,
};
use tmux::Answer;
use tokio::time::sleep;

use crate::decide::idempotency::ClientOperation;
use crate::decide::lock;
use crate::effect::tmux_server;
use crate::engine::{Daemon, Turn, TurnOnDrop, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::{clock, files, random, remove_tree};
use crate::sense::tmux_snapshot;
use crate::verb::session_view;
use crate::verb::start::start_claim;

/// Maximum number of reads of an empty command line, and the time between them: together longer than an `execve` takes.
const ARGV_TRIES: u32 = 20;
const ARGV_PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn adopt(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Adopt) -> Reply {
    tmux_snapshot::take(daemon).await?;
    let target = asked.target.clone();
    let socket = daemon.tmux_socket();
    let find = move |turn: &mut Turn<'_>| {
        let state = turn.volatile.observed.state();
        if let Server::Unknown(silence) = &state.server {
            return Err(Refusal::unavailable(tmux_server::no_answer(silence, &socket)));
        }
        pool::session::adopt_target(turn.pool(), state, &target)
    };
    match daemon.engine.turn(find).await?? {
        AdoptTarget::Ours(session) => already_adopted(daemon, Some(op), session, asked.workspace).await,
        AdoptTarget::Foreign(adoptee) => adopt_pane(daemon, Some(op), *adoptee, asked).await,
    }
}

/// Answers with the session that has the target already, unless it has ended or has another workspace. Waits for an
/// adoption in progress.
async fn already_adopted(
    daemon: &Arc<Daemon>,
    op: Option<&ClientOperation>,
    id: SessionId,
    workspace: Option<String>,
) -> Reply {
    let under_way =
        move |turn: &mut Turn<'_>| turn.pool().session(id).is_some_and(pool::session::is_being_adopted);
    if daemon.engine.turn(under_way).await? {
        drop(daemon.engine.lock_inside(id, "adopt").await?);
    }
    let (context, operation) = (Arc::clone(daemon), op.cloned());
    let show = move |turn: &mut Turn<'_>| {
        let record = turn.pool().session(id);
        let has_other_workspace =
            |s: &&Session| workspace.as_ref().is_some_and(|w| *w != s.workspace.as_str());
        let reply = match record {
            Some(s) if s.lifecycle == Lifecycle::Failed => failed_elsewhere(id),
            Some(s) if !matches!(s.lifecycle, Lifecycle::Live | Lifecycle::Starting) => {
                let why = format!(
                    "it belongs to {id} ({}), which has ended; `poolctl restart` starts it again",
                    s.name
                );
                Err(Refusal::conflict(why))
            }
            Some(s) if has_other_workspace(&s) => {
                let why = format!("it is {id} already, with the workspace {}", s.workspace);
                Err(Refusal::conflict(why))
            }
            Some(_) => session_view::reply(turn, &context, id),
            None => failed_elsewhere(id),
        };
        if let Some(op) = operation {
            op.record_answer(turn, &reply);
        }
        reply
    };
    daemon.engine.turn(show).await?
}

fn failed_elsewhere(session: SessionId) -> Reply {
    let why = format!("its adoption by another client, as {session}, failed; try again");
    Err(Refusal::conflict(why))
}

/// Decides the adoption, marks the pane, and answers with the session.
pub(crate) async fn adopt_pane(
    daemon: &Arc<Daemon>,
    op: Option<&ClientOperation>,
    adoptee: ForeignPane,
    asked: Adopt,
) -> Reply {
    let Adopt { workspace, replace_pipe, .. } = asked;
    let active_at = last_use(daemon, &adoptee, replace_pipe).await?;
    let program = program(daemon, &adoptee, active_at).await?;
    let pane = adoptee.id;
    let (context, operation, wanted) = (Arc::clone(daemon), op.cloned(), workspace.clone());
    let decide = move |turn: &mut Turn<'_>| {
        begin(turn, &context, operation.as_ref(), (&adoptee, program), wanted.as_deref())
    };
    let session = match daemon.engine.turn(decide).await?? {
        Begun::Own(session) => session,
        Begun::Others(session) => return already_adopted(daemon, op, session, workspace).await,
    };
    let _start_claim = start_claim(daemon, session);
    // An automatic adoption (without an operation) holds the claim on its pane itself, for longer than this call.
    let _pane_claim = op.map(|_| pane_claim(daemon, pane));
    let grant = daemon.engine.lock_inside(session, "adopt").await?;
    crate::crash::point("adopt-intent");
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await?;
    let outcome = match &record {
        Some(record) => mark(daemon, record, (replace_pipe, false)).await,
        None => Ok(()),
    };
    let (context, operation) = (Arc::clone(daemon), op.cloned());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = outcome.and_then(|()| session_view::reply(turn, &context, session));
        if let Some(op) = operation.filter(|_| !is_starting(turn, session)) {
            op.record_answer(turn, &reply);
        }
        reply
    };
    let reply = daemon.engine.turn(conclude).await?;
    drop(grant);
    reply
}

/// The decision on the adoption of a pane.
enum Begun {
    /// The pane becomes this new session.
    Own(SessionId),
    /// It is, or becomes, this session, by another request.
    Others(SessionId),
}

/// Decides on the adoption of a pane; `op` is none if nobody requested it.
fn begin(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    op: Option<&ClientOperation>,
    (adoptee, program): (&ForeignPane, ForeignProgram),
    workspace: Option<&str>,
) -> Result<Begun, Refusal> {
    let (now, state) = (turn.now(), turn.volatile.observed.state());
    let target = pool::session::adopt_target(turn.pool(), state, &adoptee.id.to_string())?;
    if let AdoptTarget::Ours(session) = target {
        return Ok(Begun::Others(session));
    }
    let tag = random::identity(&*daemon.world.random)?.tag;
    let ahead = turn.volatile.scheduler.waiting.slots_wanted(turn.pool());
    let (stamp, tmux_names) = (clock::name_stamp(now), turn.volatile.observed.names());
    let inputs = CreateInputs { tag, now, stamp: &stamp, conversation: "", ahead, tmux_names: &tmux_names };
    let origin = pool::session::adoption_origin(adoptee, op.is_none().then_some(daemon.started_at));
    let with = (program, workspace, origin);
    let made = pool::session::adopt(turn.pool(), &daemon.settings(), adoptee, with, &inputs)?;
    turn.emit_all(made.events);
    turn.volatile.scheduler.begin_start(made.session);
    turn.volatile.observed.begin_adoption(adoptee.id);
    if let Some(op) = op {
        op.record_begun(turn, made.session);
    }
    Ok(Begun::Own(made.session))
}

fn is_starting(turn: &Turn<'_>, session: SessionId) -> bool {
    turn.pool().session(session).is_some_and(|s| s.lifecycle == Lifecycle::Starting)
}

/// Returns the time of the pane's last use, if tmux tells.
///
/// # Errors
/// Conflict if its user reads it with `pipe-pane`, unless that may be replaced.
async fn last_use(
    daemon: &Daemon,
    adoptee: &ForeignPane,
    replace_pipe: bool,
) -> Result<Option<Timestamp>, Refusal> {
    match daemon.tmux.pane_use(adoptee.server.into(), adoptee.id).await {
        Ok(told) if told.piped && !replace_pipe => {
            Err(Refusal::conflict(format!("{} was not adopted: {PIPED}", adoptee.id)))
        }
        told => Ok(told.ok().map(|told| Timestamp(told.active_at.saturating_mul(1000)))),
    }
}

/// Returns the pane's program, from the process table. While a process executes another program, its command
/// line is empty for a moment.
async fn program(
    daemon: &Daemon,
    adoptee: &ForeignPane,
    active_at: Option<Timestamp>,
) -> Result<ForeignProgram, Refusal> {
    let ended = || Refusal::refused(format!("the program in {} has ended", adoptee.id));
    let mut process = adoptee.pane.process.ok_or_else(ended)?;
    for _ in 0..ARGV_TRIES {
        let argv = daemon.world.processes.argv(process).ok_or_else(ended)?;
        if is_init(&argv) {
            // This is an init whose job has run: the program to know is its child, which a later start needs, too.
            let below = daemon.world.processes.descendants(process);
            // Orphans, which it has adopted, are younger.
            let children = below.iter().filter(|child| child.ppid == process.pid).map(|child| child.id);
            process = children.min_by_key(|child| child.start).ok_or_else(ended)?;
        } else if !argv.is_empty() {
            let cwd = daemon.world.processes.current_dir(process.pid).unwrap_or_else(|| "/".into());
            let env = daemon.world.processes.environment(process);
            return Ok(ForeignProgram { argv, cwd, env, active_at });
        }
        sleep(ARGV_PAUSE).await;
    }
    Err(Refusal::failed(format!("{} has no command line", adoptee.id)))
}

/// True for the init of an incarnation, which may have been given back to its user: `REAPER exec RUN/TAG.job`.
fn is_init(argv: &[OsBytes]) -> bool {
    let is_job = |job: &OsBytes| {
        let path = job.as_path();
        let tag = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<Tag>().ok());
        tag.is_some() && path.extension().is_some_and(|end| end == "job")
    };
    matches!(argv, [_, exec, job] if exec.0 == b"exec" && is_job(job))
}

/// The reason for leaving a pane alone that its user reads with `pipe-pane`.
const PIPED: &str = "its output goes to a command of yours (`tmux pipe-pane`), and tmux has one such command a \
                     pane; `adopt --replace-pipe` ends it and starts the pool's log";

/// Marks the pane of an adoption, and commits the result. After an attempt whose outcome is unknown (`is_repeated`),
/// only an answer of tmux proves that the pane is not marked.
async fn mark(
    daemon: &Arc<Daemon>,
    record: &Session,
    (replace_pipe, is_repeated): (bool, bool),
) -> Result<(), Refusal> {
    let placed = record.incarnation.as_ref().and_then(|run| Some((run, pane_of(run)?, run.session?)));
    let Some((run, pane, session)) = placed else { return Ok(()) };
    let dir = daemon.paths.session(record.id);
    let created = daemon.blocking.with_timeout(Purpose::Launch, move || files::make_session_dir(&dir)).await;
    if !matches!(created, Some(Ok(()))) {
        let why = "the session's directory cannot be created";
        return match is_repeated {
            true => Err(in_doubt(record, why)),
            false => abandon(daemon, record, ErrorCode::Failed, why).await,
        };
    }
    let token = daemon.engine.turn(|turn: &mut Turn<'_>| turn.volatile.locks.issue_token()).await?;
    let marking = tmux::Adopt {
        tag: run.tag,
        token,
        init: daemon.reaper_program.clone(),
        log: daemon.log_options(record.id),
        replace_pipe,
    };
    let answer = daemon.tmux.adopt(pane.server, session, pane.pane, &marking).await;
    crate::crash::point("adopt-marked");
    match answer {
        Ok(Answer::Done) => {
            // tmux does not notify of options: the mark has to be observed before anything is concluded from
            // the pane. Without an answer the next complete listing shows it.
            drop(tmux_snapshot::take(daemon).await);
            commit_live(daemon, record.id, run.clone()).await
        }
        Ok(answer) => abandon(daemon, record, ErrorCode::Conflict, reason(answer)).await,
        Err(error) if !error.in_doubt() && !is_repeated => {
            abandon(daemon, record, ErrorCode::Unavailable, &error.to_string()).await
        }
        Err(error) => Err(in_doubt(record, &error.to_string())),
    }
}

fn in_doubt(record: &Session, why: &str) -> Refusal {
    let id = record.id;
    Refusal::unavailable(format!("{why}; {id} stays starting until it is known whether its pane is marked"))
}

/// Returns why tmux did not mark a pane.
fn reason(answer: Answer) -> &'static str {
    match answer {
        Answer::Gone => "its pane is gone",
        Answer::NotOurs => "its pane has another mark",
        Answer::OtherServer => "another tmux server answers",
        Answer::Dead => "its program has ended",
        Answer::Piped => PIPED,
        Answer::Done | Answer::InMode | Answer::InputOff | Answer::Attached | Answer::Already => {
            "tmux did not mark it"
        }
    }
}

/// Commits that the session runs.
async fn commit_live(daemon: &Daemon, session: SessionId, run: Incarnation) -> Result<(), Refusal> {
    let live = move |turn: &mut Turn<'_>| {
        if is_starting(turn, session) {
            turn.emit(Event::SessionLive { session, incarnation: run, recovered: false });
        }
    };
    daemon.engine.turn(live).await
}

/// Ends an adoption that certainly failed, and refuses it.
async fn abandon(daemon: &Daemon, record: &Session, code: ErrorCode, why: &str) -> Result<(), Refusal> {
    let (session, detail) = (record.id, why.to_owned());
    let tag = random::identity(&*daemon.world.random)?.tag;
    let end = move |turn: &mut Turn<'_>| {
        let events = pool::session::abandon_adoption(turn.pool(), session, (tag, turn.now()), &detail);
        let is_deleted = matches!(&events[..], [Event::SessionDeleted { .. }]);
        let is_kept = !events.is_empty() && !is_deleted;
        turn.emit_all(events);
        if is_deleted {
            lock::end_with_record(turn, session);
        }
        (is_kept, is_deleted)
    };
    let (is_kept, is_deleted) = daemon.engine.turn(end).await?;
    let sessions = daemon.paths.sessions.clone();
    if is_deleted {
        let remove = move || remove_tree::remove_session_dir(&sessions, session, false);
        drop(daemon.blocking.with_timeout(Purpose::Removal, remove).await);
    }
    let pane = record.incarnation.as_ref().and_then(|run| run.pane);
    let pane = pane.map_or_else(|| session.to_string(), |pane| pane.to_string());
    let kept = if is_kept { format!("; {session} was sent messages, and keeps them") } else { String::new() };
    Err(Refusal::new(code, format!("{pane} was not adopted: {why}{kept}")))
}

/// Completes an adoption that a crash interrupted: the pane has its mark, or can still get it.
pub(crate) async fn resume(daemon: &Arc<Daemon>, record: &Session) -> Result<(), Refusal> {
    let Some(run) = &record.incarnation else { return Ok(()) };
    let state = tmux_snapshot::list(daemon).await;
    let marked = state.tagged_pane(run.tag).is_some();
    match (&state.server, run.server) {
        (Server::Up(server), Some(known)) if *server == known && marked => {
            commit_live(daemon, record.id, run.clone()).await
        }
        (Server::Up(server), Some(known)) if *server == known => mark(daemon, record, (false, true)).await,
        (_, Some(known)) if daemon.world.processes.has_exited(known.process) => {
            abandon(daemon, record, ErrorCode::Unavailable, "its tmux server has ended").await
        }
        _ => Ok(()),
    }
}

/// Returns the claim on the adoption of a pane, taken by `begin_adoption`. No other task adopts the pane until it is
/// dropped.
pub(crate) fn pane_claim(daemon: &Daemon, pane: PaneId) -> TurnOnDrop {
    daemon.engine.on_drop(move |turn| {
        turn.volatile.observed.end_adoption(pane);
        turn.wake();
    })
}
