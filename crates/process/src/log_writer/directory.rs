//! The directory of a log. Every change of its files is made under the directory's lock, and leaves them
//! consistent after each step.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use protocol::logs::{self, part_name};

use super::access::{appending, open_directory, open_file, open_with, refuse_links, remove};
use super::log_parts::{Part, Parts};
use super::times;
use super::writer_options::WriterOptions;

/// Maximum time to wait for a lock. Bounded, because a program in the session can hold it for ever.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(super) struct LogDir {
    dir: PathBuf,
    handle: File,
}

/// The lock of the directory, released on drop.
#[derive(Debug)]
pub(super) struct LogLock<'a>(&'a File);

impl Drop for LogLock<'_> {
    fn drop(&mut self) {
        // Fails harmlessly on a file system without locks.
        drop(self.0.unlock());
    }
}

impl LogDir {
    /// Opens the directory, and creates it if it is missing.
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        refuse_links(dir)?;
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Self::open(dir)
    }

    /// Opens an existing directory.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        refuse_links(dir)?;
        Ok(Self { dir: dir.to_owned(), handle: open_directory(dir)? })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Takes the lock; fails if another process holds it until the timeout, or if the directory was replaced by a link
    /// meanwhile: its files are reached by path. On a file system without locks it succeeds without effect, because
    /// there is only one writer.
    pub(super) fn lock(&self) -> io::Result<LogLock<'_>> {
        if times_out(|| self.handle.try_lock()) {
            return Err(io::Error::new(ErrorKind::TimedOut, "another process holds the lock of the log"));
        }
        let lock = LogLock(&self.handle);
        refuse_links(&self.dir)?;
        Ok(lock)
    }

    /// Announces a running writer, until the returned file is dropped. Also returned without the lock, if
    /// another process holds that until the timeout.
    pub(super) fn announce_writer(&self) -> io::Result<File> {
        let file = open_with(appending().create(true), &self.path(logs::LOCK))?;
        let _not_announced = times_out(|| file.try_lock_shared());
        Ok(file)
    }

    /// Removes the unfinished files of a writer that was killed.
    pub(super) fn remove_unfinished(&self) -> io::Result<()> {
        let compressing = self.path(logs::COMPRESSING);
        // A locked file belongs to another writer that is still compressing.
        if !open_file(&compressing).is_ok_and(|file| file.try_lock().is_err()) {
            remove(&compressing)?;
        }
        for name in [logs::NEXT, logs::NEW_TIMES] {
            remove(&self.path(name))?;
        }
        for part in Parts::list(&self.dir)?.0.iter().filter(|part| !part.compressed) {
            remove(&self.path(&part_name(part.offset, true)))?;
        }
        Ok(())
    }

    /// Opens the current file, to which output is appended.
    pub(super) fn current(&self) -> io::Result<File> {
        open_with(appending().create(true), &self.path(logs::CURRENT))
    }

    /// Renames the current file to a part and returns a new current file. The new file is created first, so
    /// that a failure leaves the log unchanged.
    pub(super) fn rotate(&self) -> io::Result<File> {
        let base = Parts::list(&self.dir)?.end();
        let (next, current) = (self.path(logs::NEXT), self.path(logs::CURRENT));
        remove(&next)?;
        let file = appending().create_new(true).open(&next)?;
        fs::rename(&current, self.path(&part_name(base, false)))?;
        fs::rename(&next, &current)?;
        Ok(file)
    }

    /// Drops the oldest parts while there are too many.
    pub(super) fn trim(&self, options: &WriterOptions) -> io::Result<()> {
        let mut parts = Parts::list(&self.dir)?;
        let nonempty = |parts: &Parts| parts.0.iter().filter(|part| part.length > 0).count() as u64;
        let before = parts.start();
        while nonempty(&parts) > options.keep()
            || parts.size() > options.max_parts_size()
            || (parts.0.len() > 1 && parts.0[0].length == 0)
        {
            if !self.drop_oldest(&mut parts)? {
                break;
            }
        }
        if parts.start() != before {
            times::trim(&self.dir, parts.start(), options.max_times_size());
        }
        Ok(())
    }

    /// Drops the oldest part; false if there is none. An empty part is left in place of the last one, to keep
    /// the offset. The file is truncated before it is removed, because an open reader would keep its disk
    /// space.
    pub(super) fn drop_oldest(&self, parts: &mut Parts) -> io::Result<bool> {
        let Some(&oldest) = parts.0.first() else { return Ok(false) };
        if parts.0.len() == 1 {
            if oldest.length == 0 {
                return Ok(false);
            }
            let mark = Part { offset: oldest.end(), length: 0, size: 0, compressed: false };
            open_with(appending().create(true), &self.path(&mark.name()))?;
            parts.0.push(mark);
        }
        for compressed in [true, false] {
            let path = self.path(&part_name(oldest.offset, compressed));
            drop(open_with(OpenOptions::new().write(true).truncate(true), &path));
            remove(&path)?;
        }
        parts.0.remove(0);
        Ok(true)
    }

    /// Empties the log; see [`super::clear`].
    pub(super) fn clear(&self) -> io::Result<()> {
        if self.path(logs::CURRENT).exists() {
            self.rotate()?;
        }
        let mut parts = Parts::list(&self.dir)?;
        while self.drop_oldest(&mut parts)? {}
        times::trim(&self.dir, parts.end(), 0);
        Ok(())
    }
}

/// Retries a lock; true if another process holds it until the timeout.
fn times_out(mut lock: impl FnMut() -> Result<(), TryLockError>) -> bool {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    while let Err(TryLockError::WouldBlock) = lock() {
        if Instant::now() >= deadline {
            return true;
        }
        thread::sleep(LOCK_RETRY_PAUSE);
    }
    false
}
