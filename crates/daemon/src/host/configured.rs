//! The mark of a pool whose configuration file set something when it was read last. If the file is missing at a later
//! start, `status` reports that.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Name of the mark in the state directory: a link to the file.
const NAME: &str = "configured";

/// Sets the mark if the configuration file that was just read says anything but the defaults, else removes it. Leaves
/// the mark as it is if the file is gone. Errors are ignored, because only `status` needs the mark.
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

/// Returns the path of the configuration file that the mark names: the last one that was read and said something.
pub(crate) fn noted(state: &Path) -> Option<PathBuf> {
    fs::read_link(state.join(NAME)).ok()
}

/// True if a file is certainly not there.
pub(crate) fn is_gone(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}
