//! Archives of removed sessions: one compressed tar each, verified by reading it from disk before it gets its
//! name. In the order in which the data travels: the [`contents`] of an archive are collected by [`pack`],
//! written by [`tar_writer`], and compared by [`verify`].

pub(crate) mod contents;
pub(crate) mod pack;
pub(crate) mod part_file;
pub(crate) mod scratch_file;
pub(crate) mod tar_writer;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod verify;

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub(crate) use crate::host::archive::contents::{ArchiveError, Contents};
use crate::host::archive::part_file::{PartFile, SUFFIX};
use crate::host::dir_tree::present;

/// Maximum length of an archive's name in bytes: file systems allow 255, less our prefix and suffixes.
const NAME_MAX: usize = 200;

/// Returns the name, with a number appended if an archive of this name exists, as one of the same second does.
pub(crate) fn unused_name(archives: &Path, name: &str) -> String {
    let is_unused = |name: &String| archives.join(format!("{name}.tar.gz")).symlink_metadata().is_err();
    let numbered = (2..100).map(|n| format!("{name}-{n}"));
    std::iter::once(name.to_owned()).chain(numbered).find(is_unused).unwrap_or_else(|| name.to_owned())
}

/// Writes `NAME.tar.gz` into the directory of archives, creates the directory if missing, verifies the
/// archive by reading it from disk, and only then gives it its name. Memory is bounded, whatever the session
/// left.
///
/// Its entries, below `NAME/`: `session.json`, `messages.jsonl`, `screen`, `logs/`, and if asked for `work/`
/// and, in `other/`, everything else in the session's directory. Links are stored as links, other special
/// files not at all, and a file with the length that it had when it was opened; `skipped.txt` lists the
/// exceptions. Holes are stored as zeros, and nothing is archived if they are more than [`contents::ZEROS_MAX`].
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
    let (part, file) = PartFile::new(archives, name).map_err(failed)?;
    let (file, records) = pack::pack(file, &path, name, contents)?;
    file.sync_all().map_err(failed)?;
    written(&part.0);
    let damaged = |what| ArchiveError::Damaged { path: path.clone(), what };
    verify::verify(file, records).map_err(damaged)?;
    name_exclusively(&part.0, &path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => ArchiveError::Exists(path.clone()),
        _ => failed(error),
    })?;
    sync(archives).map_err(|error| {
        // Without the sync, a power cut could lose the archive's name, so the archive does not count.
        drop(fs::remove_file(&path));
        failed(error)
    })?;
    Ok(path)
}

/// Removes unfinished archives that a crash left behind. No archive may be in progress.
pub(crate) fn sweep(archives: &Path) -> io::Result<()> {
    let Some(entries) = present(fs::read_dir(archives))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(SUFFIX)) {
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

/// Gives a file its final name; fails if the name is taken.
fn name_exclusively(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(_) if to.symlink_metadata().is_ok() => Err(ErrorKind::AlreadyExists.into()),
        // The file system has no hard links.
        Err(_) => fs::rename(from, to),
        Ok(()) => Ok(()),
    }
}
