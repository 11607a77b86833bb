//! The identity of the peer of a connection, as told by the kernel. The daemon and its clients check it
//! before they read or write the first byte.

use std::io;
use std::os::fd::AsFd;

/// The process that connected; seen from a client, the process that called `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The effective user id.
    pub uid: u32,
    /// The process id, if the system tells. The process may have ended and the pid may be reused, so it is
    /// for people only and never signalled.
    pub pid: Option<u32>,
}

/// The reasons why a peer is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The peer runs as another user.
    #[error("the process at the other end runs as user {0}, not as this one")]
    Foreign(u32),
    /// The kernel does not identify the peer.
    #[error("the kernel does not tell who is at the other end: {0}")]
    Io(#[from] io::Error),
}

/// Returns the peer of a connected Unix stream socket.
///
/// # Errors
/// [`io::ErrorKind::NotConnected`] if there is no peer, or another error of the kernel.
pub fn of(socket: impl AsFd) -> io::Result<Peer> {
    credentials(&socket)
}

/// Returns the peer if it runs as the effective user of this process. Root counts as another user.
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
    // A pid of 0 stands for a process in another pid namespace.
    Ok(Peer { uid: found.uid(), pid: u32::try_from(found.pid()).ok().filter(|pid| *pid != 0) })
}

#[cfg(target_os = "macos")]
fn credentials(socket: &impl AsFd) -> io::Result<Peer> {
    use nix::sys::socket::{getsockopt, sockopt::LocalPeerPid};
    let (uid, _) = nix::unistd::getpeereid(socket)?;
    let pid = getsockopt(socket, LocalPeerPid).ok().and_then(|pid| u32::try_from(pid).ok());
    Ok(Peer { uid: uid.as_raw(), pid: pid.filter(|pid| *pid != 0) })
}
