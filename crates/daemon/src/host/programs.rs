//! Programs of this machine.

use std::path::PathBuf;

/// A program's absolute path, or its name where it is not there yet.
pub(crate) fn in_path(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let absolute = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file());
    if program.contains('/') { PathBuf::from(program) } else { absolute.unwrap_or_else(|| program.into()) }
}
