//! Removal of sessions, for `rm`, `prune` and retention: ends the incarnation, archives the session if asked,
//! forgets its record, then removes its files.

use std::path::PathBuf;
use std::sync::Arc;

use pool::queue::ArchivedMessages;
use protocol::request::Remove;
use protocol::{
    ErrorCode, Event, Lifecycle, Reason, Refusal, Reply, Response, Session, SessionId, Timestamp,
};

use crate::decide::idempotency::{self, ClientOperation};
use crate::decide::lock;
use crate::effect::cgroup;
use crate::engine::{Daemon, LoadedConfig, Turn};
use crate::host::archive::{self, Contents};
use crate::host::blocking_pool::Purpose;
use crate::host::{files, remove_tree};
use crate::sense::tmux_snapshot;
use crate::verb::{archived_messages, detached, files_in_use, termination};

/// Removes a session whose retention is over.
pub(crate) async fn remove_expired(daemon: &Arc<Daemon>, id: SessionId, reason: Reason) {
    let force = reason == Reason::Ephemeral;
    let session = id.into();
    let asked = Remove { session, keep_tmux: false, force, purge: false, archive: false, only_ended: false };
    let ground = Ground::Expired(reason, daemon.loaded());
    match remove_for(daemon, None, Removal { asked, ground }).await {
        Ok(_) => tracing::info!(session = %id, ?reason, "removed"),
        Err(refusal) => tracing::warn!(session = %id, %refusal, "not removed"),
    }
}

/// A removal of a session.
#[derive(Clone)]
struct Removal {
    asked: Remove,
    ground: Ground,
}

/// The ground on which a session is chosen to be removed.
#[derive(Clone)]
enum Ground {
    /// A user named it.
    Named,
    /// It was listed as ended; this is the time of its last change in that list.
    Listed(Timestamp),
    /// Its retention is over.
    Expired(Reason, Arc<LoadedConfig>),
}

impl Ground {
    fn reason(&self) -> Reason {
        match self {
            Self::Named | Self::Listed(_) => Reason::ApiDelete,
            Self::Expired(reason, _) => *reason,
        }
    }
}

/// Removes a session for a user.
pub(super) async fn remove(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Remove) -> Reply {
    let removed = remove_for(daemon, Some(op), Removal { asked, ground: Ground::Named }).await;
    removed.map(|(_, answer)| answer)
}

/// Removes a session that had ended at this time according to a listing, unless it was used since. Returns the number
/// of bytes freed; none if another removal came first.
pub(super) async fn remove_listed(
    daemon: &Arc<Daemon>,
    asked: Remove,
    listed_at: Timestamp,
) -> Result<Option<u64>, Refusal> {
    match remove_for(daemon, None, Removal { asked, ground: Ground::Listed(listed_at) }).await {
        Err(refusal) if refusal.code == ErrorCode::NotFound => Ok(None),
        removed => removed.map(|(bytes, _)| Some(bytes)),
    }
}

