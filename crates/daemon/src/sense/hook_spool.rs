//! Reports that hooks spooled in files while no daemon answered them.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io::{self, Read};
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

use crate::decide::hook::take_in;
use crate::decide::hook_order::is_typing_undecided;
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::dir_tree::Dir;
use crate::sense::aider_notification::{is_notification, resolve_in_background};

/// Time between two reads: a hook spools a report only if the daemon is slow or absent.
const PAUSE: Duration = Duration::from_secs(2);

/// Maximum size in bytes of a file that is read: a prompt as JSON, each byte escaped.
const FILE_MAX: u64 = 4 << 20;

/// Maximum number of files in a batch, as many as pieces of work in a turn; a batch also ends once it has
/// this many bytes.
const BATCH_FILES: usize = 256;
const BATCH_BYTES: u64 = 8 << 20;

/// Maximum number of names of a directory read at once.
const NAMES_MAX: usize = 20_000;

/// Suffix of the name of a quarantined file, which could not be read.
const BAD: &[u8] = b".bad";

/// Maximum number of quarantined files kept for each session.
const BAD_MAX: usize = 100;

/// Reads the spools periodically, until the engine stops.
pub(crate) async fn run(daemon: Arc<Daemon>) {
    loop {
        if !read(&daemon).await {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// Applies the spooled reports of running sessions, each session's in order. Returns false once the engine
/// has stopped. Reports wait while it is undecided whether a prompt was typed: a person may have typed the
/// same text.
pub(crate) async fn read(daemon: &Arc<Daemon>) -> bool {
    let running = |turn: &mut Turn<'_>| {
        let running = turn.pool().sessions().filter(|s| s.lifecycle.holds_slot()).map(|s| s.id);
        running.filter(|id| !is_typing_undecided(turn, *id)).collect::<Vec<_>>()
    };
    let Ok(sessions) = daemon.engine.turn(running).await else { return false };
    read_of(daemon, &sessions).await
}

/// Applies the spooled reports of these sessions. Returns false once the engine has stopped.
pub(crate) async fn read_of(daemon: &Arc<Daemon>, sessions: &[SessionId]) -> bool {
    if sessions.is_empty() {
        return true;
    }
    let (all, ids) = (daemon.paths.sessions.clone(), sessions.to_vec());
    let open = move || ids.into_iter().filter_map(|id| SpoolDir::open(&all, id)).collect::<Vec<_>>();
    for spool in daemon.blocking.with_timeout(Purpose::HookSpool, open).await.unwrap_or_default() {
        if !read_all(daemon, spool).await {
            return false;
        }
    }
    true
}

/// Applies the files of one directory in batches, each in one commit. Returns false once the engine has
/// stopped.
async fn read_all(daemon: &Arc<Daemon>, mut spool: SpoolDir) -> bool {
    while !spool.files.is_empty() {
        let read = move || {
            let batch = spool.next_batch();
            (batch, spool)
        };
        // Files that do not answer are read again later.
        let Some(((taken, hooks), left)) = daemon.blocking.with_timeout(Purpose::HookSpool, read).await
        else {
            return true;
        };
        let (notifications, hooks): (Vec<_>, Vec<_>) = hooks.into_iter().partition(is_notification);
        notifications.into_iter().for_each(|hook| resolve_in_background(daemon, hook));
        let context = Arc::clone(daemon);
        let take = move |turn: &mut Turn<'_>| {
            // A request that waited for a decision has long been shown at the terminal.
            hooks.into_iter().for_each(|hook| drop(take_in(turn, &context, hook)));
        };
        if daemon.engine.turn(take).await.is_err() {
            return false;
        }
        let remove = move || {
            left.remove(&taken);
            left
        };
        let Some(left) = daemon.blocking.with_timeout(Purpose::HookSpool, remove).await else { return true };
        spool = left;
    }
    true
}

/// The directory in which a session's hooks spool their reports. The session's program may put anything
/// there, or in its place: everything is reached by descriptors, and no link is followed.
struct SpoolDir {
    dir: Dir,
    session: SessionId,
    /// Files still to be read, in the order of their names, which begin with the time.
    files: VecDeque<CString>,
    /// Number of quarantined files.
    bad: usize,
}

impl SpoolDir {
    /// Opens the spool directory of a session; `None` if it contains no report.
    fn open(sessions: &Path, session: SessionId) -> Option<Self> {
        let (id, spool) = (CString::new(session.to_string()).ok()?, CString::new(SPOOL_DIR).ok()?);
        let dir = Dir::open(sessions).ok()?.open_dir(&id).ok()?.open_dir(&spool).ok()?;
        let names: Vec<CString> = dir.names().ok()?.take(NAMES_MAX).filter_map(Result::ok).collect();
        let bad = names.iter().filter(|name| name.to_bytes().ends_with(BAD)).count();
        // Hidden files are still being written.
        let is_whole =
            |name: &CString| name.to_bytes().ends_with(b".json") && !name.to_bytes().starts_with(b".");
        let mut files: Vec<CString> = names.into_iter().filter(is_whole).collect();
        files.sort();
        (!files.is_empty()).then_some(Self { dir, session, files: files.into(), bad })
    }

    /// Returns the next batch of files, and their reports. Unreadable files are quarantined.
    fn next_batch(&mut self) -> (Vec<CString>, Vec<Hook>) {
        let (mut taken, mut hooks, mut bytes) = (Vec::new(), Vec::new(), 0);
        while taken.len() < BATCH_FILES && bytes < BATCH_BYTES {
            let Some(name) = self.files.pop_front() else { break };
            match self.hook_in(&name) {
                Ok((hook, size)) => {
                    hooks.push(hook);
                    bytes += size;
                    taken.push(name);
                }
                // This file and those after it are read another time.
                Err(Unread::Temporary(error)) => {
                    tracing::warn!(file = ?name, %error, "a spooled report of a hook cannot be read yet");
                    self.files.clear();
                    break;
                }
                Err(Unread::Permanent(why)) => self.quarantine(&name, &why),
            }
        }
        (taken, hooks)
    }

    /// Returns the report in a file, and the file's size in bytes.
    fn hook_in(&self, name: &CStr) -> Result<(Hook, u64), Unread> {
        let text = self.text(name).map_err(|error| match is_temporary(&error) {
            true => Unread::Temporary(error),
            false => Unread::Permanent(error.to_string()),
        })?;
        let version = serde_json::from_slice::<Version>(&text).map(|found| found.version);
        if let Ok(version) = version
            && version > SPOOL_VERSION
        {
            return Err(Unread::Permanent(format!(
                "it is of version {version}; this build knows {SPOOL_VERSION}"
            )));
        }
        let spooled: SpooledHook =
            serde_json::from_slice(&text).map_err(|e| Unread::Permanent(e.to_string()))?;
        let mut hook = spooled.hook;
        // A session's program writes here what it likes, but only about itself.
        if hook.session != self.session {
            return Err(Unread::Permanent("it is of another session".to_owned()));
        }
        if let HookEvent::Permission { wait_ms, .. } = &mut hook.signal {
            // The agent asks at its terminal by now: no hook waits for an answer.
            *wait_ms = 0;
        }
        Ok((hook, text.len() as u64))
    }

    fn text(&self, name: &CStr) -> io::Result<Vec<u8>> {
        let file = self.dir.open_file(name)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        let mut text = Vec::new();
        file.take(FILE_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > FILE_MAX { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
    }

    /// Quarantines a file: it is not read again. The first ones are kept for inspection.
    fn quarantine(&mut self, name: &CStr, why: &str) {
        tracing::warn!(file = ?name, why, "a spooled report of a hook cannot be read; it is quarantined");
        self.bad += 1;
        let quarantined = CString::new([name.to_bytes(), BAD].concat());
        let renamed = quarantined.map_err(io::Error::from).and_then(|quarantined| {
            let keeps = self.bad <= BAD_MAX;
            if keeps {
                Ok(renameat(&self.dir, name, &self.dir, quarantined.as_c_str())?)
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
            // A file that stays is a known report: reading it again has no effect.
            unlinkat(&self.dir, name.as_c_str(), UnlinkatFlags::NoRemoveDir).ok();
        }
    }
}

/// The part of a file that every version of the format has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The reason why a file was not read.
enum Unread {
    /// It may be readable later.
    Temporary(io::Error),
    /// It never will be readable.
    Permanent(String),
}

/// True if the error is not caused by the file.
fn is_temporary(error: &io::Error) -> bool {
    let passing = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::ESTALE, Errno::EIO, Errno::ETIMEDOUT];
    error.raw_os_error().is_some_and(|code| passing.contains(&Errno::from_raw(code)))
}

#[cfg(test)]
mod tests {
    use protocol::{Tag, Timestamp};

    use super::*;

    #[test]
    fn a_report_counts_only_in_the_spool_of_its_own_session() {
        let sessions = tempfile::tempdir().unwrap();
        let spool = sessions.path().join("sess_3").join(SPOOL_DIR);
        std::fs::create_dir_all(&spool).unwrap();
        for (name, session) in [("1.json", SessionId(14)), ("2.json", SessionId(3))] {
            let hook = Hook {
                session,
                tag: Tag([7; 16]),
                id: 1,
                at: Timestamp(5),
                awake: None,
                agent: "claude".to_owned(),
                conversation: None,
                transcript: None,
                signal: HookEvent::TurnOver { turn: None, said: None },
            };
            let json = serde_json::to_vec(&SpooledHook { version: SPOOL_VERSION, hook }).unwrap();
            std::fs::write(spool.join(name), json).unwrap();
        }
        let (taken, hooks) = SpoolDir::open(sessions.path(), SessionId(3)).unwrap().next_batch();
        assert_eq!(hooks.iter().map(|hook| hook.session).collect::<Vec<_>>(), [SessionId(3)]);
        assert_eq!(taken, [c"2.json".to_owned()]);
        assert!(spool.join("1.json.bad").exists(), "quarantined");
    }
}
