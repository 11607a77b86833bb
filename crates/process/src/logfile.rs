//! The daemons' log files: appended to, and kept by each daemon itself from growing without end, whoever started it.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::file;

/// Above this a log is put aside, in bytes; with the one put aside before, a daemon has twice that.
const CAP: u64 = 4 << 20;
/// How much of a log's end is looked at for its last lines, in bytes.
const TAIL: u64 = 8 << 10;

/// Opens a log to append to.
///
/// # Errors
/// It cannot be made.
pub fn open(path: &Path) -> io::Result<File> {
    cap(path)?;
    File::options().append(true).create(true).mode(0o600).open(path)
}

/// Puts a log aside that has become too long. Its writer keeps its file, and since it appends, what
/// it writes next is the file's new start. What it writes meanwhile may be lost.
///
/// # Errors
/// The disk is full, or the log is not ours.
pub fn cap(path: &Path) -> io::Result<()> {
    let length = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if length > CAP {
        let aside = aside(path);
        drop(fs::remove_file(&aside));
        fs::copy(path, aside)?;
        File::options().write(true).open(path)?.set_len(0)?;
    }
    Ok(())
}

/// From now on puts the log of this process aside whenever it has become too long, where it is what standard error is
/// appended to. What systemd or a terminal takes is theirs.
///
/// # Errors
/// There is no thread to be had.
pub fn keep_short(path: PathBuf) -> io::Result<()> {
    let keep = move || {
        loop {
            if is_standard_error(&path)
                && let Err(error) = cap(&path)
            {
                tracing::warn!(path = %path.display(), %error, "a log cannot be put aside");
            }
            thread::sleep(EVERY);
        }
    };
    thread::Builder::new().name("log".to_owned()).stack_size(STACK).spawn(keep).map(drop)
}

/// Between two looks at a log's length.
const EVERY: Duration = Duration::from_secs(60);
/// Enough for copying a file.
const STACK: usize = 128 << 10;

/// Whether this file is what standard error is appended to.
fn is_standard_error(path: &Path) -> bool {
    let stderr = io::stderr();
    let appends = fcntl(&stderr, FcntlArg::F_GETFL).is_ok_and(|flags| flags & OFlag::O_APPEND.bits() != 0);
    let own = stderr.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    let same = |own: &Metadata| fs::metadata(path).is_ok_and(|found| file::id(&found) == file::id(own));
    appends && own.is_ok_and(|own| own.is_file() && same(&own))
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// The last lines of a log; none where it cannot be read.
#[must_use]
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
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_long_log_is_put_aside_under_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("poold.log");
        let mut writer = open(&path).unwrap();
        writer.write_all(&vec![b'x'; usize::try_from(CAP).unwrap()]).unwrap();
        cap(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), CAP, "not above the cap yet");
        writer.write_all(b"y\n").unwrap();
        cap(&path).unwrap();
        writer.write_all(b"new\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new\n");
        assert_eq!(fs::metadata(aside(&path)).unwrap().len(), CAP + 2);
        assert_eq!(last_lines(&path, 3), ["new"]);
        assert!(last_lines(&dir.path().join("missing"), 3).is_empty());
    }
}
