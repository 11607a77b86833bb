//! How a file gets its name: whole, and then for good. A name that was given is lost in a power cut
//! until the directory is on disk, too.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::StoreError;

/// Nobody but the owner.
pub(crate) const MODE: u32 = 0o600;

/// The acts that give a file its name; tests put a directory in their place that forgets.
pub(crate) trait Names {
    /// In place of what has the name.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Where nothing has the name.
    fn give(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync(&self, directory: &Path) -> io::Result<()>;
}

/// The real ones.
pub(crate) struct Os;

impl Names for Os {
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn give(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            Ok(()) => fs::remove_file(from),
            Err(_) if fs::symlink_metadata(to).is_ok() => Err(ErrorKind::AlreadyExists.into()),
            // A file system without links: who makes such a file in this very moment is replaced.
            Err(_) => fs::rename(from, to),
        }
    }

    fn sync(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

/// Lets `make` fill an empty file that lies beside `path` under a name of its own, and gives it this name
/// in place of what has it when it is whole and on disk. A crash meanwhile leaves nothing that looks like
/// a damaged file. The caller owns the name; what is left of such a crash goes with the next call.
pub(crate) fn place<T>(
    names: &dyn Names,
    path: &Path,
    make: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    sweep(path)?;
    made(names, path, make, |from| Ok(names.replace(from, path)?))
}

/// The same for a file that must not be there yet, whoever makes one by this name meanwhile.
pub(crate) fn place_new<T>(
    names: &dyn Names,
    path: &Path,
    make: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let exists = || StoreError::Exists(path.to_owned());
    if fs::symlink_metadata(path).is_ok() {
        return Err(exists());
    }
    made(names, path, make, |from| match names.give(from, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists()),
        given => Ok(given?),
    })
}

fn made<T>(
    names: &dyn Names,
    path: &Path,
    make: impl FnOnce(&Path) -> Result<T, StoreError>,
    name: impl FnOnce(&Path) -> Result<(), StoreError>,
) -> Result<T, StoreError> {
    let unfinished = unfinished(path)?;
    let made = make(&unfinished).and_then(|made| {
        File::open(&unfinished)?.sync_all()?;
        name(&unfinished)?;
        Ok(made)
    });
    let made = made.inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
    names.sync(directory(path))?;
    Ok(made)
}

/// A new empty file beside `path` that is nobody else's: `.NAME.PID-N.new`.
fn unfinished(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    loop {
        let mut own = OsStr::new(".").to_owned();
        own.push(name);
        own.push(format!(".{}-{}.new", process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let own = path.with_file_name(own);
        match OpenOptions::new().write(true).create_new(true).mode(MODE).open(&own) {
            // Left by a process that had this one's number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return opened.map(|_| own),
        }
    }
}

/// Removes what crashes left of files by this name.
fn sweep(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    for entry in fs::read_dir(directory(path))? {
        let entry = entry?;
        if is_unfinished(&entry.file_name(), name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_unfinished(own: &OsStr, name: &OsStr) -> bool {
    let rest = own.as_bytes().strip_prefix(b".").and_then(|own| own.strip_prefix(name.as_bytes()));
    let numbers = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".new"));
    numbers.is_some_and(|numbers| {
        !numbers.is_empty() && numbers.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-')
    })
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The name with a further ending.
pub(crate) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests;
