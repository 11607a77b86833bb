//! Creates files atomically: a file gets its name only when it is complete and on disk, and the name is on
//! disk before the creation is reported (a new directory entry is lost in a power cut until its directory is
//! synced).

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::StoreError;

/// Access for the owner only.
pub(crate) const MODE: u32 = 0o600;

/// The operations that give a file its final name. Tests replace them by a directory that loses unsynced
/// entries.
pub(crate) trait Directory {
    /// Renames `from` to `to`, replacing an existing file.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Renames `from` to `to`; fails with `AlreadyExists` if there is such a file.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync(&self, directory: &Path) -> io::Result<()>;
}

/// The operating system's directories.
pub(crate) struct OsDirectory;

impl Directory for OsDirectory {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Ok(()) => fs::remove_file(from),
            Err(_) if fs::symlink_metadata(to).is_ok() => Err(ErrorKind::AlreadyExists.into()),
            // A file system without hard links; a file created in just this moment is replaced.
            Err(_) => fs::rename(from, to),
        }
    }

    fn sync(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

/// Creates `path`, replacing an existing file: `fill` writes an empty temporary file beside it, which gets
/// the name when it is complete and on disk, so that no crash leaves a damaged file by this name. The caller
/// owns the name: temporary files left by crashes are removed first.
pub(crate) fn create_or_replace<T>(
    directory: &dyn Directory,
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    remove_leftovers(path)?;
    create(directory, path, fill, |temporary| Ok(directory.rename(temporary, path)?))
}

/// Creates `path` likewise, but fails with [`StoreError::Exists`] if the file exists, even if it appears
/// meanwhile.
pub(crate) fn create_new<T>(
    directory: &dyn Directory,
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let exists = || StoreError::Exists(path.to_owned());
    if fs::symlink_metadata(path).is_ok() {
        return Err(exists());
    }
    create(directory, path, fill, |temporary| match directory.rename_new(temporary, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists()),
        renamed => Ok(renamed?),
    })
}

fn create<T>(
    directory: &dyn Directory,
    path: &Path,
    fill: impl FnOnce(&Path) -> Result<T, StoreError>,
    rename: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<T, StoreError> {
    let temporary = create_temporary(path)?;
    let filled = fill(&temporary).and_then(|filled| {
        File::open(&temporary)?.sync_all()?;
        rename(&temporary)?;
        Ok(filled)
    });
    let filled = filled.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    directory.sync(parent(path))?;
    Ok(filled)
}

/// Creates an empty file beside `path` that no other process uses: `.NAME.PID-N.new`.
fn create_temporary(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    loop {
        let mut temporary = OsStr::new(".").to_owned();
        temporary.push(name);
        temporary.push(format!(".{}-{}.new", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let temporary = path.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).mode(MODE).open(&temporary) {
            // Left by an earlier process with the same id.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return opened.map(|_| temporary),
        }
    }
}

/// Removes the temporary files that crashes left beside `path`, whose name the caller owns.
pub(crate) fn remove_leftovers(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    for entry in fs::read_dir(parent(path))? {
        let entry = entry?;
        if is_temporary(&entry.file_name(), name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// True if `found` is the name of a temporary file for `name`.
fn is_temporary(found: &OsStr, name: &OsStr) -> bool {
    let rest = found.as_bytes().strip_prefix(b".").and_then(|found| found.strip_prefix(name.as_bytes()));
    let numbers = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".new"));
    numbers.is_some_and(|numbers| {
        !numbers.is_empty() && numbers.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
    })
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Appends `suffix` to the file name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
