//! The mark of a pool whose configuration file said something: a later start that does not find the file tells of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Name of the mark in the state directory: a link to the file.
const NAME: &str = "configured";

/// Records whether a configuration file says anything, once it was read. One that is gone changes nothing. Only
/// `status` needs the mark: a disk that does not take it fails no start.
pub(crate) fn note(state: &Path, config: &Path, says_anything: bool) {
    if is_gone(config) {
        return;
    }
    let mark = state.join(NAME);
    drop(fs::remove_file(&mark));
    if says_anything {
        drop(symlink(config, mark));
    }
}

/// Returns the path of the configuration file that said something when one was read last.
pub(crate) fn noted(state: &Path) -> Option<PathBuf> {
    fs::read_link(state.join(NAME)).ok()
}

/// True if a file is certainly not there.
pub(crate) fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
