//! Compresses earlier parts in a thread of lowest priority: one at a time, the newest first, because the
//! oldest may be dropped before it is done.

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

use super::access::{open_file, open_with, remove};
use super::directory::LogDir;
use super::log_parts::{Part, Parts};

/// Bytes read at a time.
const BLOCK: usize = 32 * 1024;
/// Stack size in bytes. The compressor takes some 300 KiB, which an unoptimised build first creates on the
/// stack.
const STACK: usize = 1 << 20;

/// Handle of the compressing thread, which is started at the first request.
#[derive(Debug)]
pub(super) struct Compressor {
    dir: PathBuf,
    /// Maximum length of a part, in bytes, for which a second copy fits within the size limit.
    max_length: u64,
    requests: Option<SyncSender<()>>,
    /// True while a part is being compressed.
    busy: Arc<AtomicBool>,
}

impl Compressor {
    pub(super) fn new(dir: &Path, max_length: u64) -> Self {
        Self { dir: dir.to_owned(), max_length, requests: None, busy: Arc::default() }
    }

    /// Requests a pass over the parts. If the thread cannot be started they stay uncompressed until the next
    /// request.
    pub(super) fn wake(&mut self) {
        if self.requests.is_none() {
            let (sender, requests) = sync_channel(1);
            let (dir, max_length, busy) = (self.dir.clone(), self.max_length, Arc::clone(&self.busy));
            let thread = thread::Builder::new().stack_size(STACK);
            let started = thread.spawn(move || run((&dir, max_length), &requests, &busy));
            self.requests = started.is_ok().then_some(sender);
        }
        if let Some(requests) = &self.requests {
            // A full channel has a request already.
            let _full = requests.try_send(());
        }
    }

    /// Removes the unfinished file of a running compression, which the next writer repeats. Called with the
    /// log's lock.
    pub(super) fn abort(&self) {
        if self.busy.load(Ordering::SeqCst) {
            drop(remove(&self.dir.join(logs::COMPRESSING)));
        }
    }
}

fn run((dir, max_length): (&Path, u64), requests: &Receiver<()>, busy: &AtomicBool) {
    lower_priority();
    let Ok(files) = LogDir::open(dir) else { return };
    // Offsets of the parts that would not get smaller.
    let mut skipped = BTreeSet::new();
    while requests.recv().is_ok() {
        // Any other failure, such as a full disk, is tried again at the next request.
        let mut tried = skipped.clone();
        while let Some(offset) = next(dir, max_length, &tried) {
            busy.store(true, Ordering::SeqCst);
            let done = compress(&files, offset);
            busy.store(false, Ordering::SeqCst);
            if let Err(error) = done {
                tried.insert(offset);
                skipped.extend(Some(offset).filter(|_| error.kind() == ErrorKind::FileTooLarge));
            }
        }
    }
}

/// Lowers the priority of this thread on Linux. Elsewhere a priority applies to the whole process, and stays.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    let _unchanged = rustix::process::setpriority_process(None, 19);
}

/// Returns the offset of the newest part to compress.
fn next(dir: &Path, max_length: u64, skipped: &BTreeSet<u64>) -> Option<u64> {
    let parts = Parts::list_stable(dir).ok()?.0;
    let wanted = |part: &&Part| {
        !part.compressed && (1..=max_length).contains(&part.length) && !skipped.contains(&part.offset)
    };
    parts.iter().rev().find(wanted).map(|part| part.offset)
}

/// Compresses a part, and replaces it if it still exists unchanged afterwards.
pub(super) fn compress(files: &LogDir, offset: u64) -> io::Result<()> {
    let plain = files.path(&part_name(offset, false));
    let source = open_file(&plain)?;
    let length = source.metadata()?.len();
    let path = files.path(logs::COMPRESSING);
    let target = open_with(OpenOptions::new().write(true).create(true).mode(0o600), &path)?;
    claim(&path, &target)?;
    let written = write(&source, &target, length);
    let result = written.and_then(|()| replace(files, offset, (&source, length), &target));
    if result.is_err() && check_path(&path, &target).is_ok() {
        drop(remove(&path));
    }
    result
}

