//! Log files of the daemons. Each daemon rotates its own, so that their size is bounded however it was
//! started.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::untrusted_file;

/// Size above which a log is rotated, in bytes; with the one rotated copy a daemon uses at most twice that.
const MAX_SIZE: u64 = 4 << 20;
/// Bytes at the end of a log that are read for its last lines.
const TAIL: u64 = 8 << 10;
/// Interval between two checks of a log's size.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Stack of the rotating thread, in bytes: enough to copy a file.
const STACK: usize = 128 << 10;

/// Opens a log for appending, and rotates it first if necessary and possible: on a full disk it grows on. Its directory
/// is made again if somebody removed it.
pub fn open(path: &Path) -> io::Result<File> {
    drop(rotate_if_large(path));
    if let Some(dir) = path.parent() {
        // If the directory cannot be created, opening the file fails and tells why.
        drop(DirBuilder::new().mode(0o700).create(dir));
    }
    File::options().append(true).create(true).mode(0o600).open(path)
}

/// Copies a log that is too large to `PATH.1` and truncates it. A writer keeps its open file and, because it
/// appends, goes on at the new start. What it writes between copy and truncation is lost.
///
/// # Errors
/// The disk is full, or permission is denied.
fn rotate_if_large(path: &Path) -> io::Result<()> {
    let length = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if length > MAX_SIZE {
        let (copy, rotated) = (with_end(path, ".copy"), with_end(path, ".1"));
        // The earlier copy is kept until there is a new one.
        if let Err(error) = fs::copy(path, &copy).and_then(|_| fs::rename(&copy, rotated)) {
            drop(fs::remove_file(copy));
            return Err(error);
        }
        File::options().write(true).open(path)?.set_len(0)?;
    }
    Ok(())
}

/// Starts a thread that rotates the log of this process whenever it is too large, as long as standard error
/// is appended to that file. Output that goes to systemd or to a terminal is left to them.
pub fn start_rotation(path: PathBuf) -> io::Result<()> {
    let rotate = move || {
        loop {
            if is_standard_error(&path)
                && let Err(error) = rotate_if_large(&path)
            {
                tracing::warn!(path = %path.display(), %error, "cannot rotate the log");
            }
            thread::sleep(CHECK_INTERVAL);
        }
    };
    thread::Builder::new().name("log".to_owned()).stack_size(STACK).spawn(rotate).map(drop)
}

/// True if standard error is appended to this file.
fn is_standard_error(path: &Path) -> bool {
    let stderr = io::stderr();
    let appends = fcntl(&stderr, FcntlArg::F_GETFL).is_ok_and(|flags| flags & OFlag::O_APPEND.bits() != 0);
    let own = stderr.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    let same = |own: &Metadata| {
        fs::metadata(path).is_ok_and(|found| untrusted_file::id(&found) == untrusted_file::id(own))
    };
    appends && own.is_ok_and(|own| own.is_file() && same(&own))
}

/// Returns the path with something at its end.
fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Returns the last lines of a log that are not blank; empty if it cannot be read.
pub fn last_lines(path: &Path, count: usize) -> Vec<String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        file.read_to_end(&mut bytes)
    });
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_log_is_rotated_under_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("poold.log");
        let mut writer = open(&path).unwrap();
        writer.write_all(&vec![b'x'; usize::try_from(MAX_SIZE).unwrap()]).unwrap();
        rotate_if_large(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), MAX_SIZE, "not above the limit yet");
        writer.write_all(b"y\n").unwrap();
        rotate_if_large(&path).unwrap();
        writer.write_all(b"new\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new\n");
        assert_eq!(fs::metadata(with_end(&path, ".1")).unwrap().len(), MAX_SIZE + 2);
        assert_eq!(last_lines(&path, 3), ["new"]);
        // A copy that cannot be made loses neither the earlier one nor the start of a daemon.
        fs::create_dir(with_end(&path, ".copy")).unwrap();
        writer.write_all(&vec![b'x'; usize::try_from(MAX_SIZE).unwrap()]).unwrap();
        assert!(rotate_if_large(&path).is_err() && open(&path).is_ok());
        assert_eq!(fs::metadata(with_end(&path, ".1")).unwrap().len(), MAX_SIZE + 2);
        assert!(last_lines(&dir.path().join("missing"), 3).is_empty());
    }
}