/// Removes a session. Returns the number of bytes freed, and the answer, which tells of files that stay.
async fn remove_for(
    daemon: &Arc<Daemon>,
    op: Option<&ClientOperation>,
    removal: Removal,
) -> Result<(u64, Response), Refusal> {
    let session = check(daemon, &removal).await?;
    let asked = &removal.asked;
    let ends = session.lifecycle.holds_slot() && !asked.keep_tmux;
    if ends {
        end_first(daemon, &session).await?;
    }
    if !asked.keep_tmux {
        termination::await_closed_pane(daemon, session.id).await;
    }
    let told = |refusal: Refusal| match ends {
        true => Refusal { message: format!("{}; what ran in it was ended", refusal.message), ..refusal },
        false => refusal,
    };
    let grant = daemon.engine.lock(session.id, "rm").await.map_err(told)?;
    if asked.keep_tmux {
        mark_detached(daemon, session.id).await?;
    }
    let removed = forget(daemon, op, (&session, &removal)).await.map_err(told);
    // After any other failure the record may be gone: then the next start of the daemon releases the pane.
    if removed.as_ref().is_err_and(idempotency::is_definite) && asked.keep_tmux {
        detached::unmark(daemon, session.id);
    }
    let freed = match removed? {
        Some(session) => clean_up(daemon, &session, asked).await,
        None => Ok(0),
    };
    drop(grant);
    let why = match freed {
        Ok(bytes) => return Ok((bytes, Response::Done)),
        Err(why) => why,
    };
    let id = session.id;
    let answer = if asked.purge {
        let what = "is removed, but not its directory";
        Err(Refusal::failed(format!("{id} {what}: {why}; `poolctl prune --purge` tries again")))
    } else if asked.keep_tmux {
        let what = "is removed, but its pane keeps the pool's marks";
        Err(Refusal::failed(format!("{id} {what}: {why}; the next start of poold takes them away")))
    } else {
        let what = "is removed, but not all of its files";
        Ok(Response::Text(format!("{id} {what}: {why}; `poolctl prune` tries again")))
    };
    // Replaces the answer that was recorded when the record was removed.
    if let Some(op) = op.cloned() {
        let answer = answer.clone();
        daemon.engine.turn(move |turn| op.record_answer(turn, &answer)).await?;
    }
    answer.map(|answer| (0, answer))
}

/// Forgets the record and the messages of a session, after archiving them if asked. Returns the session; none if its
/// record was removed meanwhile.
async fn forget(
    daemon: &Arc<Daemon>,
    op: Option<&ClientOperation>,
    (session, removal): (&Session, &Removal),
) -> Result<Option<Session>, Refusal> {
    let id = session.id;
    let archived =
        if removal.asked.archive { Some(Arc::new(archive_all(daemon, removal, id).await?)) } else { None };
    loop {
        let (operation, removal, archived) = (op.cloned(), removal.clone(), archived.clone());
        let context = Arc::clone(daemon);
        let step = move |turn: &mut Turn<'_>| {
            remove_step(turn, (&context, id), (&removal, archived.as_deref()), operation.as_ref())
        };
        match daemon.engine.turn(step).await?? {
            Step::MoreMessages => {}
            Step::Removed(session) => return Ok(session.map(|session| *session)),
        }
    }
}

/// The content of an archive.
struct Archived {
    messages: ArchivedMessages,
    /// The last change of the session.
    changed_at: Timestamp,
    path: PathBuf,
}

/// Archives the record, the messages and the files of a session. The archive is verified before anything is
/// removed.
async fn archive_all(daemon: &Arc<Daemon>, removal: &Removal, id: SessionId) -> Result<Archived, Refusal> {
    // The end of the log of a program that has ended may not be written yet.
    if !removal.asked.keep_tmux {
        let unwritten = detached::check_unwritten(daemon, id).await;
        unwritten.map_err(|why| Refusal::failed(not_archived(id, &why)))?;
    }
    let wanted = removal.clone();
    let read = move |turn: &mut Turn<'_>| {
        let session = pool::session::get(turn.pool(), id)?.clone();
        check_removable(turn, &session, &wanted)?;
        Ok((session, ArchivedMessages::of(turn.pool(), id), turn.reader(), turn.now()))
    };
    let (session, archived, reader, now) = daemon.engine.turn(read).await??;
    let (ids, changed_at) = (archived.ids(), session.changed_at);
    let (archives, sessions) = (daemon.paths.archives(), daemon.paths.sessions.clone());
    let meta = daemon.paths.meta();
    let name = format!("{id}-{}-{}", session.name, crate::host::clock::name_stamp(now));
    let purge = removal.asked.purge;
    let write = move || {
        let record = serde_json::to_vec_pretty(&pool::redaction::session(&session))?;
        let mut pages = ids.chunks(archived_messages::PAGE);
        let mut messages = || pages.next().map(|ids| archived_messages::lines(&reader, ids)).transpose();
        let (sessions, meta, messages) = (&*sessions, &*meta, &mut messages);
        let contents = Contents { sessions, meta, session: id, record: &record, messages, now, work: purge };
        let name = archive::unused_name(&archives, &name);
        archive::write(&archives, &name, contents).map_err(std::io::Error::other)
    };
    let failed = |why: String| Refusal::failed(not_archived(id, &why));
    match daemon.blocking.without_timeout(Purpose::Removal, write).await {
        Ok(Ok(path)) => {
            tracing::info!(session = %id, path = %path.display(), "archived");
            Ok(Archived { messages: archived, changed_at, path })
        }
        Ok(Err(error)) | Err(error) => Err(failed(error.to_string())),
    }
}

