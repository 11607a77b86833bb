//! How a file gets its name: whole, and then for good. A name that was given is lost in a power cut
//! until the directory is on disk, too.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::StoreError;

/// The two acts that give a file its name; tests put a directory in their place that forgets.
pub(crate) trait Names {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync(&self, directory: &Path) -> io::Result<()>;
}

/// The real ones.
pub(crate) struct Os;

impl Names for Os {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

/// Lets `make` make a file under a working name beside `path`, and gives it this name when it is whole
/// and on disk. A crash meanwhile leaves nothing that looks like a damaged file.
pub(crate) fn place<T>(
    names: &dyn Names,
    path: &Path,
    make: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let unfinished = with_ending(path, ".new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let made = make(&unfinished).and_then(|made| {
        File::open(&unfinished)?.sync_all()?;
        Ok(made)
    });
    let made = made.inspect_err(|_| drop(fs::remove_file(&unfinished)))?;
    names.rename(&unfinished, path)?;
    names.sync(directory(path))?;
    Ok(made)
}

/// The same for a file that must not be there yet.
pub(crate) fn place_new<T>(
    names: &dyn Names,
    path: &Path,
    make: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if fs::symlink_metadata(path).is_ok() {
        return Err(StoreError::Exists(path.to_owned()));
    }
    place(names, path, make)
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
