//! The mark of a pool whose configuration file said something: a later start that does not find the file tells of it.

use std::fs;
use std::path::Path;

/// Name of the mark in the state directory.
const NAME: &str = "configured";

/// Records whether a configuration file says anything, once it was read. One that is gone changes nothing. Only
/// `status` needs the mark: a disk that does not take it fails no start.
pub(crate) fn note(state: &Path, config: &Path, says_anything: bool) {
    if is_gone(config) {
        return;
    }
    let mark = state.join(NAME);
    drop(if says_anything { fs::write(mark, "") } else { fs::remove_file(mark) });
}

/// True if the configuration file said something when it was there last.
pub(crate) fn is_noted(state: &Path) -> bool {
    state.join(NAME).exists()
}

/// True if a file is certainly not there.
pub(crate) fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
