//! Reports that hooks left in files while no daemon answered them.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::unistd::{UnlinkatFlags, unlinkat};
use protocol::SessionId;
use protocol::hook::{Hook, HookEvent, SPOOL_DIR, SPOOL_VERSION, SpooledHook};
use serde::Deserialize;
use tokio::time::sleep;

use crate::decide::hook_order::is_undecided;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::archive::tree::Folder;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::sense::notification::{is_notification, look_into};

/// Between two looks: a hook leaves a file only where the daemon is slow.
const PAUSE: Duration = Duration::from_secs(2);

/// The longest file that is read, in bytes: a prompt as JSON, each byte escaped.
const FILE_MAX: u64 = 4 << 20;

/// Files that go into one turn: no more than pieces of work do otherwise; and no more once they have so many bytes.
const PIECE_FILES: usize = 256;

const PIECE_BYTES: u64 = 8 << 20;

/// The most names of a directory that are looked at in one go.
const NAMES_MAX: usize = 20_000;

/// What the name of a file ends with that was put aside: nobody could read it.
const BAD: &[u8] = b".bad";

/// The most files of a session that are put aside and kept to be looked at.
const BAD_MAX: usize = 100;

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
    let (all, ids) = (daemon.paths.sessions.clone(), sessions.to_vec());
    let there = move || ids.into_iter().filter_map(|id| Spool::open(&all, id)).collect::<Vec<_>>();
    for spool in blocking::limited(Purpose::Spool, there).await.unwrap_or_default() {
        if !read_all(daemon, spool).await {
            return false;
        }
    }
    true
}

/// Takes the files of one directory in, some at a time: each such piece is one commit. Whether the daemon goes on.
async fn read_all(daemon: &Arc<Daemon>, mut spool: Spool) -> bool {
    while !spool.files.is_empty() {
        let read = move || {
            let piece = spool.piece();
            (piece, spool)
        };
        // Where they do not answer they are looked for again later.
        let Some(((taken, hooks), left)) = blocking::limited(Purpose::Spool, read).await else { return true };
        let (notifications, hooks): (Vec<_>, Vec<_>) = hooks.into_iter().partition(is_notification);
        notifications.into_iter().for_each(|hook| look_into(daemon, hook));
        let context = Arc::clone(daemon);
        let take = move |turn: &mut Turn<'_>| {
            // What waits for a decision has long gone to the terminal.
            hooks.into_iter().for_each(|hook| drop(crate::decide::hook::take(turn, &context, hook)));
        };
        if daemon.engine.turn(take).await.is_err() {
            return false;
        }
        let remove = move || {
            left.remove(&taken);
            left
        };
        let Some(left) = blocking::limited(Purpose::Spool, remove).await else { return true };
        spool = left;
    }
    true
}

/// The directory in which a session's hooks leave their reports. The session's program may put there, and in its place,
/// whatever it likes: nothing is reached but by descriptors, and no link is followed.
struct Spool {
    dir: Folder,
    /// Those still to be read, by name, which begins with the time.
    files: VecDeque<CString>,
    /// How many are put aside.
    bad: usize,
}

impl Spool {
    /// None where nothing is left.
    fn open(sessions: &Path, id: SessionId) -> Option<Self> {
        let (id, spool) = (CString::new(id.to_string()).ok()?, CString::new(SPOOL_DIR).ok()?);
        let dir = Folder::open(sessions).ok()?.enter(&id).ok()?.enter(&spool).ok()?;
        let names: Vec<CString> = dir.names().ok()?.take(NAMES_MAX).filter_map(Result::ok).collect();
        let bad = names.iter().filter(|name| name.to_bytes().ends_with(BAD)).count();
        // What is hidden is still being written.
        let is_whole =
            |name: &CString| name.to_bytes().ends_with(b".json") && !name.to_bytes().starts_with(b".");
        let mut files: Vec<CString> = names.into_iter().filter(is_whole).collect();
        files.sort();
        (!files.is_empty()).then_some(Self { dir, files: files.into(), bad })
    }

    /// The next files, and what they say: as many as go into one turn. What nobody can read is put aside.
    fn piece(&mut self) -> (Vec<CString>, Vec<Hook>) {
        let (mut taken, mut hooks, mut bytes) = (Vec::new(), Vec::new(), 0);
        while taken.len() < PIECE_FILES && bytes < PIECE_BYTES {
            let Some(name) = self.files.pop_front() else { break };
            match self.hook_in(&name) {
                Ok((hook, size)) => {
                    hooks.push(hook);
                    bytes += size;
                    taken.push(name);
                }
                // It is read another time, and what comes after it then as well.
                Err(Unread::Now(error)) => {
                    tracing::warn!(file = ?name, %error, "what a hook left is not read yet");
                    self.files.clear();
                    break;
                }
                Err(Unread::Ever(why)) => self.put_aside(&name, &why),
            }
        }
        (taken, hooks)
    }

    /// What a file says, and how many bytes it has.
    fn hook_in(&self, name: &CStr) -> Result<(Hook, u64), Unread> {
        let text = self.text(name).map_err(|error| match passes(&error) {
            true => Unread::Now(error),
            false => Unread::Ever(error.to_string()),
        })?;
        let version = serde_json::from_slice::<Version>(&text).map(|found| found.version);
        if let Ok(version) = version
            && version > SPOOL_VERSION
        {
            return Err(Unread::Ever(format!(
                "it is of version {version}; this build knows {SPOOL_VERSION}"
            )));
        }
        let spooled: SpooledHook = serde_json::from_slice(&text).map_err(|e| Unread::Ever(e.to_string()))?;
        let mut hook = spooled.hook;
        if let HookEvent::Permission { wait_ms, .. } = &mut hook.signal {
            // Whoever left it asks at its terminal by now: nobody waits for an answer.
            *wait_ms = 0;
        }
        Ok((hook, text.len() as u64))
    }

    fn text(&self, name: &CStr) -> io::Result<Vec<u8>> {
        let file = self.dir.read(name)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut text = Vec::new();
        file.take(FILE_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > FILE_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
    }

    /// It is not tried again. The first of them are kept for whoever looks for what is missing.
    fn put_aside(&mut self, name: &CStr, why: &str) {
        tracing::warn!(file = ?name, why, "what a hook left cannot be read; it is put aside");
        self.bad += 1;
        let aside = CString::new([name.to_bytes(), BAD].concat());
        let renamed = aside.map_err(io::Error::from).and_then(|aside| {
            let keeps = self.bad <= BAD_MAX;
            if keeps {
                Ok(renameat(&self.dir, name, &self.dir, aside.as_c_str())?)
            } else {
                Err(io::ErrorKind::QuotaExceeded.into())
            }
        });
        if renamed.is_err() {
            self.remove(&[name.to_owned()]);
        }
    }

    fn remove(&self, names: &[CString]) {
        for name in names {
            // What is left is a report that was heard: it says nothing a second time.
            unlinkat(&self.dir, name.as_c_str(), UnlinkatFlags::NoRemoveDir).ok();
        }
    }
}

/// Only this of a file that another version wrote.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// Why a file is not taken in.
enum Unread {
    /// It may be read another time.
    Now(io::Error),
    /// It never will.
    Ever(String),
}

/// Whether it is no fault of the file.
fn passes(error: &io::Error) -> bool {
    let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ESTALE, Errno::EIO, Errno::ETIMEDOUT];
    error.raw_os_error().is_some_and(|code| passing.contains(&Errno::from_raw(code)))
}
