//! `prune`: removes ended sessions, and directories that belong to no session.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::reply::Pruned;
use protocol::request::{Prune, Remove};
use protocol::{ErrorCode, Lifecycle, Name, Refusal, Reply, Response, Session, SessionId};

use crate::decide::idempotency::ClientOperation;
use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::host::blocking_pool::Purpose;
use crate::host::clock::FileAges;
use crate::host::remove_tree::{self, UnrecordedDir};
use crate::verb::removal;

pub(super) async fn prune(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Prune) -> Reply {
    let older = Duration::from_millis(asked.older_ms);
    let find = move |turn: &mut Turn<'_>| {
        let (pool, now) = (turn.pool(), turn.now());
        let over = |s: &&Session| {
            let over = matches!(s.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
            let settled = s.budget.due_at.is_none() && !pool::session::is_restarting(s);
            over && settled && pool.age(now, s.changed_at) >= older
        };
        let named = |s: &Session| (s.id, s.name.clone(), pool.queue_size(s.id).0);
        pool.user_sessions().filter(over).map(named).partition(|(_, _, waiting)| *waiting == 0)
    };
    let (found, kept): (Vec<(SessionId, Name, u64)>, _) = daemon.engine.turn(find).await?;
    let mut pruned = Pruned { kept, ..Pruned::default() };
    for (id, name, _) in found {
        if asked.dry_run {
            pruned.sessions.push((id, name));
            continue;
        }
        let remove = Remove {
            session: id.into(),
            keep_tmux: false,
            force: false,
            purge: asked.purge,
            archive: asked.archive,
        };
        match removal::remove(daemon, None, remove).await {
            Ok(bytes) => {
                pruned.bytes += bytes;
                pruned.sessions.push((id, name));
            }
            Err(refusal) => pruned.failed.push(format!("{name}: {}", refusal.message)),
        }
    }
    remove_directories(daemon, &asked, &mut pruned).await?;
    let reply = Ok(Response::Pruned(pruned));
    let (operation, answer) = (op.clone(), reply.clone());
    daemon.engine.turn(move |turn| operation.record_answer(turn, &answer)).await?;
    reply
}

/// True if the directory is unchanged for `older`: no entry was added or removed.
fn is_old(dir: &Path, older: Duration, ages: &FileAges) -> bool {
    older.is_zero() || ages.is_old(std::fs::symlink_metadata(dir), older)
}

/// Removes directories of sessions without a record. A user's files are removed only with `--purge`.
async fn remove_directories(daemon: &Arc<Daemon>, asked: &Prune, pruned: &mut Pruned) -> Result<(), Refusal> {
    let known = |turn: &mut Turn<'_>| {
        let known = turn.pool().sessions().map(|s| s.id).collect::<std::collections::BTreeSet<_>>();
        (known, turn.pool().next_session(), turn.file_ages())
    };
    let (known, next, ages) = daemon.engine.turn(known).await?;
    let (sessions, purge, dry_run) = (daemon.paths.sessions.clone(), asked.purge, asked.dry_run);
    let meta = daemon.paths.meta();
    let older = Duration::from_millis(asked.older_ms);
    let processes = daemon.processes();
    let work = move || {
        let mut pruned = Pruned::default();
        // A directory with an id that is not given out yet may be in creation.
        let keep = |id: SessionId| known.contains(&id) || id.0 >= next;
        let found = remove_tree::unrecorded_dirs(&sessions, &keep);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                pruned.failed.push(error.to_string());
                return pruned;
            }
        };
        let due = |leftover: &UnrecordedDir| {
            let wanted = purge || !leftover.needs_purge;
            wanted
                && is_old(&leftover.path, older, &ages)
                && !removal::is_in_use(&*processes, &meta.join(leftover.id.to_string()))
        };
        for leftover in found.into_iter().filter(due) {
            if dry_run {
                pruned.directories.push(leftover.path.into());
                continue;
            }
            let kept = remove_tree::remove_session_dir(&meta, leftover.id, true);
            match kept.and_then(|_| remove_tree::remove_session_dir(&sessions, leftover.id, purge)) {
                Ok(removed) => {
                    pruned.bytes += removed.bytes;
                    pruned.directories.push(leftover.path.into());
                }
                Err(error) => pruned.failed.push(error.to_string()),
            }
        }
        pruned
    };
    let failed = |_| Refusal::new(ErrorCode::Failed, "the directories were not looked at");
    let found = daemon.blocking.without_timeout(Purpose::Removal, work).await.map_err(failed)?;
    pruned.directories = found.directories;
    pruned.bytes += found.bytes;
    pruned.failed.extend(found.failed);
    Ok(())
}
