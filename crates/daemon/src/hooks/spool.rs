//! Reports that hooks left in files while no daemon answered them.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use protocol::hook::{Hook, SPOOL_DIR, Spooled};
use tokio::time::sleep;

use protocol::SessionId;

use super::order::is_undecided;
use crate::context::Daemon;
use crate::engine::Turn;
use crate::files;

/// Between two looks: a hook leaves a file only where the daemon is slow.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest file that is read, in bytes: a prompt as JSON, each byte escaped.
const FILE_MAX: u64 = 4 << 20;
/// Files that go into one turn: no more than pieces of work do otherwise; and no more once they have so many bytes.
const PIECE_FILES: usize = 256;
const PIECE_BYTES: u64 = 8 << 20;

/// Reads them for ever.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        if !read(&daemon).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Takes in what there is, each session's oldest first. Whether the daemon goes on. What is said of a prompt is heard once
/// it is decided whether that was typed: somebody may have said the same by hand.
pub(crate) async fn read(daemon: &Arc<Daemon>) -> bool {
    let running = |turn: &mut Turn<'_>| {
        let running = turn.pool().sessions().filter(|s| s.lifecycle.holds_slot()).map(|s| s.id);
        running.filter(|id| !is_undecided(turn, *id)).collect::<Vec<_>>()
    };
    let Ok(sessions) = daemon.engine.turn(running).await else { return false };
    read_of(daemon, &sessions).await
}

/// The same of these sessions.
pub(crate) async fn read_of(daemon: &Arc<Daemon>, sessions: &[SessionId]) -> bool {
    if sessions.is_empty() {
        return true;
    }
    let dirs: Vec<PathBuf> = sessions.iter().map(|id| daemon.paths.session(*id).join(SPOOL_DIR)).collect();
    let there = move || dirs.iter().map(|dir| files_in(dir)).filter(|files| !files.is_empty()).collect();
    let found: Vec<VecDeque<PathBuf>> = files::elsewhere(there).await.unwrap_or_default();
    for files in found {
        if !read_all(daemon, files).await {
            return false;
        }
    }
    true
}

/// Takes the files of one directory in, some at a time: each such piece is one commit. Whether the daemon goes on.
async fn read_all(daemon: &Arc<Daemon>, mut files: VecDeque<PathBuf>) -> bool {
    while !files.is_empty() {
        let read = move || {
            let piece = piece(&mut files);
            (piece, files)
        };
        // Where they do not answer they are looked for again later.
        let Some(((taken, hooks), left)) = files::elsewhere(read).await else { return true };
        let context = Arc::clone(daemon);
        let take = move |turn: &mut Turn<'_>| {
            // What waits for a decision has long gone to the terminal.
            hooks.into_iter().for_each(|hook| drop(super::take(turn, &context, hook)));
        };
        if daemon.engine.turn(take).await.is_err() {
            return false;
        }
        let remove = move || taken.into_iter().for_each(|path| drop(fs::remove_file(path)));
        if files::elsewhere(remove).await.is_none() {
            return true;
        }
        files = left;
    }
    true
}

/// The files of a directory by name, which begins with the time, but those that are still being written.
fn files_in(dir: &Path) -> VecDeque<PathBuf> {
    let is_whole = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
        path.extension().is_some_and(|e| e == "json") && !hidden
    };
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = names.filter(is_whole).collect();
    paths.sort();
    paths.into()
}

/// The next files, and what they say: as many as go into one turn. What none can read says nothing.
fn piece(files: &mut VecDeque<PathBuf>) -> (Vec<PathBuf>, Vec<Hook>) {
    let (mut taken, mut hooks, mut bytes) = (Vec::new(), Vec::new(), 0);
    while taken.len() < PIECE_FILES && bytes < PIECE_BYTES {
        let Some(path) = files.pop_front() else { break };
        match hook_in(&path) {
            Ok(Some((hook, size))) => {
                hooks.push(hook);
                bytes += size;
            }
            Ok(None) => {}
            // It is read another time, and what comes after it then as well.
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "what a hook left is not read yet");
                files.clear();
                break;
            }
        }
        taken.push(path);
    }
    (taken, hooks)
}

/// What a file says, and how many bytes it has; none where it says nothing.
///
/// # Errors
/// It may be read another time.
fn hook_in(path: &Path) -> io::Result<Option<(Hook, u64)>> {
    let text = files::open_regular(path, OFlag::O_NOFOLLOW).and_then(|(file, found)| {
        let mut text = Vec::new();
        let whole = found.len() <= FILE_MAX;
        file.take(FILE_MAX).read_to_end(&mut text).map(|_| whole.then_some(text))
    });
    let text = match text {
        Ok(text) => text,
        Err(error) if passes(&error) => return Err(error),
        Err(_) => None,
    };
    let Some(text) = text else { return Ok(None) };
    match serde_json::from_slice::<Spooled>(&text) {
        Ok(spooled) => Ok(Some((spooled.hook, text.len() as u64))),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a hook left what cannot be read");
            Ok(None)
        }
    }
}

/// Whether it is no fault of the file.
fn passes(error: &io::Error) -> bool {
    let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ESTALE];
    error.raw_os_error().is_some_and(|code| passing.contains(&Errno::from_raw(code)))
}
