//! `reaper log DIR`: writes the output of a pane to the files of its session's log ([`protocol::logs`]).
//!
//! The writer keeps reading whatever happens to the disk: a pane must never wait for its log. The size of the
//! log is bounded: each file has a fixed share, and the oldest part is dropped when there are too many.
//!
//! In the order in which output travels: `stdin_reader` reads it, `copy` writes it and counts losses, `rotating_log` is
//! the log as one stream; `directory`, `log_parts` and `access` are its files, `presence` tells whether a writer runs
//! or was lost, [`times`] is the index of when which byte was written, `compress` the thread that compresses earlier
//! parts. `hold` is the lock of a reader, `writer_options` parses the command line.

mod access;
mod compress;
mod copy;
mod directory;
mod hold;
mod log_parts;
mod presence;
mod rotating_log;
mod stdin_reader;
pub mod times;
mod writer_options;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::platform;
use directory::LogDir;
use nix::sys::signal::{SigHandler, Signal, signal};
use presence::Presence;
use rotating_log::RotatingLog;

pub use access::{is_shortage, open_file, refuse_links};
pub use hold::{hold, is_held};
pub use log_parts::{Part, Parts};
pub use presence::{find_writer, has_writer, is_writer_lost};
pub use writer_options::WriterOptions;

/// Ignored signals: only the end of its input ends the writer, and it handles a full disk or a file size
/// limit itself.
const IGNORED: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGPIPE, Signal::SIGXFSZ];
/// Name of a log writer in process listings.
const NAME: &[u8] = b"pool-log";
/// Total time of attempts to open the log.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Appends standard input to the log until its end. Creates the directory (0700) and the files (0600) if they
/// are missing.
///
/// # Errors
/// The log cannot be opened, or standard input cannot be read. A failed write is not an error: lost bytes are
/// counted, and a notice is written to the log once that is possible again. If it never is, this writer counts as lost.
pub fn write_log(options: &WriterOptions) -> io::Result<()> {
    platform::set_process_name(NAME);
    ignore_signals()?;
    write_from(io::stdin(), options)
}

/// As [`write_log`], from this input, in a process that has other work.
pub fn write_from(input: impl io::Read + Send + 'static, options: &WriterOptions) -> io::Result<()> {
    let chunks = stdin_reader::read_chunks(input)?;
    let (mut presence, mut log) = open(options)?;
    let unreported = copy::copy(chunks, &mut log);
    if matches!(unreported, Ok(0)) {
        presence.tell_end();
    }
    log.finish();
    unreported.map(drop)
}

/// Empties a log, also while it is being written. Offsets continue.
///
/// # Errors
/// A link is in place of the directory, another process holds its lock, or a file cannot be renamed, created or
/// removed; what is left is consistent.
pub fn clear(dir: &Path) -> io::Result<()> {
    let files = match LogDir::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let _lock = files.lock()?;
    files.clear()
}

/// Opens the lock that announces the writer, and the log. Retries for a while if a resource is exhausted or
/// another process holds the lock; meanwhile the input is buffered and, beyond the buffer, counted as lost.
fn open(options: &WriterOptions) -> io::Result<(Presence, RotatingLog)> {
    let (is_alone, is_lost) = (!has_writer(&options.dir), is_writer_lost(&options.dir));
    let options = &WriterOptions { resumed: options.resumed || is_lost, ..options.clone() };
    let deadline = Instant::now() + OPEN_TIMEOUT;
    loop {
        let opened = LogDir::create(&options.dir).and_then(|files| {
            Ok((Presence::announce(&files, is_alone)?, RotatingLog::open(files, options)?))
        });
        match opened {
            Err(_) if Instant::now() < deadline => std::thread::sleep(RETRY_PAUSE),
            result => return result,
        }
    }
}

#[expect(unsafe_code, reason = "signal dispositions have no safe interface")]
fn ignore_signals() -> io::Result<()> {
    for number in IGNORED {
        // SAFETY: no handler is installed.
        unsafe { signal(number, SigHandler::SigIgn) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
