//! `adopt`: a tmux session that somebody else created becomes one of the pool's. The record is on disk
//! first; then its pane gets the pool's mark, checked by tmux in the same pass; nothing else of it changes.

use std::sync::Arc;
use std::time::Duration;

use pool::admit::{Adoptee, Launch, Program, Target};
use protocol::PaneId;
use protocol::request::Adopt;
use protocol::session::{DeleteMode, Reason};
use protocol::tmux::Server;
use protocol::{ErrorCode, Event, Incarnation, Lifecycle, Refusal, Reply, Session, SessionId};
use tmux::Answer;
use tokio::time::sleep;

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::host::blocking::Purpose;
use crate::host::{blocking, clock, files, remove_tree};
use crate::sense::snapshot;
use crate::verb::shown;
use crate::verb::start::Starting;

/// How often a command line that is empty is read again, and the time between: to execute takes less.
const ARGV_TRIES: u32 = 20;

const ARGV_PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn adopt(daemon: &Arc<Daemon>, op: &Op, asked: Adopt) -> Reply {
    snapshot::take(daemon).await?;
    let target = asked.target.clone();
    let find =
        move |turn: &mut Turn<'_>| pool::admit::target(turn.pool(), turn.volatile.observed.state(), &target);
    match daemon.engine.turn(find).await?? {
        Target::Ours(session) => ours(daemon, op, session, asked.workspace).await,
        Target::Foreign(adoptee) => take_in(daemon, Some(op), *adoptee, asked.workspace).await,
    }
}

/// It is the pool's already: that is what was asked for, unless it is over or in another workspace.
async fn ours(daemon: &Arc<Daemon>, op: &Op, id: SessionId, workspace: Option<String>) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let show = move |turn: &mut Turn<'_>| {
        let record = turn.pool().session(id);
        let elsewhere = |s: &&Session| workspace.as_ref().is_some_and(|w| *w != s.workspace.as_str());
        let reply = match record {
            Some(s) if !matches!(s.lifecycle, Lifecycle::Live | Lifecycle::Starting) => {
                let why =
                    format!("it is what is left of {id} ({}); `poolctl restart` starts that again", s.name);
                Err(Refusal::new(ErrorCode::Conflict, why))
            }
            Some(s) if elsewhere(&s) => {
                let why = format!("it is {id} already, whose workspace is {}", s.workspace);
                Err(Refusal::new(ErrorCode::Conflict, why))
            }
            _ => shown::reply(turn, &context, id),
        };
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(show).await?
}

/// Decides, marks, and answers with what came of it.
pub(crate) async fn take_in(
    daemon: &Arc<Daemon>,
    op: Option<&Op>,
    adoptee: Adoptee,
    workspace: Option<String>,
) -> Reply {
    let program = program(&adoptee).await?;
    let (context, operation, pane) = (Arc::clone(daemon), op.cloned(), adoptee.id);
    let decide = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        let tag =
            clock::tag().map_err(|e| Refusal::new(ErrorCode::Failed, format!("no random numbers: {e}")))?;
        let ahead = turn.volatile.scheduler.waiting.len();
        let launch = Launch { tag, now, stamp: &clock::stamp(now), conversation: "", ahead };
        let with = (program, workspace.as_deref());
        let made = pool::admit::adopt(turn.pool(), &context.settings(), &adoptee, with, &launch)?;
        turn.emit_all(made.events);
        turn.volatile.scheduler.begin_start(made.session);
        turn.volatile.observed.begin_adoption(pane);
        if let Some(op) = operation {
            op.begun(turn, made.session);
        }
        Ok(made.session)
    };
    let session: SessionId = daemon.engine.turn(decide).await??;
    let _starting = Starting::new(daemon, session);
    // What is adopted by itself is noted there already, and for longer.
    let _adopting = op.map(|_| Adopting { daemon: Arc::clone(daemon), pane });
    let grant = daemon.engine.lock(session, "adopt").await?;
    crate::crash::point("adopt-intent");
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await?;
    let outcome = match &record {
        Some(record) => mark(daemon, record).await,
        None => Ok(()),
    };
    let (context, operation) = (Arc::clone(daemon), op.cloned());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = outcome.and_then(|()| shown::reply(turn, &context, session));
        if let Some(op) = operation.filter(|_| !is_open(turn, session)) {
            op.conclude(turn, &reply);
        }
        reply
    };
    let reply = daemon.engine.turn(conclude).await?;
    drop(grant);
    reply
}

fn is_open(turn: &Turn<'_>, session: SessionId) -> bool {
    turn.pool().session(session).is_some_and(|s| s.lifecycle == Lifecycle::Starting)
}

/// What the process table says of its program. For a moment, while it executes another, that is nothing.
async fn program(adoptee: &Adoptee) -> Result<Program, Refusal> {
    let ended = || Refusal::new(ErrorCode::Refused, format!("the program in {} has ended", adoptee.id));
    let process = adoptee.pane.process.ok_or_else(ended)?;
    for _ in 0..ARGV_TRIES {
        let argv = process::inspect::program::argv(process).ok().flatten().ok_or_else(ended)?;
        if !argv.is_empty() {
            let cwd = process::inspect::program::current_dir(process.pid).ok().flatten();
            return Ok(Program { argv, cwd: cwd.unwrap_or_else(|| "/".into()) });
        }
        sleep(ARGV_PAUSE).await;
    }
    Err(Refusal::new(ErrorCode::Failed, format!("{} has no command line", adoptee.id)))
}

