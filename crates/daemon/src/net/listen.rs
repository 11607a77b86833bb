//! The daemon's socket: handed over by a service manager, or created. An existing file at its path is removed only if
//! it is a socket at which no program listens. If the file of a created socket disappears, the socket is created anew.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use process::runtime::untrusted_file;
use tokio::time::sleep;
use world::BoxFuture;
use world::processes::Processes;
use world::transport::{Incoming, Listener, SocketListener};

use crate::host::blocking_pool::{BlockingPool, Purpose};
use crate::host::error::DaemonError;

/// Time between two looks at the file of the socket.
const LOOK_PAUSE: Duration = Duration::from_secs(5);

/// Number of looks in a row that have to miss the file. More looks than the state lock has checks: if the whole state
/// directory was removed, the daemon ends before it creates a socket.
const LOOKS: u32 = 3;

/// The file of a socket that this process created.
#[derive(Clone)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// The device and the inode of the file; none once it is removed for good.
    id: Arc<Mutex<Option<(u64, u64)>>>,
}

impl SocketFile {
    /// Removes the file, unless another one has taken its place. It is not created anew.
    pub(crate) fn remove(self) {
        let mine = self.id.lock().unwrap_or_else(PoisonError::into_inner).take();
        let found = fs::symlink_metadata(&self.path).map(|found| untrusted_file::id(&found));
        if mine.is_some() && found.ok() == mine {
            drop(fs::remove_file(self.path));
        }
    }

    /// Creates a socket.
    fn create(path: &Path) -> io::Result<(SocketListener, Self)> {
        let (listener, id) = create(path)?;
        Ok((listener, Self { path: path.to_owned(), id: Arc::new(Mutex::new(Some(id))) }))
    }

    /// Listens anew once the file is gone: no client would find this daemon. What others have put in its place is
    /// left. `missed` is the number of looks in a row, up to the last one, that missed the file.
    fn look(&self, missed: u32) -> Looked {
        let found = fs::symlink_metadata(&self.path);
        let is_gone = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let missed = if is_gone { missed.saturating_add(1) } else { 0 };
        if missed < LOOKS {
            return Looked { missed, anew: None };
        }
        let path = self.path.display();
        match self.renew() {
            Ok(Some(listener)) => {
                tracing::warn!(%path, "the socket's file was removed: listening anew");
                return Looked { missed: 0, anew: Some(listener) };
            }
            Ok(None) => {}
            Err(error) if missed == LOOKS => {
                tracing::warn!(%path, %error, "the socket's file was removed, and cannot be made again");
            }
            Err(_) => {}
        }
        Looked { missed, anew: None }
    }

    /// Listens anew. Returns `None` if the file was removed for good.
    fn renew(&self) -> io::Result<Option<SocketListener>> {
        let mut id = self.id.lock().unwrap_or_else(PoisonError::into_inner);
        if id.is_none() {
            return Ok(None);
        }
        let (listener, created) = create(&self.path)?;
        *id = Some(created);
        Ok(Some(listener))
    }
}

/// Creates a socket. Returns it with the device and the inode of its file.
fn create(path: &Path) -> io::Result<(SocketListener, (u64, u64))> {
    let listener = protocol::aio::listen(path)?;
    let created = fs::symlink_metadata(path)?;
    Ok((SocketListener(listener), untrusted_file::id(&created)))
}

/// Result of a look at the file of a socket.
struct Looked {
    /// Number of looks in a row, up to this one, that missed the file.
    missed: u32,
    /// The socket that was created anew.
    anew: Option<SocketListener>,
}

/// Looks at the file after a pause, on a thread. If its file system does not answer, this look does not end, and no
/// other one begins.
fn next_look(blocking: BlockingPool, file: SocketFile, missed: u32) -> BoxFuture<'static, Looked> {
    Box::pin(async move {
        loop {
            sleep(LOOK_PAUSE).await;
            let file = file.clone();
            // Without a limit: a socket that was created late would be lost with its result.
            let looked = blocking.without_timeout(Purpose::Housekeeping, move || file.look(missed)).await;
            if let Ok(looked) = looked {
                return looked;
            }
        }
    })
}

/// A socket that this process created.
struct OwnSocket {
    listener: SocketListener,
    file: SocketFile,
    blocking: BlockingPool,
    look: BoxFuture<'static, Looked>,
}

impl Listener for OwnSocket {
    fn accept<'a>(&'a mut self, processes: &'a dyn Processes) -> BoxFuture<'a, io::Result<Option<Incoming>>> {
        Box::pin(async move {
            loop {
                let Looked { missed, anew } = tokio::select! {
                    biased;
                    looked = &mut self.look => looked,
                    accepted = self.listener.accept(processes) => return accepted,
                };
                self.look = next_look(self.blocking.clone(), self.file.clone(), missed);
                if let Some(listener) = anew {
                    self.listener = listener;
                }
            }
        })
    }
}

/// Listens at the socket that a service manager handed over, or else at a new one. Must be called under the
/// lock of the state directory.
///
/// # Errors
/// The socket cannot be created, or another program listens at its path.
pub(crate) fn listen(
    path: &Path,
    blocking: &BlockingPool,
) -> Result<(Box<dyn Listener>, Option<SocketFile>), DaemonError> {
    if let Some(fd) = inherited()? {
        let listener = protocol::aio::from_fd(fd).map_err(handover_failed)?;
        return Ok((Box::new(SocketListener(listener)), None));
    }
    remove_dead_socket(path)?;
    let (listener, file) = SocketFile::create(path).map_err(|e| DaemonError::io(path, e))?;
    let look = next_look(blocking.clone(), file.clone(), 0);
    let socket = OwnSocket { listener, file: file.clone(), blocking: blocking.clone(), look };
    Ok((Box::new(socket), Some(file)))
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_whose_file_is_gone_is_created_anew_until_it_is_removed_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("poold.sock");
        let (listener, file) = SocketFile::create(&path).unwrap();
        let (mut listeners, mut missed) = (vec![listener], 0);
        let mut look = |times: u32| {
            for _ in 0..times {
                let looked = file.look(missed);
                missed = looked.missed;
                listeners.extend(looked.anew);
            }
        };
        let id = || fs::symlink_metadata(&path).ok().map(|found| untrusted_file::id(&found));
        let first = id();
        look(LOOKS);
        assert!(id() == first && UnixStream::connect(&path).is_ok(), "it is there");
        fs::remove_file(&path).unwrap();
        look(LOOKS - 1);
        assert_eq!(id(), None, "it may be just being replaced");
        look(1);
        UnixStream::connect(&path).expect("it is listened at again");
        fs::remove_file(&path).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        let others = id();
        look(LOOKS);
        file.clone().remove();
        assert_eq!(id(), others, "what others have put there is theirs");
        drop(theirs);
        fs::remove_file(&path).unwrap();
        look(LOOKS);
        assert_eq!(id(), None, "the daemon ends");
    }
}
