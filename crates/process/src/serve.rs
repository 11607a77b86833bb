//! Whom a process serves: the Unix sockets with a name in the file system on which it listens.

use std::io;
use std::path::Path;

use protocol::ids::ProcId;

use crate::identity;

#[cfg_attr(target_os = "linux", path = "serve/linux.rs")]
#[cfg_attr(target_os = "macos", path = "serve/macos.rs")]
mod system;

/// The listening sockets of the network namespace that a process is in.
#[derive(Debug, Default)]
pub(crate) struct Listeners(system::Listeners);

impl Listeners {
    /// As that process sees them; none where it has gone.
    pub(crate) fn seen_by(pid: u32) -> io::Result<Self> {
        system::listeners(pid).map(Self)
    }

    /// The first path outside `private` on which the process listens.
    ///
    /// # Errors
    /// Where it does not show its descriptors.
    pub(crate) fn held_by(&self, pid: u32, private: Option<&Path>) -> io::Result<Option<String>> {
        let paths = system::held(&self.0, pid)?;
        let outside = paths.into_iter().filter(|path| !private.is_some_and(|private| is_in(path, private)));
        Ok(outside.min().map(|path| path.display().to_string()))
    }
}

/// A program may name a directory by what its links lead to.
fn is_in(path: &Path, private: &Path) -> bool {
    path.starts_with(private) || private.canonicalize().is_ok_and(|private| path.starts_with(private))
}

/// The path of a Unix socket outside `private` on which this very process listens. `None` also where it does
/// not show that, and on macOS always.
#[must_use]
pub fn served(process: ProcId, private: Option<&Path>) -> Option<String> {
    let path = Listeners::seen_by(process.pid).ok()?.held_by(process.pid, private).ok()??;
    // After the reading: as the number is still that process's, it was about this one.
    (!identity::exited(process).ok()?).then_some(path)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "serve_tests.rs"]
mod tests;
