//! Frames and connections on tokio, for `poold` and `tmux-watch` (feature `aio`).

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
use crate::frame::{self, CHUNK, FrameBuffer, FrameError, PREFIX_LEN};
use crate::hello::{Hello, Welcome};
use crate::peer::{self, Peer, PeerError};

/// The reading half of a connection.
pub type ReadHalf = tokio::net::unix::OwnedReadHalf;
/// The writing half of a connection. Dropping it ends the stream for the peer.
pub type WriteHalf = tokio::net::unix::OwnedWriteHalf;

/// Reads the next payload; returns `None` if the stream ended between two frames. Memory grows with the bytes
/// received, at most [`CHUNK`] ahead of them.
///
/// Not cancellation-safe: in a `select!` use a [`FrameReader`].
///
/// # Errors
/// An invalid length, an end of the stream within a frame, or an I/O error.
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

/// Writes a value as one frame. Not cancellation-safe.
///
/// # Errors
/// A value that does not fit a frame, or an I/O error.
pub async fn write_frame<W: AsyncWrite + Unpin, T: Serialize + ?Sized>(
    writer: &mut W,
    value: &T,
) -> Result<(), FrameError> {
    writer.write_all(&frame::encode(value)?).await?;
    Ok(writer.flush().await?)
}

/// A cancellation-safe reader of frames: a cancelled [`FrameReader::next`] loses no bytes.
#[derive(Debug)]
pub struct FrameReader<R> {
    reader: R,
    incoming: FrameBuffer,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Creates a reader of this stream.
    pub fn new(reader: R) -> Self {
        Self { reader, incoming: FrameBuffer::default() }
    }

    /// Reads the next payload, as [`read_payload`] does.
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

/// Connects and completes the handshake within [`CONNECT_TIMEOUT`].
pub async fn connect(path: &Path, hello: &Hello) -> Result<(ReadHalf, WriteHalf, Welcome), ConnectError> {
    tokio::time::timeout(CONNECT_TIMEOUT, handshake(path, hello))
        .await
        .unwrap_or_else(|_| Err(ConnectError::Timeout(path.to_owned())))
}

async fn handshake(path: &Path, hello: &Hello) -> Result<(ReadHalf, WriteHalf, Welcome), ConnectError> {
    let (mut reader, mut writer) = split(open(path).await?);
    let failed = |error: FrameError| ConnectError::from_transport(path, TransportError::from(error));
    write_frame(&mut writer, hello).await.map_err(failed)?;
    let Some(payload) = read_payload(&mut reader).await.map_err(failed)? else {
        return Err(ConnectError::Closed(path.to_owned()));
    };
    let welcome = connect::accept(hello, frame::decode(&payload).map_err(failed)?)?;
    Ok((reader, writer, welcome))
}

/// Connects to a socket and checks that its peer runs as this user.
async fn open(path: &Path) -> Result<Stream, ConnectError> {
    loop {
        let stream = dial(path).await.map_err(|error| ConnectError::from_io(path, error))?;
        match check_peer(&stream) {
            Ok(_) => return Ok(stream),
            // The daemon's backlog is full. On Linux the socket is then left unconnected.
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

/// Returns the peer of an accepted connection if it runs as this user. To be called before anything is read.
pub fn check_peer(stream: &Stream) -> Result<Peer, PeerError> {
    let Stream::UdSocket(stream) = stream;
    peer::check(stream)
}

/// Splits an accepted connection into its halves.
pub fn split(stream: Stream) -> (ReadHalf, WriteHalf) {
    let Stream::UdSocket(stream) = stream;
    UnixStream::from(stream).into_split()
}

/// Listens at a path, with mode 0600. The path must be free: the caller, who holds the lock, removes the
/// socket of a dead daemon first. Dropping the listener does not remove the file. Needs a tokio runtime.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if the path is taken, or another I/O error.
pub fn listen(path: &Path) -> io::Result<Listener> {
    let name = path.to_fs_name::<GenericFilePath>()?;
    let options = ListenerOptions::new().name(name).reclaim_name(false);
    listen_private(options)
}

/// Sets the mode of the socket before it is bound, so it is never wider.
#[cfg(target_os = "linux")]
fn listen_private(options: ListenerOptions<'_>) -> io::Result<Listener> {
    use interprocess::os::unix::local_socket::ListenerOptionsExt;
    options.mode(0o600).create_tokio()
}

/// Restricts the socket through the process's umask, because no mode can be set before binding here.
#[cfg(not(target_os = "linux"))]
fn listen_private(options: ListenerOptions<'_>) -> io::Result<Listener> {
    use nix::sys::stat::{Mode, umask};
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = options.create_tokio();
    umask(before);
    listener
}

/// Takes over a listener passed by a supervisor. Needs a tokio runtime.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is no listening Unix stream socket.
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
