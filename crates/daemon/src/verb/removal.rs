//! Removal of sessions, for `rm`, `prune` and retention: ends the incarnation, archives the session if asked,
//! forgets its record, then removes its files.

use std::sync::Arc;

use protocol::request::{Messages, Remove};
use protocol::session::Reason;
use protocol::{ErrorCode, Event, MessageId, OsBytes, Refusal, Response, Session, SessionId};
use store::Reader;

use world::processes::Processes;

use crate::decide::idempotency::{self, ClientOperation};
use crate::decide::lock;
use crate::effect::cgroup;
use crate::engine::Turn;
use crate::engine::daemon::{Daemon, pane_of};
use crate::host::archive::Contents;
use crate::host::blocking_pool::Purpose;
use crate::host::{files, remove_tree};
use crate::sense::tmux_snapshot;
use crate::verb::{message_selection, termination};

/// The file, in a session's metadata, with the process that still uses the session's directory after it was
/// given back to tmux.
const DETACHED_FILE: &str = "detached";

/// Maximum size of that file, in bytes: it holds one process.
const DETACHED_MAX: u64 = 1024;

/// Number of messages that are read for an archive at a time.
const ARCHIVE_PAGE: usize = 200;

/// Removes a session whose retention is over.
pub(crate) async fn remove_expired(daemon: &Arc<Daemon>, id: SessionId, reason: Reason) {
    let force = reason == Reason::Ephemeral;
    let asked = Remove { session: id.into(), keep_tmux: false, force, purge: false, archive: false };
    match remove_for(daemon, None, asked, reason).await {
        Ok(_) => tracing::info!(session = %id, ?reason, "removed"),
        Err(refusal) => tracing::warn!(session = %id, %refusal, "not removed"),
    }
    daemon.engine.post(move |turn| {
        turn.volatile.scheduler.end_removal(id);
    });
}

/// Removes a session for a user. Returns the number of bytes freed.
pub(super) async fn remove(
    daemon: &Arc<Daemon>,
    op: Option<&ClientOperation>,
    asked: Remove,
) -> Result<u64, Refusal> {
    remove_for(daemon, op, asked, Reason::ApiDelete).await
}

/// Removes a session for the given reason. Returns the number of bytes freed.
async fn remove_for(
    daemon: &Arc<Daemon>,
    op: Option<&ClientOperation>,
    asked: Remove,
    reason: Reason,
) -> Result<u64, Refusal> {
    let session = check(daemon, &asked).await?;
    let is_expiry = reason != Reason::ApiDelete;
    if is_expiry && session.lifecycle.holds_slot() {
        let why = format!("{} was started again meanwhile", session.name);
        return Err(Refusal::new(ErrorCode::Conflict, why));
    }
    if session.lifecycle.holds_slot() && !asked.keep_tmux {
        end_first(daemon, &session).await?;
    }
    let grant = daemon.engine.lock(session.id, "rm").await?;
    let id = session.id;
    if asked.archive {
        archive(daemon, &asked, id).await?;
    }
    let removed = loop {
        let (operation, ask) = (op.cloned(), asked.clone());
        let step = move |turn: &mut Turn<'_>| remove_step(turn, id, (&ask, reason), operation.as_ref());
        match daemon.engine.turn(step).await?? {
            Step::MoreMessages => {}
            Step::Removed(session) => break session.map(|session| *session),
        }
    };
    let freed = match removed {
        Some(session) => clean_up(daemon, &session, &asked).await,
        None => Ok(0),
    };
    drop(grant);
    match freed {
        Err(why) if asked.purge => {
            let what =
                format!("{id} is removed, but not its directory: {why}; `poolctl prune --purge` tries again");
            let refusal = Refusal::new(ErrorCode::Failed, what);
            // In place of the answer that was recorded with the removal of the record.
            if let Some(op) = op.cloned() {
                let answer = Err(refusal.clone());
                daemon.engine.turn(move |turn| op.record_answer(turn, &answer)).await?;
            }
            Err(refusal)
        }
        freed => Ok(freed.unwrap_or(0)),
    }
}

