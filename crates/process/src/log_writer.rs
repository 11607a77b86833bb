//! `reaper log DIR`: writes what a pane prints to the files of its session's log ([`protocol::logs`]).
//!
//! Whatever happens to the disk, the writer goes on reading: a pane must never wait for its log. What
//! is kept is bounded: each file has a fixed share, and the oldest part goes when there are too many.

mod compress;
mod copy;
mod files;
mod input;
mod log;
mod options;
pub mod times;

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::signal::{SigHandler, Signal, signal};
use protocol::logs;

pub use files::{Part, Parts};
pub use options::Options;

use crate::file;
use files::Files;
use log::Log;

/// Ended by the end of its input alone; a full disk or a file size limit is handled, not died of.
const IGNORED: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGPIPE, Signal::SIGXFSZ];
/// What a log writer is called in a list of processes.
const NAME: &[u8] = b"pool-log";
/// How long a log that cannot be opened is tried again.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(10);

/// Appends standard input to the log until its end. The directory is made (0700) where it is
/// missing, the files too (0600).
///
/// # Errors
/// Where the log cannot be opened, or standard input cannot be read. A write that fails is no
/// error: what is lost is counted, and the log says so once it can be written again.
pub fn write_log(options: &Options) -> io::Result<()> {
    crate::init::be_called(NAME);
    ignore_signals()?;
    let pieces = input::pieces(io::stdin())?;
    let (_present, mut log) = open(options)?;
    let result = copy::copy(pieces, &mut log);
    log.end();
    result
}

/// Whether a writer of this log runs.
#[must_use]
pub fn has_writer(dir: &Path) -> bool {
    [logs::LOCK, logs::CURRENT].iter().any(|name| is_held(&dir.join(name)))
}

/// Opens a file of a log to read it. What a session put in its place is neither waited for nor followed.
///
/// # Errors
/// It cannot be opened, or is a symbolic link or no regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_as(OpenOptions::new().read(true), path)
}

/// The same, as these options say.
fn open_as(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    file::open_regular(options, OFlag::O_NOFOLLOW, path).map(|(file, _)| file)
}

/// Empties a log, whether it is being written or not. Offsets go on.
///
/// # Errors
/// Somebody holds its lock, or a file cannot be renamed, made or removed; what is left is in order.
pub fn clear(dir: &Path) -> io::Result<()> {
    let files = match Files::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let _held = files.lock()?;
    files.clear()
}

/// The lock that says that a writer is there, and the log. Tried again for a while where the machine
/// lacks something, or somebody holds the lock: what comes meanwhile is read and, beyond some of it, counted.
fn open(options: &Options) -> io::Result<(File, Log)> {
    let deadline = Instant::now() + OPEN_LIMIT;
    loop {
        match Files::make(&options.dir).and_then(|files| Ok((files.announce()?, Log::open(files, options)?)))
        {
            Err(_) if Instant::now() < deadline => std::thread::sleep(RETRY),
            result => return result,
        }
    }
}

/// Whether somebody holds a lock on it.
fn is_held(path: &Path) -> bool {
    open_file(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

#[expect(unsafe_code, reason = "dispositions have no safe interface")]
fn ignore_signals() -> io::Result<()> {
    for number in IGNORED {
        // SAFETY: no handler is installed that could run.
        unsafe { signal(number, SigHandler::SigIgn) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
