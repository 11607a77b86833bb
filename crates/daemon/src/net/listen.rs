//! The daemon's socket: handed over by a service manager, or created. A file that is not provably a dead
//! socket is never removed.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::{fs, io};

use process::runtime::untrusted_file;
use world::transport::{Listener, SocketListener};

use crate::host::error::DaemonError;

/// The file of a socket that this process created.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and the inode of the file.
    id: (u64, u64),
}

impl SocketFile {
    /// Removes the file, unless another one has taken its place.
    pub(crate) fn remove(self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| untrusted_file::id(&found) == self.id) {
            drop(fs::remove_file(self.path));
        }
    }
}

/// Listens at the socket that a service manager handed over, or else at a new one. Must be called under the
/// lock of the state directory.
///
/// # Errors
/// The socket cannot be created, or another program listens at its path.
pub(crate) fn listen(path: &Path) -> Result<(Box<dyn Listener>, Option<SocketFile>), DaemonError> {
    if let Some(fd) = inherited()? {
        let listener = protocol::aio::from_fd(fd).map_err(handover_failed)?;
        return Ok((Box::new(SocketListener(listener)), None));
    }
    remove_dead_socket(path)?;
    let listener = protocol::aio::listen(path).map_err(|e| DaemonError::io(path, e))?;
    let created = fs::symlink_metadata(path).map_err(|e| DaemonError::io(path, e))?;
    Ok((
        Box::new(SocketListener(listener)),
        Some(SocketFile { path: path.to_owned(), id: untrusted_file::id(&created) }),
    ))
}

/// Returns the socket that a service manager handed over.
fn inherited() -> Result<Option<OwnedFd>, DaemonError> {
    let mut fds = listenfd::ListenFd::from_env();
    let listener = fds.take_unix_listener(0).map_err(handover_failed)?;
    Ok(listener.map(OwnedFd::from))
}

fn handover_failed(error: io::Error) -> DaemonError {
    DaemonError::Other(format!("the socket handed over: {error}"))
}

/// Removes a socket at which no program listens. Anything else stays, and is an error.
fn remove_dead_socket(path: &Path) -> Result<(), DaemonError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DaemonError::io(path, error)),
    };
    if !found.file_type().is_socket() {
        return Err(DaemonError::Other(format!("{} is not a socket; move it away", path.display())));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|e| DaemonError::io(path, e))
        }
        Ok(_) => {
            let why = format!("another program listens at {}: stop it, or set POOL_SOCKET", path.display());
            Err(DaemonError::Other(why))
        }
        Err(error) => Err(DaemonError::io(path, error)),
    }
}