/// Archives the record, the messages and the files of a session. The archive is verified before anything is
/// removed.
async fn archive(daemon: &Arc<Daemon>, asked: &Remove, id: SessionId) -> Result<(), Refusal> {
    let wanted = asked.clone();
    let read = move |turn: &mut Turn<'_>| {
        let Some(session) = turn.pool().session(id).cloned() else {
            return Err(pool::session::not_found(turn.pool(), &id.to_string()));
        };
        check_removable(turn, &session, &wanted)?;
        let all = Messages { session: id.into(), kinds: Vec::new(), states: Vec::new(), limit: u32::MAX };
        Ok((session, message_selection::select(turn, id, &all, u32::MAX), turn.reader(), turn.now()))
    };
    let (session, ids, reader, now) = daemon.engine.turn(read).await??;
    let (archives, sessions) = (daemon.paths.archives(), daemon.paths.sessions.clone());
    let meta = daemon.paths.meta();
    let name = format!("{id}-{}-{}", session.name, crate::host::clock::name_stamp(now));
    let purge = asked.purge;
    let write = move || {
        let record = serde_json::to_vec_pretty(&pool::redaction::session(&session))?;
        let mut pages = ids.chunks(ARCHIVE_PAGE);
        let mut messages = || pages.next().map(|ids| lines(&reader, ids)).transpose();
        let (sessions, meta, messages) = (&*sessions, &*meta, &mut messages);
        let contents = Contents { sessions, meta, session: id, record: &record, messages, now, work: purge };
        crate::host::archive::write(&archives, &name, contents).map_err(std::io::Error::other)
    };
    let failed = |why: String| Refusal::new(ErrorCode::Failed, not_archived(id, &why));
    match daemon.blocking.without_timeout(Purpose::Removal, write).await {
        Ok(Ok(path)) => {
            tracing::info!(session = %id, path = %path.display(), "archived");
            Ok(())
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("the work was interrupted".to_owned())),
    }
}

/// The reason why a session, or what is left of it, is not removed.
pub(super) fn not_archived(id: SessionId, why: &str) -> String {
    format!("{id} is not archived, so it stays: {why}")
}

/// Returns messages with their bodies as JSON lines.
fn lines(reader: &Reader, ids: &[MessageId]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for id in ids {
        let found = reader.message(*id).map_err(std::io::Error::other)?;
        if let Some((message, body)) = found {
            serde_json::to_writer(
                &mut text,
                &serde_json::json!({ "message": message, "body": OsBytes(body) }),
            )?;
            text.push(b'\n');
        }
    }
    Ok(text)
}

/// The outcome of one turn of a removal.
enum Step {
    /// More final messages are left.
    MoreMessages,
    /// The record is removed, with the last messages; none if there was none.
    Removed(Option<Box<Session>>),
}

/// Forgets final messages, some in each turn, so that other requests do not wait long; the last ones go in one
/// turn with the record, so that a removal that is refused has taken nothing of a usual session.
fn remove_step(
    turn: &mut Turn<'_>,
    id: SessionId,
    (asked, reason): (&Remove, Reason),
    operation: Option<&ClientOperation>,
) -> Result<Step, Refusal> {
    let record_answer = |turn: &mut Turn<'_>| {
        if let Some(op) = operation {
            op.record_answer(turn, &Ok(Response::Done));
        }
    };
    // Another removal came first. A repetition of this one is not refused for that.
    let Some(session) = turn.pool().session(id).cloned() else {
        record_answer(turn);
        return Ok(Step::Removed(None));
    };
    check_removable(turn, &session, asked)?;
    let forgotten = pool::queue::forget_finished(turn.pool(), id);
    if forgotten.len() == pool::queue::FORGET_BATCH {
        idempotency::keep_message_operations(turn, &forgotten);
        turn.emit_all(forgotten);
        return Ok(Step::MoreMessages);
    }
    let observed = (turn.volatile.observed.state(), turn.now());
    let events = pool::session::remove(turn.pool(), &session, (asked, reason), observed)?;
    idempotency::keep_message_operations(turn, &events);
    turn.emit_all(forgotten);
    turn.emit_all(events);
    lock::end_with_record(turn, id);
    record_answer(turn);
    Ok(Step::Removed(Some(Box::new(session))))
}

/// Refuses the removal of a session that was started again, or is in use.
fn check_removable(turn: &Turn<'_>, session: &Session, asked: &Remove) -> Result<(), Refusal> {
    if session.lifecycle.holds_slot() && !asked.keep_tmux {
        let why = format!("{} was started again meanwhile", session.name);
        return Err(Refusal::new(ErrorCode::Conflict, why));
    }
    if asked.force {
        Ok(())
    } else {
        pool::session::check_unused(turn.pool(), session, pool::session::REMOVE_HINT)
    }
}

