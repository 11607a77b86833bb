//! Frames and connections under tokio: for `poold` and `tmux-watch`. Feature `aio`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use interprocess::local_socket::tokio::{Listener, Stream, prelude::*};
use interprocess::local_socket::{ConnectOptions, GenericFilePath, ListenerOptions};
use interprocess::os::unix::uds_local_socket::tokio as uds;
use nix::sys::socket::{SockType, UnixAddr, getsockname, getsockopt, sockopt};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::connect::{self, CONNECT_TIMEOUT, ConnectError, RETRY_PAUSE, TransportError};
use crate::frame::{self, CHUNK, FrameError, Incoming, PREFIX_LEN};
use crate::hello::{Hello, Welcome};
use crate::peer::{self, Peer, PeerError};

/// The half of a connection that is read.
pub type ReadHalf = tokio::net::unix::OwnedReadHalf;
/// The half that is written; dropping it ends the stream for the peer.
pub type WriteHalf = tokio::net::unix::OwnedWriteHalf;

/// The next payload, or `None` where the stream ended between two frames. Memory grows with the
/// bytes that come, at most [`CHUNK`] ahead of them.
///
/// Not safe to cancel half-way: in a `select!` use a [`FrameReader`].
///
/// # Errors
/// A length that is not allowed, an end within a frame, and what the stream reports.
pub async fn read_payload<R: AsyncRead + Unpin>(reader: &mut R) -> Result<Option<Vec<u8>>, FrameError> {
    let mut prefix = Vec::with_capacity(PREFIX_LEN);
    while prefix.len() < PREFIX_LEN {
        let left = (PREFIX_LEN - prefix.len()) as u64;
        match (&mut *reader).take(left).read_buf(&mut prefix).await? {
            0 if prefix.is_empty() => return Ok(None),
            0 => return Err(FrameError::Truncated),
            _ => {}
        }
    }
    let length = frame::length([prefix[0], prefix[1], prefix[2], prefix[3]])?;
    let mut payload = Vec::new();
    while payload.len() < length {
        let chunk = (length - payload.len()).min(CHUNK);
        payload.reserve(chunk);
        if (&mut *reader).take(chunk as u64).read_buf(&mut payload).await? == 0 {
            return Err(FrameError::Truncated);
        }
    }
    Ok(Some(payload))
}

/// Writes a value as one frame. Not safe to cancel half-way.
///
/// # Errors
/// A value that does not fit a frame, and what the stream reports.
pub async fn write_frame<W: AsyncWrite + Unpin, T: Serialize + ?Sized>(
    writer: &mut W,
    value: &T,
) -> Result<(), FrameError> {
    writer.write_all(&frame::encode(value)?).await?;
    Ok(writer.flush().await?)
}

/// Reads frames; [`FrameReader::next`] may be cancelled at any time and loses nothing.
#[derive(Debug)]
pub struct FrameReader<R> {
    reader: R,
    incoming: Incoming,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from here.
    pub fn new(reader: R) -> Self {
        Self { reader, incoming: Incoming::default() }
    }

    /// As [`read_payload`].
    ///
    /// # Errors
    /// As [`read_payload`].
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        loop {
            if let Some(payload) = self.incoming.take()? {
                return Ok(Some(payload));
            }
            let clean = self.incoming.is_empty();
            if self.reader.read_buf(self.incoming.space()).await? == 0 {
                return if clean { Ok(None) } else { Err(FrameError::Truncated) };
            }
        }
    }
}

/// Connects and says hello, within [`CONNECT_TIMEOUT`].
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect(path: &Path, hello: &Hello) -> Result<(ReadHalf, WriteHalf, Welcome), ConnectError> {
    tokio::time::timeout(CONNECT_TIMEOUT, greet(path, hello))
        .await
        .unwrap_or_else(|_| Err(ConnectError::Timeout(path.to_owned())))
}

async fn greet(path: &Path, hello: &Hello) -> Result<(ReadHalf, WriteHalf, Welcome), ConnectError> {
    let (mut reader, mut writer) = split(open(path).await?);
    let failed = |error: FrameError| ConnectError::from_transport(path, TransportError::from(error));
    write_frame(&mut writer, hello).await.map_err(failed)?;
    let Some(payload) = read_payload(&mut reader).await.map_err(failed)? else {
        return Err(ConnectError::Closed(path.to_owned()));
    };
    let welcome = connect::accept(frame::decode(&payload).map_err(failed)?)?;
    Ok((reader, writer, welcome))
}

/// A connected socket whose peer is this user.
async fn open(path: &Path) -> Result<Stream, ConnectError> {
    loop {
        let stream = dial(path).await.map_err(|error| ConnectError::from_io(path, error))?;
        match check_peer(&stream) {
            Ok(_) => return Ok(stream),
            // The daemon's queue of connections is full: on Linux the socket is then left unconnected.
            Err(PeerError::Io(error)) if error.kind() == io::ErrorKind::NotConnected => {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => return Err(ConnectError::from_peer(path, error)),
        }
    }
}

async fn dial(path: &Path) -> io::Result<Stream> {
    let name = path.to_fs_name::<GenericFilePath>()?;
    ConnectOptions::new().name(name).connect_tokio().await
}

/// The peer of an accepted connection, where it runs as this user. Before anything is read.
///
/// # Errors
/// See [`PeerError`].
pub fn check_peer(stream: &Stream) -> Result<Peer, PeerError> {
    let Stream::UdSocket(stream) = stream;
    peer::check(stream)
}

/// Both halves of an accepted connection.
#[must_use]
pub fn split(stream: Stream) -> (ReadHalf, WriteHalf) {
    let Stream::UdSocket(stream) = stream;
    UnixStream::from(stream).into_split()
}

/// Listens at a path that must be free: whoever finds a socket of a dead daemon there removes it
/// first, under the lock. Its mode is 0600, and dropping the listener leaves the file alone. Within
/// a tokio runtime.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] where the path is taken, and what the system reports.
pub fn listen(path: &Path) -> io::Result<Listener> {
    let name = path.to_fs_name::<GenericFilePath>()?;
    let options = ListenerOptions::new().name(name).reclaim_name(false);
    listen_private(options)
}

/// The mode is on the socket before it is bound: there is no moment at which it is wider.
#[cfg(target_os = "linux")]
fn listen_private(options: ListenerOptions<'_>) -> io::Result<Listener> {
    use interprocess::os::unix::local_socket::ListenerOptionsExt;
    options.mode(0o600).create_tokio()
}

/// No mode can be set before binding here, so the process's umask makes it, for that moment.
#[cfg(not(target_os = "linux"))]
fn listen_private(options: ListenerOptions<'_>) -> io::Result<Listener> {
    use nix::sys::stat::{Mode, umask};
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = options.create_tokio();
    umask(before);
    listener
}

/// The listener that a supervisor handed over. Within a tokio runtime.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] where it is no listening Unix stream socket.
pub fn from_fd(fd: OwnedFd) -> io::Result<Listener> {
    let unix = getsockname::<UnixAddr>(std::os::fd::AsRawFd::as_raw_fd(&fd)).is_ok();
    let stream = getsockopt(&fd, sockopt::SockType) == Ok(SockType::Stream);
    let listening = getsockopt(&fd, sockopt::AcceptConn) == Ok(true);
    if !(unix && stream && listening) {
        let what = "the socket handed over is no listening Unix stream socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    uds::Listener::try_from(fd).map(Listener::from)
}
