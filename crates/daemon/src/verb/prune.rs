//! `prune`: removes ended sessions, and directories that belong to no session.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pool::session::TakenIds;
use protocol::reply::Pruned;
use protocol::request::{Prune, Remove};
use protocol::{Lifecycle, Name, Paths, Refusal, Reply, Response, Session, SessionId, Timestamp};
use world::processes::Processes;

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::host::archive::{self, Contents};
use crate::host::blocking_pool::Purpose;
use crate::host::clock::{FileAges, name_stamp};
use crate::host::remove_tree::{self, Removed, UnrecordedDir};
use crate::sense::user_dirs;
use crate::verb::{detached, files_in_use, removal};

pub(super) async fn prune(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Prune) -> Reply {
    let older = Duration::from_millis(asked.older_ms);
    let find = move |turn: &mut Turn<'_>| {
        let (pool, now) = (turn.pool(), turn.now());
        let over = |s: &&Session| {
            let over = matches!(s.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
            let settled = s.budget.due_at.is_none() && !pool::session::is_restarting(s);
            over && settled && pool.age(now, s.changed_at) >= older
        };
        let (kept, found): (Vec<&Session>, Vec<&Session>) =
            pool.user_sessions().filter(over).partition(|s| pool.queue_size(s.id).0 > 0);
        let kept = kept.into_iter().map(|s| (s.id, s.name.clone(), pool.queue_size(s.id).0));
        let found = found.into_iter().map(|s| (s.id, s.name.clone(), s.changed_at));
        (found.collect(), kept.collect())
    };
    let (found, kept): (Vec<(SessionId, Name, Timestamp)>, _) = daemon.engine.turn(find).await?;
    let mut pruned = Pruned { kept, ..Pruned::default() };
    for (id, name, listed_at) in found {
        if asked.dry_run {
            pruned.sessions.push((id, name));
            continue;
        }
        let remove = Remove {
            session: id.into(),
            purge: asked.purge,
            archive: asked.archive,
            only_ended: true,
            ..Remove::default()
        };
        let unused = match asked.purge {
            true => files_in_use::check_unused(daemon, id).await,
            false => Ok(()),
        };
        let removed = match unused {
            Ok(()) => removal::remove_listed(daemon, remove, listed_at).await,
            Err(refusal) => Err(refusal),
        };
        match removed {
            Ok(None) => {}
            Ok(Some(bytes)) => {
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

/// True if a session's directory and its `work/` are unchanged for `older`: no entry was added or removed.
fn is_old(dir: &Path, older: Duration, ages: &FileAges) -> bool {
    let work = std::fs::symlink_metadata(dir.join("work"));
    let is_worked_in = work.is_ok() && !ages.is_old(work, older);
    older.is_zero() || !is_worked_in && ages.is_old(std::fs::symlink_metadata(dir), older)
}

/// Removes directories of sessions without a record. A user's files are removed only with `--purge`; with
/// `--archive` nothing is removed before it is archived.
async fn remove_directories(daemon: &Arc<Daemon>, asked: &Prune, pruned: &mut Pruned) -> Result<(), Refusal> {
    let known = |turn: &mut Turn<'_>| (TakenIds::new(turn.pool()), turn.file_ages(), turn.now());
    let (taken, ages, now) = daemon.engine.turn(known).await?;
    let leftovers = Leftovers { paths: daemon.paths.clone(), asked: asked.clone(), ages, now };
    let leftovers = Arc::new(leftovers);
    let context = Arc::clone(&leftovers);
    let find = move || context.find(&|id| taken.contains(id));
    let found = daemon.blocking.without_timeout(Purpose::Removal, find).await.map_err(not_looked_for)?;
    let found = found.unwrap_or_else(|error| {
        pruned.failed.push(error.to_string());
        Vec::new()
    });
    let mut used = UsedDirs::default();
    for UnrecordedDir { id, path, .. } in found {
        // A session may be made in it while others are removed.
        let _removal = files_in_use::begin_removal(daemon, id).await;
        used.refresh(daemon).await?;
        let (context, processes, dirs) = (Arc::clone(&leftovers), daemon.processes(), used.all.clone());
        let remove = move || context.remove(id, &dirs, &*processes);
        match daemon.blocking.without_timeout(Purpose::Removal, remove).await.map_err(not_looked_for)? {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                pruned.bytes += bytes;
                pruned.directories.push(path.into());
            }
            Err(why) => pruned.failed.push(why),
        }
    }
    Ok(())
}

fn not_looked_for(error: std::io::Error) -> Refusal {
    Refusal::failed(format!("unused directories were not looked for: {error}"))
}

/// The working directories of the sessions on record.
#[derive(Default)]
struct UsedDirs {
    on_record: Vec<PathBuf>,
    /// The same directories, each by its own path and by its path without symbolic links.
    all: Arc<[PathBuf]>,
}

impl UsedDirs {
    async fn refresh(&mut self, daemon: &Daemon) -> Result<(), Refusal> {
        let used = |turn: &mut Turn<'_>| {
            turn.pool().sessions().map(|s| s.spec.cwd.as_path().to_owned()).collect::<Vec<_>>()
        };
        let on_record = daemon.engine.turn(used).await?;
        if on_record != self.on_record {
            let resolved = user_dirs::resolved(daemon, on_record.clone()).await;
            self.all = on_record.iter().cloned().chain(resolved).collect();
            self.on_record = on_record;
        }
        Ok(())
    }
}

/// The removal of directories that belong to no session.
struct Leftovers {
    paths: Paths,
    asked: Prune,
    ages: FileAges,
    now: Timestamp,
}

impl Leftovers {
    fn find(&self, keep: &dyn Fn(SessionId) -> bool) -> std::io::Result<Vec<UnrecordedDir>> {
        let mut found = remove_tree::unrecorded_dirs(&self.paths.sessions, keep)?;
        let older = Duration::from_millis(self.asked.older_ms);
        found.retain(|leftover| {
            let wanted = self.asked.purge || !leftover.needs_purge;
            wanted && is_old(&leftover.path, older, &self.ages)
        });
        Ok(found)
    }

    /// Removes a directory that is not in use. Returns the number of bytes freed.
    fn remove(
        &self,
        id: SessionId,
        used: &[PathBuf],
        processes: &dyn Processes,
    ) -> Result<Option<u64>, String> {
        if self.is_in_use(id, used, processes)? {
            return Ok(None);
        }
        if self.asked.dry_run {
            return Ok(Some(0));
        }
        self.remove_one(id).map(|removed| Some(removed.bytes))
    }

    /// True if a directory is in use or may be: it is the working directory of another session; or a program runs in it
    /// that was left to tmux, or that is not in the database because an older copy of it was restored.
    ///
    /// # Errors
    /// The log cannot be looked at.
    fn is_in_use(&self, id: SessionId, used: &[PathBuf], processes: &dyn Processes) -> Result<bool, String> {
        let dir = self.paths.session(id);
        let real = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let is_below = |used: &PathBuf| used.starts_with(&dir) || used.starts_with(&real);
        if used.iter().any(is_below) || detached::is_in_use(processes, &self.paths.meta_of(id)) {
            return Ok(true);
        }
        detached::has_log_writer(&dir).map_err(|error| detached::not_looked_at(&dir, &error))
    }

    fn remove_one(&self, id: SessionId) -> Result<Removed, String> {
        if self.asked.archive {
            self.archive(id).map_err(|why| removal::not_archived(id, &why))?;
        }
        remove_tree::remove_session_dir(&self.paths.meta(), id, true)
            .and_then(|_| remove_tree::remove_session_dir(&self.paths.sessions, id, self.asked.purge))
            .map_err(|error| error.to_string())
    }

    /// Archives the files of a session whose record and messages are gone.
    fn archive(&self, id: SessionId) -> Result<(), String> {
        let record = serde_json::to_vec_pretty(&serde_json::json!({ "id": id }));
        let contents = Contents {
            sessions: &self.paths.sessions,
            meta: &self.paths.meta(),
            session: id,
            record: &record.map_err(|error| error.to_string())?,
            messages: &mut || Ok(None),
            now: self.now,
            work: self.asked.purge,
        };
        let archives = self.paths.archives();
        let name = archive::unused_name(&archives, &format!("{id}-removed-{}", name_stamp(self.now)));
        let path = archive::write(&archives, &name, contents).map_err(|error| error.to_string())?;
        tracing::info!(session = %id, path = %path.display(), "archived");
        Ok(())
    }
}