/// Refuses a session that is locked or in use, before anything is ended.
async fn check(daemon: &Arc<Daemon>, asked: &Remove) -> Result<Session, Refusal> {
    let (asked, under) = (asked.clone(), lock::current());
    let check = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &asked.session)?;
        lock::check_unlocked(turn, session.id, under)?;
        pool::worker::check_removable(session, &asked)?;
        if !asked.force {
            pool::session::check_unused(turn.pool(), session, pool::session::REMOVE_HINT)?;
        }
        Ok(session.clone())
    };
    daemon.engine.turn(check).await?
}

/// Ends the incarnation, and waits until it is verified gone.
async fn end_first(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    let (id, usual) = (session.id, daemon.settings().grace_ms);
    let begin = move |turn: &mut Turn<'_>| {
        let events: Vec<Event> = turn.pool().session(id).map(pool::session::kill).unwrap_or_default();
        turn.emit_all(events);
        if let Some(tag) = turn.pool().session(id).and_then(|s| s.incarnation.as_ref()).map(|i| i.tag) {
            termination::expect_end(turn, tag, (None, usual));
        }
        turn.pool().session(id).cloned()
    };
    match daemon.engine.turn(begin).await? {
        Some(session) => termination::wait(daemon, &session).await,
        None => Ok(()),
    }
}

/// Removes the files of a session whose record is forgotten; with `--keep-tmux`, gives its pane back instead.
/// Returns the number of bytes freed.
async fn clean_up(daemon: &Arc<Daemon>, session: &Session, asked: &Remove) -> Result<u64, String> {
    let run = session.incarnation.as_ref();
    if asked.keep_tmux {
        mark_detached(daemon, session);
        let held = run.filter(|_| session.lifecycle.holds_slot());
        if let Some((run, pane)) = held.and_then(|run| Some((run, pane_of(run)?))) {
            if let Err(error) = daemon.tmux.release(pane, run.is_adopted()).await {
                tracing::warn!(session = %session.id, %error, "its pane keeps the pool's marks");
            }
            // tmux does not notify of options.
            let (daemon, world) = (Arc::clone(daemon), daemon.world.clone());
            world.spawn("snapshot", async move { drop(tmux_snapshot::take(&daemon).await) });
        }
        return Ok(0);
    }
    if let Some(run) = run {
        files::remove_run_files(&daemon.paths.run, run.tag);
        if let Some(group) = &run.cgroup {
            cgroup::remove(group.as_path());
        }
    }
    let (sessions, id, purge) = (daemon.paths.sessions.clone(), session.id, asked.purge);
    let meta = daemon.paths.meta();
    let remove = move || {
        // The other one is left for last: by it `prune` finds what an end of the daemon in between leaves behind.
        remove_tree::remove_session_dir(&meta, id, true)?;
        remove_tree::remove_session_dir(&sessions, id, purge)
    };
    let removed = daemon.blocking.without_timeout(Purpose::Removal, remove).await;
    let why = match removed {
        Ok(Ok(removed)) => return Ok(removed.bytes),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the work was interrupted".to_owned(),
    };
    tracing::warn!(session = %session.id, why, "its directory was not removed");
    Err(why)
}

/// Records that a program still uses the session's directory, if one runs.
fn mark_detached(daemon: &Daemon, session: &Session) {
    let init = session.incarnation.as_ref().and_then(|run| run.init);
    let Some(init) = init.filter(|_| session.lifecycle.holds_slot()) else { return };
    let path = daemon.paths.meta_of(session.id).join(DETACHED_FILE);
    let written = serde_json::to_vec(&init).map_err(std::io::Error::from);
    if let Err(error) = written.and_then(|text| files::write_atomic(&path, &text)) {
        tracing::warn!(session = %session.id, %error, "its directory is not marked as in use");
    }
}

/// True if a program that was given back to tmux still uses the directory of the session with this metadata.
pub(super) fn is_in_use(processes: &dyn Processes, meta: &std::path::Path) -> bool {
    let text = files::read_bounded(&meta.join(DETACHED_FILE), DETACHED_MAX).ok();
    let init = text.and_then(|text| serde_json::from_slice(&text).ok());
    init.is_some_and(|init| !processes.has_exited(init))
}