/// Marks the directories of a session as used by what runs in it. Once its record is removed, only this mark keeps
/// `prune` from removing them.
async fn mark_detached(daemon: &Arc<Daemon>, id: SessionId) -> Result<(), Refusal> {
    let record = daemon.engine.turn(move |turn| turn.pool().session(id).cloned()).await?;
    let Some(session) = record else { return Ok(()) };
    detached::mark(daemon, &session).map_err(|error| {
        let name = &session.name;
        let why = format!("{name} stays in the pool, as its directory cannot be marked as in use: {error}");
        Refusal::failed(why)
    })
}

/// The reason why a session, or what is left of it, is not removed.
pub(super) fn not_archived(id: SessionId, why: &str) -> String {
    format!("{id} is not archived, so it stays: {why}")
}

/// The outcome of one turn of a removal.
enum Step {
    /// More final messages are left.
    MoreMessages,
    /// The record is removed, with the last messages; none if there was none.
    Removed(Option<Box<Session>>),
}

/// Forgets final messages, some in each turn, so that other requests do not wait long. The last ones are forgotten in
/// one turn with the record: if the removal is refused, a session with few messages has lost none.
fn remove_step(
    turn: &mut Turn<'_>,
    (daemon, id): (&Daemon, SessionId),
    (removal, archived): (&Removal, Option<&Archived>),
    operation: Option<&ClientOperation>,
) -> Result<Step, Refusal> {
    let record_answer = |turn: &mut Turn<'_>| {
        if let Some(op) = operation {
            op.record_answer(turn, &Ok(Response::Done));
        }
    };
    // Another removal came first, which is a success for this one as well.
    let Some(session) = turn.pool().session(id).cloned() else {
        record_answer(turn);
        return Ok(Step::Removed(None));
    };
    check_removable(turn, &session, removal)?;
    if let Some(archived) = archived {
        archived.check(turn, &session)?;
    }
    let forgotten = pool::queue::forget_finished(turn.pool(), id);
    if forgotten.len() == pool::queue::FORGET_BATCH {
        idempotency::forget_messages(turn, forgotten);
        return Ok(Step::MoreMessages);
    }
    let observed = (turn.volatile.observed.state(), turn.now());
    let events =
        pool::session::remove(turn.pool(), &session, (&removal.asked, removal.ground.reason()), observed)?;
    let events = pool::reap::leave_orphans(turn.pool(), &daemon.settings(), &session, events);
    idempotency::forget_messages(turn, events);
    lock::end_with_record(turn, id);
    record_answer(turn);
    Ok(Step::Removed(Some(Box::new(session))))
}

impl Archived {
    /// Refuses the removal if the session or its messages have changed since they were archived.
    fn check(&self, turn: &Turn<'_>, session: &Session) -> Result<(), Refusal> {
        if session.changed_at == self.changed_at && self.messages.covers(turn.pool(), session.id) {
            return Ok(());
        }
        let (name, path) = (&session.name, self.path.display());
        let why = format!("{name} was used while it was archived, and stays; try again ({path} is kept)");
        Err(Refusal::conflict(why))
    }
}

