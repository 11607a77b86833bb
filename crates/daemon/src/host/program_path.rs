//! Lookup of programs in `PATH`.

use std::path::PathBuf;

/// Returns the absolute path of a program, or its name if `PATH` has no such file.
pub(crate) fn find(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let absolute = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file());
    if program.contains('/') { PathBuf::from(program) } else { absolute.unwrap_or_else(|| program.into()) }
}