/// Marks the pane of a decided adoption and commits what came of it.
async fn mark(daemon: &Arc<Daemon>, record: &Session) -> Result<(), Refusal> {
    let placed = record.incarnation.as_ref().and_then(|run| Some((run, pane_of(run)?, run.session?)));
    let Some((run, pane, session)) = placed else { return Ok(()) };
    let dir = daemon.paths.session(record.id);
    let made = blocking::limited(Purpose::Launch, move || files::make_session_dir(&dir)).await;
    if !matches!(made, Some(Ok(()))) {
        give_up(daemon, record.id).await?;
        return Err(Refusal::new(
            ErrorCode::Failed,
            "the session's directory cannot be made; nothing was changed",
        ));
    }
    let token = daemon.engine.turn(|turn: &mut Turn<'_>| turn.volatile.locks.issue()).await?;
    let marking =
        tmux::Adopt { tag: run.tag, token, init: daemon.init.clone(), log: daemon.log_options(record.id) };
    let answer = daemon.tmux.adopt(pane.server, session, pane.pane, &marking).await;
    crate::crash::point("adopt-marked");
    match answer {
        Ok(Answer::Done) => {
            // tmux tells nobody of an option: what is known of the pane must have the mark before anything
            // is concluded from it. Without an answer the next whole listing brings it.
            drop(snapshot::take(daemon).await);
            settle(daemon, record.id, run.clone()).await
        }
        Ok(answer) => {
            give_up(daemon, record.id).await?;
            Err(Refusal::new(ErrorCode::Conflict, format!("{} was not adopted: {}", pane.pane, why(answer))))
        }
        Err(error) if !error.in_doubt() => {
            give_up(daemon, record.id).await?;
            Err(Refusal::new(ErrorCode::Unavailable, format!("{} was not adopted: {error}", pane.pane)))
        }
        Err(error) => Err(Refusal::new(
            ErrorCode::Unavailable,
            format!("{error}; {} stays starting until it is known whether its pane is marked", record.id),
        )),
    }
}

fn why(answer: Answer) -> &'static str {
    match answer {
        Answer::Gone => "its pane is gone",
        Answer::NotOurs => "its pane has another mark",
        Answer::OtherServer => "another tmux server answers",
        Answer::Dead => "its program has ended",
        Answer::Done | Answer::InMode | Answer::InputOff | Answer::Attached | Answer::Already => {
            "tmux did not do it"
        }
    }
}

async fn settle(daemon: &Daemon, session: SessionId, run: Incarnation) -> Result<(), Refusal> {
    let live = move |turn: &mut Turn<'_>| {
        if is_open(turn, session) {
            turn.emit(Event::SessionLive { session, incarnation: run, recovered: false });
        }
    };
    daemon.engine.turn(live).await
}

/// Certainly not adopted: there is no such session, and tmux keeps what is its own. The tag is not
/// retired, because a pane with a retired tag is removed.
async fn give_up(daemon: &Daemon, session: SessionId) -> Result<(), Refusal> {
    let forget = move |turn: &mut Turn<'_>| {
        // Also where it was killed meanwhile: its pane is not the pool's to end.
        if turn.pool().session(session).is_some_and(|s| s.lifecycle.holds_slot()) {
            let (reason, mode) = (Reason::TmuxFailed, DeleteMode::Detach);
            let messages = pool::admit::forget_messages(turn.pool(), session, turn.now());
            turn.emit_all(messages);
            turn.emit(Event::SessionDeleted { session, reason, mode, tmux_alive: true });
        }
    };
    daemon.engine.turn(forget).await?;
    let sessions = daemon.paths.sessions.clone();
    drop(
        blocking::limited(Purpose::Removal, move || {
            remove_tree::remove_session_dir(&sessions, session, false)
        })
        .await,
    );
    Ok(())
}

/// Finds out what became of an adoption that was cut off: the pane has its mark, or can still get it.
pub(crate) async fn resume(daemon: &Arc<Daemon>, record: &Session) -> Result<(), Refusal> {
    let Some(run) = &record.incarnation else { return Ok(()) };
    let state = snapshot::look(daemon).await;
    let marked = state.panes.values().any(|pane| pane.tag == Some(run.tag));
    match (&state.server, run.server) {
        (Server::Up(server), Some(known)) if *server == known && marked => {
            settle(daemon, record.id, run.clone()).await
        }
        (Server::Up(server), Some(known)) if *server == known => mark(daemon, record).await,
        (_, Some(known)) if process::identity::exited(known.process).unwrap_or(false) => {
            give_up(daemon, record.id).await
        }
        _ => Ok(()),
    }
}

/// That somebody is at the adoption of a pane: nobody else is meanwhile.
pub(crate) struct Adopting {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) pane: PaneId,
}

impl Drop for Adopting {
    fn drop(&mut self) {
        let pane = self.pane;
        self.daemon.engine.post(move |turn| {
            turn.volatile.observed.end_adoption(pane);
            turn.wake();
        });
    }
}
