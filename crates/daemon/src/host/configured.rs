//! The mark of a pool whose configuration file said something: a later start that does not find the file tells of it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Name of the mark in the state directory; it holds the path of the file.
const NAME: &str = "configured";

/// Records whether a configuration file says anything, once it was read. One that is gone changes nothing. Only
/// `status` needs the mark: a disk that does not take it fails no start.
pub(crate) fn note(state: &Path, config: &Path, says_anything: bool) {
    if is_gone(config) {
        return;
    }
    let mark = state.join(NAME);
    drop(if says_anything { fs::write(mark, config.as_os_str().as_bytes()) } else { fs::remove_file(mark) });
}

/// Returns the path of the configuration file that said something when one was read last. An empty mark tells none.
pub(crate) fn noted(state: &Path) -> Option<PathBuf> {
    let path = fs::read(state.join(NAME)).ok().filter(|path| !path.is_empty())?;
    Some(OsString::from_vec(path).into())
}

/// True if a file is certainly not there.
pub(crate) fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
