//! Who is at the other end of a connection, as the kernel tells it. Checked before the first byte
//! is read or written, by the daemon and by its clients.

use std::io;
use std::os::fd::AsFd;

/// The process that connected or, seen from a client, that called `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user.
    pub uid: u32,
    /// Its process id, where the system tells. It may have ended and its number may be in use again:
    /// for people, never to signal.
    pub pid: Option<u32>,
}

/// Why a peer is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It runs as another user.
    #[error("the process at the other end runs as user {0}, not as this one")]
    Foreign(u32),
    /// The kernel does not tell.
    #[error("the kernel does not tell who is at the other end: {0}")]
    Io(#[from] io::Error),
}

/// The peer of a connected Unix stream socket.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] where nobody is there, and what the kernel reports.
pub fn of(socket: impl AsFd) -> io::Result<Peer> {
    credentials(&socket)
}

/// The peer, where it runs as the same effective user as this process. Root is another user too.
///
/// # Errors
/// [`PeerError::Foreign`], or as [`of`].
pub fn check(socket: impl AsFd) -> Result<Peer, PeerError> {
    let peer = of(socket)?;
    if peer.uid == nix::unistd::geteuid().as_raw() { Ok(peer) } else { Err(PeerError::Foreign(peer.uid)) }
}

#[cfg(target_os = "linux")]
fn credentials(socket: &impl AsFd) -> io::Result<Peer> {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    let found = getsockopt(socket, PeerCredentials)?;
    if found.uid() == u32::MAX {
        return Err(io::ErrorKind::NotConnected.into());
    }
    // 0 stands for a process of another pid namespace.
    Ok(Peer { uid: found.uid(), pid: u32::try_from(found.pid()).ok().filter(|pid| *pid != 0) })
}

#[cfg(target_os = "macos")]
fn credentials(socket: &impl AsFd) -> io::Result<Peer> {
    use nix::sys::socket::{getsockopt, sockopt::LocalPeerPid};
    let (uid, _) = nix::unistd::getpeereid(socket)?;
    let pid = getsockopt(socket, LocalPeerPid).ok().and_then(|pid| u32::try_from(pid).ok());
    Ok(Peer { uid: uid.as_raw(), pid: pid.filter(|pid| *pid != 0) })
}
