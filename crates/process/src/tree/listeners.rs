//! Listening Unix sockets of a process: those bound to a path in the file system.

use std::io;
use std::path::Path;

use protocol::ProcId;

use crate::identity;

#[cfg_attr(target_os = "linux", path = "listeners/linux.rs")]
#[cfg_attr(target_os = "macos", path = "listeners/macos.rs")]
mod system;

/// The listening sockets of a network namespace.
#[derive(Debug, Default)]
pub(crate) struct ListeningSockets(system::SocketPaths);

impl ListeningSockets {
    /// Lists those of the namespace of this process; empty if it has gone.
    pub(crate) fn in_namespace_of(pid: u32) -> io::Result<Self> {
        system::listening_sockets(pid).map(Self)
    }

    /// Returns the first path, in sort order, outside `private` on which the process listens.
    ///
    /// # Errors
    /// Its descriptors are not readable.
    pub(crate) fn path_of(&self, pid: u32, private: Option<&Path>) -> io::Result<Option<String>> {
        let paths = system::paths_of(&self.0, pid)?;
        let outside =
            paths.into_iter().filter(|path| !private.is_some_and(|private| is_inside(path, private)));
        Ok(outside.min().map(|path| path.display().to_string()))
    }
}

/// True if the path is in the directory, under any of its names: a session's directory of temporary files also has a
/// short one.
fn is_inside(path: &Path, private: &Path) -> bool {
    let Ok(canonical) = private.canonicalize() else { return path.starts_with(private) };
    // Looked up only if the path could be another name of it: any other directory may be on a file system that hangs.
    let is_named = || path.is_absolute() && path.iter().any(|part| Some(part) == private.file_name());
    let parent = || path.parent().filter(|_| is_named())?.canonicalize().ok();
    path.starts_with(private)
        || path.starts_with(&canonical)
        || parent().is_some_and(|parent| parent.starts_with(&canonical))
}

/// Returns the path of a Unix socket outside `private` on which this process listens. `None` also if its
/// descriptors are not readable, and always on macOS.
pub fn listening_path(process: ProcId, private: Option<&Path>) -> Option<String> {
    let sockets = ListeningSockets::in_namespace_of(process.pid).ok()?;
    let path = sockets.path_of(process.pid, private).ok()??;
    // Last: the pid is still this process's, so everything read before was about it.
    (!identity::exited(process).ok()?).then_some(path)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
