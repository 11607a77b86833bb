//! What a session leaves, in one compressed tar that was read again from disk before it got its name.

pub(crate) mod contents;
pub(crate) mod entries;
pub(crate) mod pack;
pub(crate) mod spool;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod tree;
pub(crate) mod verify;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) use crate::host::archive::contents::{ArchiveError, Contents};

/// What the name of a file ends with that is no archive yet.
const PART: &str = ".part";
/// The longest name: `NAME_MAX` of every file system is 255, and ours have a prefix and an ending.
const NAME_MAX: usize = 200;

/// Writes `NAME.tar.gz` into the directory of archives, which is made where it is missing, reads it again from
/// disk and compares, and only then gives it its name. Memory is bounded, whatever the session left.
///
/// In it, below `NAME/`: `session.json`, `messages.jsonl`, and as they are `screen`, `logs/` and, where asked
/// for, `work/`, and in `other/` what else lay beside it. Links are stored as links. What is no file is not stored, and a file is stored with the length
/// that it had when it was opened; `skipped.txt` names these.
pub(crate) fn write(archives: &Path, name: &str, contents: Contents<'_>) -> Result<PathBuf, ArchiveError> {
    write_then(archives, name, contents, &mut |_| ())
}

fn write_then(
    archives: &Path,
    name: &str,
    contents: Contents<'_>,
    written: &mut dyn FnMut(&Path),
) -> Result<PathBuf, ArchiveError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(plain) {
        return Err(ArchiveError::Name(name.to_owned()));
    }
    let path = archives.join(format!("{name}.tar.gz"));
    let failed = |source| ArchiveError::Write { path: path.clone(), source };
    make_dir(archives).map_err(|source| ArchiveError::Write { path: archives.to_owned(), source })?;
    if path.symlink_metadata().is_ok() {
        return Err(ArchiveError::Exists(path));
    }
    let (part, file) = Part::new(archives, name).map_err(failed)?;
    let (file, records) = pack::pack(file, &path, name, contents)?;
    file.sync_all().map_err(failed)?;
    written(&part.0);
    let damaged = |what| ArchiveError::Damaged { path: path.clone(), what };
    verify::verify(file, records).map_err(damaged)?;
    give(&part.0, &path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => ArchiveError::Exists(path.clone()),
        _ => failed(error),
    })?;
    sync(archives).map_err(|error| {
        // It may be gone after a power cut, so it does not count.
        drop(fs::remove_file(&path));
        failed(error)
    })?;
    Ok(path)
}

/// Removes what a crash left of archives. Nobody may be writing one.
pub(crate) fn sweep(archives: &Path) -> io::Result<()> {
    let Some(entries) = tree::present(fs::read_dir(archives))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(PART)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn make_dir(archives: &Path) -> io::Result<()> {
    if archives.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(archives)?;
    archives.parent().map_or(Ok(()), sync)
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Gives a file its name, which nothing may have yet.
fn give(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(_) if to.symlink_metadata().is_ok() => Err(ErrorKind::AlreadyExists.into()),
        // A file system without links.
        Err(_) => fs::rename(from, to),
        Ok(()) => Ok(()),
    }
}

/// A new file that only we may read, beside the archive of this name.
fn beside(archives: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let path = archives.join(format!(".{name}{PART}"));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

/// The file while it has no name of its own; it goes with this.
struct Part(PathBuf);

impl Part {
    fn new(archives: &Path, name: &str) -> io::Result<(Self, File)> {
        let (path, file) = beside(archives, name)?;
        Ok((Self(path), file))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It has its own name now, or is of no use.
        drop(fs::remove_file(&self.0));
    }
}
