//! Connections of clients: a listener, and the two directions of each connection with what the system says of
//! its peer.

use std::io;

#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use interprocess::local_socket::traits::tokio::Listener as _;
use nix::sys::socket::{Shutdown, shutdown};
use protocol::ProcId;
use protocol::aio::{WriteHalf, check_peer, split};
use tokio::io::AsyncRead;
use tokio::net::UnixStream;

use crate::BoxFuture;
use crate::processes::Processes;

/// The receiving direction of a connection.
pub type Receiver = Box<dyn AsyncRead + Send + Unpin>;

/// The sending direction of a connection.
pub trait Sender: Send + Sync {
    /// Sends what fits at once, and returns its length.
    ///
    /// # Errors
    /// `WouldBlock` if nothing fits; others if the peer is gone.
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize>;
    /// Waits until something may fit, or the peer is gone.
    fn ready(&self) -> BoxFuture<'_, io::Result<()>>;
    /// Ends both directions.
    fn close(&self);
}

/// An accepted connection, whose peer runs as this user.
pub struct Incoming {
    /// The receiving direction.
    pub receiver: Receiver,
    /// The sending direction.
    pub sender: Box<dyn Sender>,
    /// The peer's process id, where the system tells.
    pub pid: Option<u32>,
    /// The peer's process; `None` if it has ended or cannot be identified.
    pub process: Option<ProcId>,
}

/// A source of connections.
pub trait Listener: Send {
    /// Waits for the next connection; `None` for one whose peer was refused.
    ///
    /// # Errors
    /// The system refuses, for lack of descriptors for instance.
    fn accept<'a>(&'a mut self, processes: &'a dyn Processes) -> BoxFuture<'a, io::Result<Option<Incoming>>>;
}

/// A Unix socket.
pub struct SocketListener(pub interprocess::local_socket::tokio::Listener);

impl Listener for SocketListener {
    fn accept<'a>(&'a mut self, processes: &'a dyn Processes) -> BoxFuture<'a, io::Result<Option<Incoming>>> {
        Box::pin(async move {
            let stream = self.0.accept().await?;
            let peer = match check_peer(&stream) {
                Ok(peer) => peer,
                Err(error) => {
                    tracing::warn!(%error, "a connection was refused");
                    return Ok(None);
                }
            };
            let (reader, writer) = split(stream);
            let process = peer.pid.and_then(|pid| process_of(writer.as_ref(), pid, processes));
            Ok(Some(Incoming {
                receiver: Box::new(reader),
                sender: Box::new(writer),
                pid: peer.pid,
                process,
            }))
        })
    }
}

impl Sender for WriteHalf {
    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    fn ready(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.writable())
    }

    fn close(&self) {
        // The peer may be gone already, so errors do not matter.
        shutdown(self.as_ref().as_raw_fd(), Shutdown::Both).ok();
    }
}

/// Identifies the peer's process. A handle of the kernel proves that its process id was not reused; without
/// one, the process is identified by its id alone.
fn process_of(
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "there are no handles"))]
    stream: &UnixStream,
    pid: u32,
    processes: &dyn Processes,
) -> Option<ProcId> {
    #[cfg(target_os = "linux")]
    let handle = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerPidfd).ok();
    let process = processes.identify(pid)?;
    #[cfg(target_os = "linux")]
    if let Some(handle) = handle {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let ended = poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
        return ended.is_ok_and(|ready| ready == 0).then_some(process);
    }
    Some(process)
}
