//! One daemon a state directory, and its socket: the lock first, then the socket, and never a file
//! that is not provably a dead socket of ours.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use interprocess::local_socket::tokio::Listener;
use process::runtime::untrusted_file;
use tokio::time::sleep;

use crate::host::fatal::Fatal;

/// Held as long as the daemon lives; the kernel lets go of it however it ends.
pub(crate) struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// Takes the state directory's lock.
pub(crate) fn lock(path: &Path) -> Result<Lock, Fatal> {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let mut file = open.map_err(|e| Fatal::io(path, e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // Only for the message.
            drop(file.read_to_string(&mut pid));
            return Err(Fatal::AlreadyRunning(pid.trim().to_owned()));
        }
        Err(fs::TryLockError::Error(error)) => return Err(Fatal::io(path, error)),
    }
    // Written before it is cut: on a full disk the room that the last name had is there.
    let me = std::process::id().to_string();
    let length = me.len() as u64;
    file.write_all(me.as_bytes()).and_then(|()| file.set_len(length)).map_err(|e| Fatal::io(path, e))?;
    Ok(Lock(file))
}

/// Between two looks whether the state directory is still there.
const LOOK: Duration = Duration::from_secs(5);

/// Looks in a row that have to find it gone: somebody may be just putting it back.
const LOOKS: u32 = 2;

/// Returns once the file that is locked has not its place any more: the state directory was removed or replaced, and
/// nobody who looks for this pool finds it.
pub(crate) async fn removed(path: &Path) -> Fatal {
    let identity = || fs::symlink_metadata(path).ok().map(|found| untrusted_file::id(&found));
    let mine = identity();
    let mut missed = 0;
    while missed < LOOKS {
        sleep(LOOK).await;
        missed = if identity() == mine { 0 } else { missed + 1 };
    }
    Fatal::Other(format!(
        "{} was removed or replaced: this pool ends, its sessions live on in their tmux server",
        path.parent().and_then(Path::parent).unwrap_or(path).display()
    ))
}

/// The socket, and how to remove it at the end.
pub(crate) struct Socket {
    pub(crate) listener: Listener,
    own: Option<Own>,
}

/// A socket's file that this process made: its path, and its device and inode.
pub(crate) type Own = (PathBuf, (u64, u64));

impl Socket {
    /// Removes the socket's file, if it is still ours and we made it.
    pub(crate) fn remove(own: Option<Own>) {
        if let Some((path, id)) = own
            && fs::symlink_metadata(&path).is_ok_and(|found| untrusted_file::id(&found) == id)
        {
            drop(fs::remove_file(path));
        }
    }

    /// The listener, and what to give to [`Socket::remove`].
    pub(crate) fn into_parts(self) -> (Listener, Option<Own>) {
        (self.listener, self.own)
    }
}

/// The socket that a service manager handed over, else a fresh one. Under the lock.
pub(crate) fn socket(path: &Path) -> Result<Socket, Fatal> {
    if let Some(fd) = handed_over()? {
        let listener =
            protocol::aio::from_fd(fd).map_err(|e| Fatal::Other(format!("the socket handed over: {e}")))?;
        return Ok(Socket { listener, own: None });
    }
    clear(path)?;
    let listener = protocol::aio::listen(path).map_err(|e| Fatal::io(path, e))?;
    let made = fs::symlink_metadata(path).map_err(|e| Fatal::io(path, e))?;
    Ok(Socket { listener, own: Some((path.to_owned(), untrusted_file::id(&made))) })
}

fn handed_over() -> Result<Option<OwnedFd>, Fatal> {
    let mut fds = listenfd::ListenFd::from_env();
    let listener =
        fds.take_unix_listener(0).map_err(|e| Fatal::Other(format!("the socket handed over: {e}")))?;
    Ok(listener.map(OwnedFd::from))
}

/// Makes room: removes a socket that nobody listens at. Anything else stays and is an error.
fn clear(path: &Path) -> Result<(), Fatal> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Fatal::io(path, error)),
    };
    if !found.file_type().is_socket() {
        return Err(Fatal::Other(format!("{} is not a socket; move it away", path.display())));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|e| Fatal::io(path, e))
        }
        Ok(_) => Err(Fatal::Other(format!("somebody else listens at {}", path.display()))),
        Err(error) => Err(Fatal::io(path, error)),
    }
}
