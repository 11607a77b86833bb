//! The files of a log. Everything that changes them is done under the lock of the directory, and leaves
//! them right after each step.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use protocol::logs::{self, part_name};

use super::options::Options;
use super::{open_as, open_file, times};

/// A gzip file is never shorter: ten bytes at its start, two of nothing, eight at its end.
const GZIP_MIN: u64 = 20;
/// How long a lock that somebody holds is waited for. A program in the session can hold it for ever.
const LOCK_LIMIT: Duration = Duration::from_secs(1);
const LOCK_RETRY: Duration = Duration::from_millis(2);

/// An earlier part of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The offset of its first byte.
    pub offset: u64,
    /// How many bytes of the log it has; 0 where it is only there to tell its offset, or damaged.
    pub length: u64,
    /// How many bytes it has on disk.
    pub size: u64,
    /// Whether it is compressed.
    pub compressed: bool,
}

impl Part {
    /// The offset after its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Its name in the directory.
    #[must_use]
    pub fn name(&self) -> String {
        part_name(self.offset, self.compressed)
    }
}

/// The earlier parts of a log, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts(pub Vec<Part>);

impl Parts {
    /// Those of a log that may change meanwhile: what two looks in a row agree about.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn look(dir: &Path) -> io::Result<Self> {
        let mut seen = Self::list(dir)?;
        loop {
            let again = Self::list(dir)?;
            if again == seen {
                return Ok(seen);
            }
            seen = again;
        }
    }

    /// Those of a log that does not change meanwhile; none where there is no directory.
    pub(super) fn list(dir: &Path) -> io::Result<Self> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?,
        };
        let mut parts = BTreeMap::<u64, Part>::new();
        for entry in entries {
            let entry = entry?;
            let Some((offset, compressed)) = entry.file_name().to_str().and_then(logs::parse_part) else {
                continue;
            };
            let size = match entry.metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                found => found?.len(),
            };
            let length = if compressed { length_within(&entry.path(), size) } else { size };
            let part = Part { offset, length, size, compressed };
            let plain = |one: Part, other: Part| if one.compressed { other } else { one };
            let both = |known: Part| Part { size: known.size + size, ..plain(known, part) };
            let part = parts.get(&offset).map_or(part, |known| both(*known));
            parts.insert(offset, part);
        }
        let mut parts: Vec<Part> = parts.into_values().collect();
        // One that is damaged may say anything.
        for at in 1..parts.len() {
            let room = parts[at].offset - parts[at - 1].offset;
            parts[at - 1].length = parts[at - 1].length.min(room);
        }
        Ok(Self(parts))
    }

    /// The offset of the first byte that is still there.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.0.first().map_or(0, |part| part.offset)
    }

    /// The offset at which `output.log` begins.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, Part::end)
    }

    /// What they have on disk, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.0.iter().map(|part| part.size).sum()
    }
}

/// The length that a gzip file says it has within; 0 where it is none.
fn length_within(path: &Path, size: u64) -> u64 {
    let read = || {
        let mut file = open_file(path)?;
        file.seek(SeekFrom::End(-4))?;
        let mut length = [0; 4];
        file.read_exact(&mut length).map(|()| u32::from_le_bytes(length))
    };
    if size < GZIP_MIN { 0 } else { read().map_or(0, u64::from) }
}

/// The directory of a log.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    handle: File,
}

/// Nobody else changes the log before this is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a File);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Without a lock there is none to give back.
        drop(self.0.unlock());
    }
}

impl Files {
    /// Those in this directory, which is made where it is missing.
    pub(super) fn make(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Self::open(dir)
    }

    /// Those in this directory.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        // What is no directory is not waited for.
        let flags = (OFlag::O_DIRECTORY | OFlag::O_NONBLOCK).bits();
        let handle = OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
        Ok(Self { dir: dir.to_owned(), handle })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Refused where somebody else holds it for long. Where the file system has no locks there is one writer, and it
    /// goes on without.
    pub(super) fn lock(&self) -> io::Result<Held<'_>> {
        if is_kept_from(|| self.handle.try_lock()) {
            return Err(io::Error::new(ErrorKind::TimedOut, "somebody holds the lock of the log"));
        }
        Ok(Held(&self.handle))
    }

    /// Says that a writer is here, until what is returned is dropped. Who is kept from it by somebody goes on without.
    pub(super) fn announce(&self) -> io::Result<File> {
        let file = open_as(appending().create(true), &self.path(logs::LOCK))?;
        let _unsaid = is_kept_from(|| file.try_lock_shared());
        Ok(file)
    }

    /// Puts away what a writer left that was ended in the middle of something.
    pub(super) fn tidy(&self) -> io::Result<()> {
        let compressing = self.path(logs::COMPRESSING);
        // Another writer's, which still works at it.
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

    /// The file that is written to.
    pub(super) fn current(&self) -> io::Result<File> {
        open_as(appending().create(true), &self.path(logs::CURRENT))
    }

    /// Makes what was written to a part, and another file to write to, which exists before anything of
    /// the log is touched.
    pub(super) fn rotate(&self) -> io::Result<File> {
        let base = Parts::list(&self.dir)?.end();
        let (next, current) = (self.path(logs::NEXT), self.path(logs::CURRENT));
        remove(&next)?;
        let file = appending().create_new(true).open(&next)?;
        fs::rename(&current, self.path(&part_name(base, false)))?;
        fs::rename(&next, &current)?;
        Ok(file)
    }

    /// Drops the oldest parts while there are more than may be.
    pub(super) fn trim(&self, options: &Options) -> io::Result<()> {
        let mut parts = Parts::list(&self.dir)?;
        let full = |parts: &Parts| parts.0.iter().filter(|part| part.length > 0).count() as u64;
        let before = parts.start();
        while full(&parts) > options.keep()
            || parts.size() > options.parts()
            || (parts.0.len() > 1 && parts.0[0].length == 0)
        {
            if !self.drop_oldest(&mut parts)? {
                break;
            }
        }
        if parts.start() != before {
            times::trim(&self.dir, parts.start(), options.times());
        }
        Ok(())
    }

    /// Whether there was one to drop. The last one leaves an empty one behind. Emptied first, because
    /// whoever still reads it would keep its place on disk.
    pub(super) fn drop_oldest(&self, parts: &mut Parts) -> io::Result<bool> {
        let Some(&oldest) = parts.0.first() else { return Ok(false) };
        if parts.0.len() == 1 {
            if oldest.length == 0 {
                return Ok(false);
            }
            let mark = Part { offset: oldest.end(), length: 0, size: 0, compressed: false };
            open_as(appending().create(true), &self.path(&mark.name()))?;
            parts.0.push(mark);
        }
        for compressed in [true, false] {
            let path = self.path(&part_name(oldest.offset, compressed));
            drop(open_as(OpenOptions::new().write(true).truncate(true), &path));
            remove(&path)?;
        }
        parts.0.remove(0);
        Ok(true)
    }

    /// See [`super::clear`].
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

fn appending() -> OpenOptions {
    OpenOptions::new().append(true).mode(0o600).clone()
}

/// Whether a lock cannot be had because somebody holds it for long.
fn is_kept_from(mut lock: impl FnMut() -> Result<(), TryLockError>) -> bool {
    let deadline = Instant::now() + LOCK_LIMIT;
    while let Err(TryLockError::WouldBlock) = lock() {
        if Instant::now() >= deadline {
            return true;
        }
        thread::sleep(LOCK_RETRY);
    }
    false
}

/// Removes a file that may not be there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
