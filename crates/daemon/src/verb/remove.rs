//! `rm`: ends what runs, archives it where asked for, forgets the record, then removes the files.

use std::sync::Arc;

use protocol::request::{Messages, Remove};
use protocol::session::Reason;
use protocol::{ErrorCode, Event, MessageId, OsBytes, Refusal, Reply, Response, Session, SessionId};
use store::Reader;

use crate::decide::idempotency::Op;
use crate::decide::lock;
use crate::effect::cgroup;
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::host::archive::Contents;
use crate::host::blocking::Purpose;
use crate::host::{blocking, files, remove_tree};
use crate::sense::snapshot;
use crate::verb::{ending, read};

/// Says of a session that was given back to tmux whose its directory is; in what is kept of it.
const DETACHED: &str = "detached";

/// The longest such file, in bytes: a process.
const DETACHED_MAX: u64 = 1024;

/// Messages that an archive is given at once.
const ARCHIVE_PAGE: usize = 200;

pub(super) async fn remove(daemon: &Arc<Daemon>, op: &Op, asked: Remove) -> Reply {
    take_away(daemon, Some(op), asked).await?;
    Ok(Response::Done)
}

/// What was kept for as long as it was to be.
pub(crate) async fn remove_outdated(daemon: &Arc<Daemon>, id: SessionId, reason: Reason) {
    let force = reason == Reason::Ephemeral;
    let asked = Remove { session: id.into(), keep_tmux: false, force, purge: false, archive: false };
    match end_and_forget(daemon, None, asked, reason).await {
        Ok(_) => tracing::info!(session = %id, ?reason, "removed"),
        Err(refusal) => tracing::warn!(session = %id, %refusal, "not removed"),
    }
    daemon.engine.post(move |turn| {
        turn.volatile.scheduler.end_removal(id);
    });
}

/// Ends it where it runs, archives it where that is asked for, removes it. Answers how many bytes came free.
pub(super) async fn take_away(daemon: &Arc<Daemon>, op: Option<&Op>, asked: Remove) -> Result<u64, Refusal> {
    end_and_forget(daemon, op, asked, Reason::ApiDelete).await
}

async fn end_and_forget(
    daemon: &Arc<Daemon>,
    op: Option<&Op>,
    asked: Remove,
    reason: Reason,
) -> Result<u64, Refusal> {
    let session = checked(daemon, &asked).await?;
    if session.lifecycle.holds_slot() && !asked.keep_tmux {
        end_first(daemon, &session).await?;
    }
    let grant = daemon.engine.lock(session.id, "rm").await?;
    let id = session.id;
    if asked.archive {
        archive(daemon, &asked, id).await?;
    }
    forget_over(daemon, id, &asked).await?;
    let (operation, ask) = (op.cloned(), asked.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let Some(session) = turn.pool().session(id).cloned() else { return Ok(None) };
        may_go(turn, &session, &ask)?;
        let events = pool::admit::remove(turn.pool(), &session, &ask, reason, turn.now())?;
        turn.emit_all(events);
        lock::deleted(turn, id);
        if let Some(op) = operation {
            op.conclude(turn, &Ok(Response::Done));
        }
        Ok(Some(session))
    };
    let removed: Option<Session> = daemon.engine.turn(decide).await??;
    let freed = match removed {
        Some(session) => clean_up(daemon, &session, &asked).await,
        None => Ok(0),
    };
    drop(grant);
    match freed {
        Err(why) if asked.purge => {
            let what =
                format!("{id} is removed, but not its directory: {why}; `poolctl prune --purge` tries again");
            Err(Refusal::new(ErrorCode::Failed, what))
        }
        freed => Ok(freed.unwrap_or(0)),
    }
}

/// The record, the messages and the files of a session, where they stay. Nothing is removed before it was read again.
async fn archive(daemon: &Arc<Daemon>, asked: &Remove, id: SessionId) -> Result<(), Refusal> {
    let check = asked.clone();
    let read = move |turn: &mut Turn<'_>| {
        let Some(session) = turn.pool().session(id).cloned() else {
            return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
        };
        may_go(turn, &session, &check)?;
        let all = Messages { session: id.into(), kinds: Vec::new(), states: Vec::new(), limit: u32::MAX };
        Ok((session, read::chosen(turn, id, &all, u32::MAX), turn.reader(), turn.now()))
    };
    let (session, ids, reader, now) = daemon.engine.turn(read).await??;
    let (archives, sessions) = (daemon.paths.archives(), daemon.paths.sessions.clone());
    let meta = daemon.paths.meta();
    let name = format!("{id}-{}-{}", session.name, crate::host::clock::stamp(now));
    let work = asked.purge;
    let write = move || {
        let record = serde_json::to_vec_pretty(&pool::view::without_secrets(&session))?;
        let mut pages = ids.chunks(ARCHIVE_PAGE);
        let mut messages = || pages.next().map(|ids| lines(&reader, ids)).transpose();
        let (sessions, meta, messages) = (&*sessions, &*meta, &mut messages);
        let contents = Contents { sessions, meta, session: id, record: &record, messages, work };
        crate::host::archive::write(&archives, &name, contents).map_err(std::io::Error::other)
    };
    let failed =
        |why: String| Refusal::new(ErrorCode::Failed, format!("{id} is not archived, so it stays: {why}"));
    match blocking::unlimited(Purpose::Removal, write).await {
        Ok(Ok(path)) => {
            tracing::info!(session = %id, path = %path.display(), "archived");
            Ok(())
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("the work was cut off".to_owned())),
    }
}

