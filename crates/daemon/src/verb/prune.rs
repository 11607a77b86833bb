//! `prune`: what is over, and directories that belong to nobody.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::reply::Pruned;
use protocol::request::{Prune, Remove};
use protocol::{ErrorCode, Lifecycle, Name, Refusal, Reply, Response, Session, SessionId};

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking::Purpose;
use crate::host::clock::Ages;
use crate::host::remove_tree::Leftover;
use crate::host::{blocking, remove_tree};
use crate::verb::remove;

pub(super) async fn prune(daemon: &Arc<Daemon>, op: &Op, asked: Prune) -> Reply {
    let older = Duration::from_millis(asked.older_ms);
    let find = move |turn: &mut Turn<'_>| {
        let (pool, now) = (turn.pool(), turn.now());
        let over = |s: &&Session| {
            let over = matches!(s.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
            let settled = s.budget.due_at.is_none() && !pool::is_between(s);
            over && settled && pool.age(now, s.changed_at) >= older && pool::queue::is_empty(pool, s.id)
        };
        let found = pool.sessions().filter(over).map(|s| (s.id, s.name.clone()));
        found.collect::<Vec<(SessionId, Name)>>()
    };
    let found = daemon.engine.turn(find).await?;
    let mut pruned = Pruned::default();
    for (id, name) in found {
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
        match remove::take_away(daemon, None, remove).await {
            Ok(bytes) => {
                pruned.bytes += bytes;
                pruned.sessions.push((id, name));
            }
            Err(refusal) => pruned.failed.push(format!("{name}: {}", refusal.message)),
        }
    }
    directories(daemon, &asked, &mut pruned).await?;
    let reply = Ok(Response::Pruned(pruned));
    let (operation, answer) = (op.clone(), reply.clone());
    daemon.engine.turn(move |turn| operation.conclude(turn, &answer)).await?;
    reply
}

/// Whether nothing was put into it or taken out of it for so long.
fn is_old(dir: &Path, older: Duration, ages: &Ages) -> bool {
    older.is_zero() || ages.is_old(std::fs::symlink_metadata(dir), older)
}

/// Directories of sessions that have no record; somebody's work only goes where that was asked for.
async fn directories(daemon: &Arc<Daemon>, asked: &Prune, pruned: &mut Pruned) -> Result<(), Refusal> {
    let known = |turn: &mut Turn<'_>| {
        let known = turn.pool().sessions().map(|s| s.id).collect::<std::collections::BTreeSet<_>>();
        (known, turn.pool().next_session(), turn.ages())
    };
    let (known, next, ages) = daemon.engine.turn(known).await?;
    let (sessions, purge, dry_run) = (daemon.paths.sessions.clone(), asked.purge, asked.dry_run);
    let meta = daemon.paths.meta();
    let older = Duration::from_millis(asked.older_ms);
    let work = move || {
        let mut pruned = Pruned::default();
        // One whose number is still to come may be made right now.
        let keep = |id: SessionId| known.contains(&id) || id.0 >= next;
        let found = remove_tree::leftovers(&sessions, &keep);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                pruned.failed.push(error.to_string());
                return pruned;
            }
        };
        let due = |leftover: &Leftover| {
            let wanted = purge || !leftover.kept;
            wanted
                && is_old(&leftover.path, older, &ages)
                && !remove::is_in_use(&meta.join(leftover.id.to_string()))
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
    let found = blocking::unlimited(Purpose::Removal, work).await.map_err(failed)?;
    pruned.directories = found.directories;
    pruned.bytes += found.bytes;
    pruned.failed.extend(found.failed);
    Ok(())
}
