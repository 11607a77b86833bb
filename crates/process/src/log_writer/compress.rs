//! Earlier parts are compressed by a thread that gives way to everybody: one at a time, the newest first,
//! because the oldest may be gone before it is done.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use protocol::logs::{self, part_name};

use super::files::{Files, Part, Parts, remove};
use super::{open_as, open_file};

const BLOCK: usize = 32 * 1024;
/// The compressor is some 300 KiB, which an unoptimised build makes on the stack first.
const STACK: usize = 1 << 20;

/// The thread, started when there is something to do for the first time.
#[derive(Debug)]
pub(super) struct Compressor {
    dir: PathBuf,
    /// The longest part that may be there twice, in bytes.
    longest: u64,
    work: Option<SyncSender<()>>,
    busy: Arc<AtomicBool>,
}

impl Compressor {
    pub(super) fn new(dir: &Path, longest: u64) -> Self {
        Self { dir: dir.to_owned(), longest, work: None, busy: Arc::default() }
    }

    /// There may be a part to compress. Without a thread it stays as it is until the next time.
    pub(super) fn wake(&mut self) {
        if self.work.is_none() {
            let (sender, work) = sync_channel(1);
            let (dir, longest, busy) = (self.dir.clone(), self.longest, Arc::clone(&self.busy));
            let thread = thread::Builder::new().stack_size(STACK);
            self.work = thread.spawn(move || run((&dir, longest), &work, &busy)).is_ok().then_some(sender);
        }
        if let Some(work) = &self.work {
            // Told already, where it is full.
            let _full = work.try_send(());
        }
    }

    /// Leaves no half of a file behind; the lock is held. What is not done is left to the next writer.
    pub(super) fn give_up(&self) {
        if self.busy.load(Ordering::SeqCst) {
            drop(remove(&self.dir.join(logs::COMPRESSING)));
        }
    }
}

fn run((dir, longest): (&Path, u64), work: &Receiver<()>, busy: &AtomicBool) {
    give_way();
    let Ok(files) = Files::open(dir) else { return };
    // Those that do not get smaller.
    let mut left = BTreeSet::new();
    while work.recv().is_ok() {
        while let Some(offset) = next(dir, longest, &left) {
            busy.store(true, Ordering::SeqCst);
            let done = compress(&files, offset);
            busy.store(false, Ordering::SeqCst);
            if done.is_err() {
                left.insert(offset);
            }
        }
    }
}

/// Linux has a priority for each thread; where only the whole process has one it stays.
fn give_way() {
    #[cfg(target_os = "linux")]
    let _as_it_is = rustix::process::setpriority_process(None, 19);
}

fn next(dir: &Path, longest: u64, left: &BTreeSet<u64>) -> Option<u64> {
    let parts = Parts::look(dir).ok()?.0;
    let wanted = |part: &&Part| {
        !part.compressed && (1..=longest).contains(&part.length) && !left.contains(&part.offset)
    };
    parts.iter().rev().find(wanted).map(|part| part.offset)
}

/// Compresses a part, and puts the result in its place if it is still there then.
pub(super) fn compress(files: &Files, offset: u64) -> io::Result<()> {
    let plain = files.path(&part_name(offset, false));
    let source = open_file(&plain)?;
    let length = source.metadata()?.len();
    let path = files.path(logs::COMPRESSING);
    let made = open_as(OpenOptions::new().write(true).create(true).mode(0o600), &path)?;
    claim(&path, &made)?;
    let written = write(&source, &made, length);
    let result = written.and_then(|()| {
        let _held = files.lock()?;
        still_named(&plain, &source)?;
        still_named(&path, &made)?;
        if source.metadata()?.len() != length {
            return Err(ErrorKind::NotFound.into());
        }
        fs::rename(&path, files.path(&part_name(offset, true)))?;
        // Its place is given back when the last descriptor goes, without the lock.
        fs::remove_file(&plain)
    });
    if result.is_err() && still_named(&path, &made).is_ok() {
        drop(remove(&path));
    }
    result
}

/// Empties the file that was opened at this path, where it is nobody's: another writer's thread may be
/// at work in it, or have given it the name of a part since it was opened.
pub(super) fn claim(path: &Path, made: &File) -> io::Result<()> {
    made.try_lock().map_err(|_| ErrorKind::WouldBlock)?;
    still_named(path, made)?;
    made.set_len(0)
}

/// Whether this is the file of this name.
fn still_named(path: &Path, file: &File) -> io::Result<()> {
    let same = fs::metadata(path)?.ino() == file.metadata()?.ino();
    if same { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
}

fn write(mut source: &File, made: &File, length: u64) -> io::Result<()> {
    let mut encoder = GzEncoder::new(Bounded { file: made, left: length }, Compression::fast());
    let mut block = vec![0; BLOCK];
    let mut all = 0;
    loop {
        match source.read(&mut block) {
            Ok(0) => break,
            Ok(read) => {
                encoder.write_all(&block[..read])?;
                all += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    encoder.finish()?;
    if all != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    // The plain one goes only once this one is on the disk.
    made.sync_all()
}

/// A file that must stay smaller than what it is made of.
struct Bounded<'a> {
    file: &'a File,
    left: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.left.checked_sub(bytes.len() as u64).ok_or(ErrorKind::FileTooLarge)?;
        let written = self.file.write(bytes)?;
        self.left = left + (bytes.len() - written) as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