/// Messages with their bodies, a line each.
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

/// Forgets the messages that are over, a part in each turn, so that nobody else waits long. First it is
/// seen that nothing speaks against it.
async fn forget_over(daemon: &Arc<Daemon>, id: SessionId, asked: &Remove) -> Result<(), Refusal> {
    loop {
        let asked = asked.clone();
        let part = move |turn: &mut Turn<'_>| {
            if let Some(session) = turn.pool().session(id) {
                may_go(turn, session, &asked)?;
            }
            let events = pool::admit::forget_over(turn.pool(), id);
            let more = events.len() == pool::admit::FORGET_AT_ONCE;
            turn.emit_all(events);
            Ok(more)
        };
        if !daemon.engine.turn(part).await?? {
            return Ok(());
        }
    }
}

fn may_go(turn: &Turn<'_>, session: &Session, asked: &Remove) -> Result<(), Refusal> {
    if session.lifecycle.holds_slot() && !asked.keep_tmux {
        let why = format!("{} was started again meanwhile", session.name);
        return Err(Refusal::new(ErrorCode::Conflict, why));
    }
    if asked.force { Ok(()) } else { pool::admit::idle_enough(turn.pool(), session, pool::admit::REMOVE) }
}

/// Refuses what is being worked on or looked at, before anything is ended.
async fn checked(daemon: &Arc<Daemon>, asked: &Remove) -> Result<Session, Refusal> {
    let (asked, under) = (asked.clone(), lock::current());
    let check = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?;
        lock::free_for(turn, session.id, under)?;
        if !asked.force {
            pool::admit::idle_enough(turn.pool(), session, pool::admit::REMOVE)?;
        }
        Ok(session.clone())
    };
    daemon.engine.turn(check).await?
}

async fn end_first(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    let id = session.id;
    let doomed = move |turn: &mut Turn<'_>| {
        let events: Vec<Event> = turn.pool().session(id).map(pool::admit::kill).unwrap_or_default();
        turn.emit_all(events);
        if let Some(tag) = turn.pool().session(id).and_then(|s| s.incarnation.as_ref()).map(|i| i.tag) {
            turn.volatile.reaping.forget_verdict(tag);
        }
        turn.pool().session(id).cloned()
    };
    match daemon.engine.turn(doomed).await? {
        Some(session) => ending::ended(daemon, &session).await,
        None => Ok(()),
    }
}

/// The record is gone; what is left of it goes too, or is left to its user. Answers how many bytes came free.
async fn clean_up(daemon: &Arc<Daemon>, session: &Session, asked: &Remove) -> Result<u64, String> {
    let run = session.incarnation.as_ref();
    if asked.keep_tmux {
        mark_detached(daemon, session);
        if let Some(pane) = run.and_then(pane_of).filter(|_| session.lifecycle.holds_slot()) {
            if let Err(error) = daemon.tmux.release(pane).await {
                tracing::warn!(session = %session.id, %error, "its pane keeps the pool's marks");
            }
            // tmux tells nobody of an option.
            let daemon = Arc::clone(daemon);
            tokio::spawn(async move { drop(snapshot::take(&daemon).await) });
        }
        return Ok(0);
    }
    if let Some(run) = run {
        files::forget(&daemon.paths.run, run.tag);
        if let Some(group) = &run.cgroup {
            cgroup::remove(group.as_path());
        }
    }
    let (sessions, id, purge) = (daemon.paths.sessions.clone(), session.id, asked.purge);
    let meta = daemon.paths.meta();
    let remove = move || {
        remove_tree::remove_session_dir(&meta, id, true)?;
        remove_tree::remove_session_dir(&sessions, id, purge)
    };
    let removed = blocking::unlimited(Purpose::Removal, remove).await;
    let why = match removed {
        Ok(Ok(removed)) => return Ok(removed.bytes),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the work was cut off".to_owned(),
    };
    tracing::warn!(session = %session.id, why, "its directory was not removed");
    Err(why)
}

/// Its directory is still that of a program, and of which, where one runs.
fn mark_detached(daemon: &Daemon, session: &Session) {
    let init = session.incarnation.as_ref().and_then(|run| run.init);
    let Some(init) = init.filter(|_| session.lifecycle.holds_slot()) else { return };
    let path = daemon.paths.meta_of(session.id).join(DETACHED);
    let written = serde_json::to_vec(&init).map_err(std::io::Error::from);
    if let Err(error) = written.and_then(|text| files::replace(&path, &text)) {
        tracing::warn!(session = %session.id, %error, "its directory is not marked as in use");
    }
}

/// Whether a program that was given back to tmux still has the directory of this session, of which this is kept.
pub(super) fn is_in_use(meta: &std::path::Path) -> bool {
    let text = files::read_small(&meta.join(DETACHED), DETACHED_MAX).ok();
    let init = text.and_then(|text| serde_json::from_slice(&text).ok());
    init.is_some_and(|init| !process::identity::exited(init).unwrap_or(false))
}
