//! Ownership checks of tmux servers. Everything that is sent to a server (environments, prompts) and every
//! answer passes here first: other users might be able to replace a socket.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect as connect_fd, socket};
use protocol::peer;
use tokio::net::UnixStream;

use crate::error::TmuxError;

/// Checks that no other user can replace the socket: its directory belongs to this user, and others cannot
/// write to it.
///
/// # Errors
/// [`TmuxError::Untrusted`]; [`TmuxError::NoServer`] if the directory does not exist.
pub fn check_dir(socket: &Path) -> Result<(), TmuxError> {
    let dir = socket.parent().unwrap_or(Path::new("/"));
    let found = match std::fs::metadata(dir) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(TmuxError::NoServer),
        Err(error) => return Err(TmuxError::Connect(error)),
    };
    let mine = found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw() && found.mode() & 0o022 == 0;
    if mine {
        return Ok(());
    }
    Err(TmuxError::Untrusted(format!("{} is not a directory that only you can write to", dir.display())))
}

/// Connects to a server of this user.
///
/// # Errors
/// [`TmuxError::Untrusted`], [`TmuxError::NoServer`], [`TmuxError::Connect`].
pub(crate) async fn connect(socket: &Path) -> Result<UnixStream, TmuxError> {
    check_dir(socket)?;
    let stream = UnixStream::connect(socket).await.map_err(not_connected)?;
    check_peer(&stream)?;
    Ok(stream)
}

/// Connects without waiting, for identifying the listener only.
///
/// # Errors
/// [`TmuxError::Untrusted`], [`TmuxError::NoServer`], [`TmuxError::Connect`].
pub fn probe(path: &Path) -> Result<std::os::unix::net::UnixStream, TmuxError> {
    check_dir(path)?;
    let open = || {
        let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
        fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        connect_fd(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok::<_, Errno>(fd)
    };
    let stream = std::os::unix::net::UnixStream::from(open().map_err(|error| not_connected(error.into()))?);
    check_peer(&stream)?;
    Ok(stream)
}

/// Checks the server before a tmux client is run, which makes no such check.
///
/// # Errors
/// [`TmuxError::Untrusted`], or a failure to inspect the directory.
pub(crate) fn before_client(socket: &Path) -> Result<(), TmuxError> {
    match check_dir(socket) {
        // The client reports the missing server, or starts one where it may.
        Err(TmuxError::NoServer) => return Ok(()),
        other => other?,
    }
    // Another user may have created the socket before the directory was closed to others.
    match probe(socket) {
        Err(error @ TmuxError::Untrusted(_)) => Err(error),
        _ => Ok(()),
    }
}

fn check_peer(stream: impl std::os::fd::AsFd) -> Result<(), TmuxError> {
    match peer::check(stream) {
        Ok(_) => Ok(()),
        Err(error @ peer::PeerError::Foreign(_)) => Err(TmuxError::Untrusted(error.to_string())),
        Err(peer::PeerError::Io(error)) => Err(TmuxError::Connect(error)),
    }
}

fn not_connected(error: io::Error) -> TmuxError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => TmuxError::NoServer,
        _ => TmuxError::Connect(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_place_where_others_can_write_is_not_trusted_and_nothing_is_sent_there() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        probe(&socket).unwrap();
        listener.accept().unwrap();
        set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(probe(&socket), Err(TmuxError::Untrusted(_))));
        assert!(matches!(before_client(&socket), Err(TmuxError::Untrusted(_))));
        assert!(listener.accept().is_err(), "nobody connected");
        assert!(matches!(check_dir(&dir.path().join("none/s")), Err(TmuxError::NoServer)));
    }

    #[test]
    fn another_users_server_is_not_trusted() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::chown(dir.path(), Some(65534.into()), None).unwrap();
        assert!(matches!(check_dir(&dir.path().join("s")), Err(TmuxError::Untrusted(_))));
    }
}
