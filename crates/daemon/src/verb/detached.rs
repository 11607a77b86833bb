//! Sessions that were removed and left to tmux: their programs still use the directories of the pool, and their panes
//! lose the pool's marks once the record is gone.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::{Incarnation, ProcId, Session, SessionId};
use serde::{Deserialize, Serialize};
use tmux::TmuxError;
use tokio::time::sleep;
use world::processes::Processes;

use crate::engine::{Daemon, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::{files, remove_tree};

/// The file, in a session's metadata, with the incarnation that was left to tmux.
const NAME: &str = "detached";

/// Maximum size of that file, in bytes: it holds one incarnation.
const SIZE_MAX: u64 = 64 * 1024;

/// Pause before a tmux that did not answer is asked again, and the number of attempts.
const PAUSE: Duration = Duration::from_secs(5);
const TRIES: u32 = 60;

/// Pause before a log writer is looked for again, and the number of looks.
const WRITER_PAUSE: Duration = Duration::from_millis(50);
const WRITER_TRIES: u32 = 100;

/// An incarnation that was left to tmux.
#[derive(Debug, Serialize, Deserialize)]
struct Detached {
    /// The process whose end proves that nothing uses the directories any more. If it is unknown, only a reboot proves
    /// that.
    init: Option<ProcId>,
    /// The boot of the machine.
    boot: Option<String>,
    incarnation: Incarnation,
}

impl Detached {
    fn has_ended(&self, processes: &dyn Processes) -> bool {
        let is_earlier = self.boot.is_some() && self.boot != processes.boot_id();
        is_earlier || self.init.is_some_and(|init| processes.has_exited(init))
    }
}

/// Records that the running program of a session, if there is one, uses the session's directories. The mark
/// counts once the session's record is removed: until then the record itself shows the program.
pub(super) fn mark(daemon: &Daemon, session: &Session) -> io::Result<()> {
    let Some(run) = session.running() else {
        return Ok(());
    };
    let boot = daemon.world.processes.boot_id();
    let detached = Detached { init: run.init, boot, incarnation: run.clone() };
    let text = serde_json::to_vec(&detached).map_err(io::Error::from)?;
    files::write_atomic(&daemon.paths.meta_of(session.id).join(NAME), &text)
}

/// Removes the mark of a session that stays.
pub(super) fn unmark(daemon: &Daemon, session: SessionId) {
    let removed = std::fs::remove_file(daemon.paths.meta_of(session).join(NAME));
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%session, %error, "it stays marked as left to tmux, which has no effect while it has a record");
    }
}

/// True if a program that was left to tmux uses, or may use, the directory of the session with this metadata.
pub(super) fn is_in_use(processes: &dyn Processes, meta: &Path) -> bool {
    match read(meta) {
        Ok(Some(detached)) => !detached.has_ended(processes),
        Ok(None) => false,
        Err(error) => {
            tracing::warn!(meta = %meta.display(), %error, "its mark cannot be read: it counts as in use");
            true
        }
    }
}

/// Checks that nothing runs in the directories of a session that has ended, as after a backup was restored. The log of
/// a program that ended just now may be written for a moment longer.
///
/// # Errors
/// Why something may run on there.
pub(super) async fn check_unwritten(daemon: &Daemon, id: SessionId) -> Result<(), String> {
    for _ in 0..WRITER_TRIES {
        let dir = daemon.paths.session(id);
        let look = move || has_log_writer(&dir).map_err(|error| (error.kind(), not_looked_at(&dir, &error)));
        match daemon.blocking.with_timeout(Purpose::Logs, look).await {
            Some(Ok(false)) => return Ok(()),
            Some(Err((io::ErrorKind::PermissionDenied, why))) => return Err(why),
            Some(Ok(true) | Err(_)) | None => sleep(WRITER_PAUSE).await,
        }
    }
    Err("its log is still written or cannot be looked at, so something may run on in it".to_owned())
}

/// True if a log writer runs in the directory of a session. The session's program then runs as well, even without a
/// record of it.
///
/// # Errors
/// Its log cannot be looked at, so one may run.
pub(super) fn has_log_writer(session: &Path) -> io::Result<bool> {
    let logs = session.join("logs");
    Ok(logs::find_writer(&logs)? || logs::find_writer(&logs.join(protocol::logs::STDERR))?)
}

/// Says why the directory of a session stays if its log cannot be looked at.
pub(super) fn not_looked_at(session: &Path, error: &io::Error) -> String {
    format!("the log in {} cannot be looked at ({error}), so something may run on there", session.display())
}

/// Takes the pool's marks from the pane of an incarnation.
pub(super) async fn release(daemon: &Daemon, run: &Incarnation) -> Result<(), TmuxError> {
    let Some(pane) = pane_of(run) else { return Ok(()) };
    daemon.tmux.release(pane, run.is_adopted()).await.map(drop)
}

/// Takes the pool's marks from panes that an earlier daemon left to tmux, but did not release.
pub(crate) async fn release_left(daemon: Arc<Daemon>) {
    let known = daemon.engine.turn(|turn| turn.pool().sessions().map(|s| s.id).collect::<Vec<_>>()).await;
    let Ok(known) = known else { return };
    let (meta, processes) = (daemon.paths.meta(), daemon.processes());
    let find = move || {
        let keep = |id: SessionId| known.contains(&id);
        let dirs = remove_tree::unrecorded_dirs(&meta, &keep).unwrap_or_default();
        let detached = dirs.iter().filter_map(|dir| read(&dir.path).ok()?);
        detached.filter(|detached| !detached.has_ended(&*processes)).collect::<Vec<_>>()
    };
    for detached in daemon.blocking.without_timeout(Purpose::Removal, find).await.unwrap_or_default() {
        daemon.world.spawn("release", release_one(Arc::clone(&daemon), detached));
    }
}

/// Releases one pane, as soon as its tmux server answers.
async fn release_one(daemon: Arc<Daemon>, detached: Detached) {
    let server = detached.incarnation.server;
    let has_ended = || server.is_some_and(|server| daemon.processes().has_exited(server.process));
    for _ in 0..TRIES {
        match release(&daemon, &detached.incarnation).await {
            Ok(()) => return,
            // No answer proves nothing: its socket may have been deleted.
            Err(TmuxError::NoServer) if has_ended() => return,
            Err(error) => {
                tracing::debug!(tag = %detached.incarnation.tag, %error, "its pane keeps the pool's marks for now");
            }
        }
        sleep(PAUSE).await;
    }
    tracing::warn!(tag = %detached.incarnation.tag, "its pane keeps the pool's marks");
}

/// Reads the mark below this metadata; `None` if there is none.
fn read(meta: &Path) -> io::Result<Option<Detached>> {
    match files::read_bounded(&meta.join(NAME), SIZE_MAX) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::from),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