/// Refuses the removal of a session that was started again, or is in use.
fn check_removable(turn: &Turn<'_>, session: &Session, removal: &Removal) -> Result<(), Refusal> {
    let asked = &removal.asked;
    check_ended(turn, session, removal)?;
    if session.lifecycle.holds_slot() && !asked.keep_tmux {
        let why = format!("{} was started again meanwhile", session.name);
        return Err(Refusal::conflict(why));
    }
    if asked.force {
        Ok(())
    } else {
        pool::session::check_unused(turn.pool(), session, pool::session::REMOVE_HINT)
    }
}

/// Refuses a session that was chosen because it had ended, and has been used since.
fn check_ended(turn: &Turn<'_>, session: &Session, removal: &Removal) -> Result<(), Refusal> {
    let is_over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
    let was_used = match &removal.ground {
        Ground::Named => removal.asked.only_ended && !is_over,
        Ground::Listed(listed_at) => !is_over || session.changed_at != *listed_at,
        Ground::Expired(reason, loaded) => {
            let rules = (&*loaded.settings, loaded.daemon.keep_stopped);
            pool::session::retention_over(turn.pool(), rules, session, turn.now()) != Some(*reason)
        }
    };
    let why = || format!("{} was used since it had ended, and stays", session.name);
    if was_used { Err(Refusal::conflict(why())) } else { Ok(()) }
}

/// Refuses a session that is locked or in use, before anything is ended.
async fn check(daemon: &Arc<Daemon>, removal: &Removal) -> Result<Session, Refusal> {
    let (removal, under) = (removal.clone(), lock::current());
    let check = move |turn: &mut Turn<'_>| {
        let asked = &removal.asked;
        let session = pool::session::resolve(turn.pool(), &asked.session)?;
        check_ended(turn, session, &removal)?;
        lock::check_unlocked(turn, session.id, under)?;
        pool::worker::check_removable(session, asked)?;
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
        let Some(run) = run.filter(|_| session.lifecycle.holds_slot()) else { return Ok(0) };
        let released = detached::release(daemon, run).await;
        // tmux does not notify of options.
        let (snapshot, world) = (Arc::clone(daemon), daemon.world.clone());
        world.spawn("snapshot", async move { drop(tmux_snapshot::take(&snapshot).await) });
        return released.map(|()| 0).map_err(|error| error.to_string());
    }
    if let Some(run) = run {
        files::remove_run_files(&daemon.paths.run, run.tag);
        if let Some(group) = &run.cgroup {
            cgroup::remove(group.as_path());
        }
    }
    let (sessions, id, purge) = (daemon.paths.sessions.clone(), session.id, asked.purge);
    if let Err(why) = detached::check_unwritten(daemon, id).await {
        tracing::warn!(session = %id, why, "its directory was not removed");
        return Err(why);
    }
    let _removal = files_in_use::begin_removal(daemon, id).await;
    // Another session may use this directory since the record was removed.
    let unused = files_in_use::check_unused(daemon, id).await;
    let is_in_use = unused.is_err() && !asked.force;
    if purge && !asked.force {
        unused.map_err(|refusal| refusal.message)?;
    }
    let meta = daemon.paths.meta();
    let remove = move || {
        // The session's directory is removed last: if the daemon ends in between, `prune` finds the rest by it.
        remove_tree::remove_session_dir(&meta, id, true)?;
        if is_in_use {
            return remove_tree::remove_pool_files(&sessions, id);
        }
        remove_tree::remove_session_dir(&sessions, id, purge)
    };
    let removed = daemon.blocking.without_timeout(Purpose::Removal, remove).await;
    let why = match removed {
        Ok(Ok(removed)) => return Ok(removed.bytes),
        Ok(Err(error)) | Err(error) => error.to_string(),
    };
    tracing::warn!(session = %session.id, why, "its directory was not removed");
    Err(why)
}