/// Replaces a part of this length by the one that was compressed from it, if it still exists unchanged.
fn replace(files: &LogDir, offset: u64, (source, length): (&File, u64), target: &File) -> io::Result<()> {
    let (plain, path) = (files.path(&part_name(offset, false)), files.path(logs::COMPRESSING));
    let _lock = files.lock()?;
    check_path(&plain, source)?;
    check_path(&path, target)?;
    if source.metadata()?.len() != length {
        return Err(ErrorKind::NotFound.into());
    }
    fs::rename(&path, files.path(&part_name(offset, true)))?;
    // Its disk space is freed when the last descriptor is closed, after the lock is released.
    fs::remove_file(&plain)
}

/// Locks and empties the file that was opened at this path. Fails if another writer's thread is compressing
/// into it, or has renamed it to a part since it was opened.
pub(super) fn claim(path: &Path, target: &File) -> io::Result<()> {
    target.try_lock().map_err(|_| ErrorKind::WouldBlock)?;
    check_path(path, target)?;
    target.set_len(0)
}

/// Fails unless the path still names this file.
fn check_path(path: &Path, file: &File) -> io::Result<()> {
    let same = fs::metadata(path)?.ino() == file.metadata()?.ino();
    if same { Ok(()) } else { Err(ErrorKind::NotFound.into()) }
}

fn write(mut source: &File, target: &File, length: u64) -> io::Result<()> {
    let mut encoder = GzEncoder::new(SizeLimited { file: target, left: length }, Compression::fast());
    let mut block = vec![0; BLOCK];
    let mut total = 0;
    loop {
        match source.read(&mut block) {
            Ok(0) => break,
            Ok(read) => {
                encoder.write_all(&block[..read])?;
                total += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    encoder.finish()?;
    if total != length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    // The uncompressed part is removed only after this one is on disk.
    target.sync_all()
}

/// A file that must stay smaller than its source.
struct SizeLimited<'a> {
    file: &'a File,
    /// Bytes that may still be written.
    left: u64,
}

impl Write for SizeLimited<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A part of blanks.
    const PART: [u8; 4096] = [b' '; 4096];

    #[test]
    fn a_part_that_was_cleared_or_replaced_meanwhile_does_not_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let files = LogDir::create(dir.path()).unwrap();
        let [plain, compressed] = [false, true].map(|compressed| files.path(&part_name(7, compressed)));
        let path = files.path(logs::COMPRESSING);
        for change in ["none", "cleared", "replaced", "appended"] {
            fs::write(&plain, PART).unwrap();
            let (source, target) = (File::open(&plain).unwrap(), File::create(&path).unwrap());
            match change {
                "cleared" => fs::remove_file(&plain).unwrap(),
                "replaced" => {
                    fs::remove_file(&plain).unwrap();
                    fs::write(&plain, PART).unwrap();
                }
                "appended" => fs::write(&plain, [PART, PART].concat()).unwrap(),
                _ => {}
            }
            let before = plain.exists();
            let replaced = replace(&files, 7, (&source, PART.len() as u64), &target);
            assert_eq!(replaced.is_ok(), change == "none", "{change}");
            let is_kept = (plain.exists(), compressed.exists()) == (before, false);
            assert_eq!(is_kept, change != "none", "{change}");
            drop((fs::remove_file(&plain), fs::remove_file(&compressed)));
        }
    }

    /// On a pipe, which cannot be synced.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_part_that_is_not_synced_does_not_count_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        fs::write(&path, PART).unwrap();
        let (_reader, writer) = io::pipe().unwrap();
        let target = File::from(std::os::fd::OwnedFd::from(writer));
        let written = write(&File::open(&path).unwrap(), &target, PART.len() as u64);
        assert_eq!(written.unwrap_err().raw_os_error(), Some(nix::errno::Errno::EINVAL as i32));
    }
}
