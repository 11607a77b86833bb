//! `reaper log DIR`: writes what a pane prints to `DIR/output.log`.
//!
//! The file only grows by appending. While the writer runs it holds an exclusive lock (`flock`) on
//! it: a reader that gets a shared lock, once the pane has ended, knows that all of the output is
//! there. Whatever happens to the disk, the writer goes on reading: a pane must never wait for its log.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, signal};

/// The name of the log within its directory.
pub const LOG_NAME: &str = "output.log";

/// What is read at once, in bytes: twice what a pipe holds.
const BUFFER: usize = 128 * 1024;
/// How long a writer that is being replaced has to finish.
const HANDOVER: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(10);
/// Ended by the end of its input alone; a full disk or a file size limit is handled, not died of.
const IGNORED: [Signal; 5] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM, Signal::SIGPIPE, Signal::SIGXFSZ];

/// How long a log that cannot be opened is tried again.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// Appends standard input to the log until its end. The directory is made (0700) where it is
/// missing, the file too (0600).
///
/// # Errors
/// Where the file cannot be opened, or standard input cannot be read. A write that fails is no
/// error: what is lost is counted, and the log says so once it can be written again.
pub fn write_log(dir: &Path) -> io::Result<()> {
    ignore_signals()?;
    let file = open(dir)?;
    let mut lock = Lock { file: &file, held: false };
    lock.wait();
    copy(io::stdin().lock(), &file, || lock.attempt())
}

/// The log, tried again for a while where the machine lacks something: what is written meanwhile
/// waits in the pipe.
fn open(dir: &Path) -> io::Result<File> {
    let deadline = Instant::now() + OPEN_LIMIT;
    loop {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        let log = OpenOptions::new().append(true).create(true).mode(0o600).clone();
        match made.and_then(|()| log.open(dir.join(LOG_NAME))) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(RETRY),
            result => return result,
        }
    }
}

#[expect(unsafe_code, reason = "dispositions have no safe interface")]
fn ignore_signals() -> io::Result<()> {
    for number in IGNORED {
        // SAFETY: no handler is installed that could run.
        unsafe { signal(number, SigHandler::SigIgn) }?;
    }
    Ok(())
}

/// The writer's lock. Another writer may still be finishing: it is waited for briefly, and after
/// that the lock is taken whenever it comes free.
struct Lock<'a> {
    file: &'a File,
    held: bool,
}

impl Lock<'_> {
    fn wait(&mut self) {
        let deadline = Instant::now() + HANDOVER;
        self.attempt();
        while !self.held && Instant::now() < deadline {
            std::thread::sleep(RETRY);
            self.attempt();
        }
    }

    fn attempt(&mut self) {
        self.held = self.held || self.file.try_lock().is_ok();
    }
}

/// Copies to the end of the input; `before_each` runs before each write.
fn copy(mut input: impl Read, mut out: impl Write, mut before_each: impl FnMut()) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut lost = 0;
    loop {
        let length = match input.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        before_each();
        if lost > 0 && write_fully(&mut out, notice(lost).as_bytes()) == 0 {
            lost = 0;
        }
        if length == 0 {
            return Ok(());
        }
        // With a gap that is not marked yet nothing may follow it.
        lost += if lost > 0 { length } else { write_fully(&mut out, &buffer[..length]) };
    }
}

/// A line of its own on a terminal, too.
fn notice(lost: usize) -> String {
    format!("\r\n[tmux-pool: {lost} bytes of output lost]\r\n")
}

/// How many bytes could not be written.
fn write_fully(out: &mut impl Write, mut bytes: &[u8]) -> usize {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => break,
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks to read, one at a time.
    struct Chunks(Vec<Vec<u8>>);

    impl Read for Chunks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let chunk = self.0.remove(0);
            buffer[..chunk.len()].copy_from_slice(&chunk);
            Ok(chunk.len())
        }
    }

    /// A disk with so many bytes of room at each chunk.
    struct Disk {
        room: Vec<usize>,
        turn: usize,
        written: Vec<u8>,
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let turn = self.turn;
            let length = bytes.len().min(self.room[turn]);
            if length == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room[turn] -= length;
            self.written.extend(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// One chunk of ten bytes a turn, and a last turn for the end of the input.
    fn log(room: &[usize]) -> String {
        let chunks = (1..room.len()).map(|n| vec![b'0' + u8::try_from(n).unwrap(); 10]).collect();
        let mut disk = Disk { room: room.to_vec(), turn: 0, written: Vec::new() };
        let shared = std::cell::RefCell::new((0_usize, &mut disk));
        struct Turns<'a, 'b>(&'a std::cell::RefCell<(usize, &'b mut Disk)>);
        impl Write for Turns<'_, '_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let mut cell = self.0.borrow_mut();
                cell.1.turn = cell.0 - 1;
                (&mut *cell.1).write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        copy(Chunks(chunks), Turns(&shared), || shared.borrow_mut().0 += 1).unwrap();
        String::from_utf8(disk.written).unwrap()
    }

    #[test]
    fn all_of_it_in_order() {
        assert_eq!(log(&[99, 99, 99]), "11111111112222222222");
    }

    #[test]
    fn what_a_full_disk_drops_is_counted_and_said() {
        assert_eq!(log(&[4, 0, 99, 99]), format!("1111{}3333333333", notice(16)));
        assert_eq!(log(&[4, 0, 0]), "1111", "the disk stays full");
        assert_eq!(log(&[4, 0, 99]), format!("1111{}", notice(16)), "said at the end at the latest");
    }

    #[test]
    fn a_cut_notice_is_repeated() {
        let text = log(&[0, 5, 99, 99]);
        assert_eq!(text, format!("{}{}3333333333", &notice(10)[..5], notice(20)));
    }

    #[test]
    fn a_second_writer_takes_the_lock_when_it_comes_free() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (first, second) = (File::open(file.path()).unwrap(), File::open(file.path()).unwrap());
        first.try_lock().unwrap();
        let mut lock = Lock { file: &second, held: false };
        lock.attempt();
        assert!(!lock.held);
        drop(first);
        lock.wait();
        assert!(lock.held);
    }
}
