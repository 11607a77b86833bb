//! A connection without an async runtime, for `poolctl`, the reaper and scripts. It makes one call at a time,
//! with one deadline from the first byte to the last.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use interprocess::ConnectWaitMode;
use interprocess::local_socket::{ConnectOptions, GenericFilePath, ToFsName};
use interprocess::os::unix::uds_local_socket::Stream;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::connect::{self, CONNECT_TIMEOUT, ConnectError, RETRY_PAUSE, TransportError};
use crate::frame::{self, CHUNK, FrameBuffer, FrameError};
use crate::hello::{Hello, HelloReply, Welcome};
use crate::ids::{OpId, Tag, Token};
use crate::job;
use crate::peer::{self, PeerError};
use crate::reply::{Frame, Reply, Response};
use crate::request::{Call, Request};

/// A connection after the handshake.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    incoming: FrameBuffer,
    timeout: Option<Duration>,
    calls: u64,
}

impl Connection {
    /// Connects and completes the handshake within [`CONNECT_TIMEOUT`], which is also the timeout of each
    /// call until [`Connection::set_timeout`] changes it.
    pub fn connect(path: &Path, hello: &Hello) -> Result<(Self, Welcome), ConnectError> {
        Self::connect_within(path, hello, Some(CONNECT_TIMEOUT))
    }

    /// Connects as [`Connection::connect`] does, with another timeout for the handshake and for each call;
    /// `None` waits for ever.
    pub fn connect_within(
        path: &Path,
        hello: &Hello,
        timeout: Option<Duration>,
    ) -> Result<(Self, Welcome), ConnectError> {
        let deadline = Deadline::after(timeout);
        let mut connection = Self::open(path, deadline, timeout)?;
        let welcome = connection.handshake((path, hello), frame::encode(hello), deadline)?;
        Ok((connection, welcome))
    }

    /// Connects, completes the handshake and makes a call in one round trip ([`Connection::connect_within`]
    /// and [`Connection::call`] take two). `timeout` covers all of it; the welcome takes at most
    /// [`CONNECT_TIMEOUT`] of it.
    ///
    /// Only for requests that change nothing: the daemon may carry out the request even if no welcome
    /// arrives.
    ///
    /// # Errors
    /// As [`Connection::connect_within`]; the inner result as [`Connection::call`].
    pub fn connect_and_call(
        path: &Path,
        hello: &Hello,
        timeout: Option<Duration>,
        lock: Option<Token>,
        request: Request,
    ) -> Result<(Self, Result<Reply, TransportError>), ConnectError> {
        let deadline = Deadline::after(timeout);
        let welcomed = Deadline::after(Some(timeout.unwrap_or(CONNECT_TIMEOUT).min(CONNECT_TIMEOUT)));
        let mut connection = Self::open(path, welcomed, timeout)?;
        let call = Call { id: 1, op: None, lock, request };
        // If the hello is refused, the end of the connection could cut off a longer call.
        let along = frame::encode(&call).ok().filter(|call| call.len() <= CHUNK);
        let first = frame::encode(hello).map(|hello| [hello, along.clone().unwrap_or_default()].concat());
        connection.handshake((path, hello), first, welcomed)?;
        let reply = match along {
            None => connection.call(None, call.lock, call.request),
            Some(_) => {
                connection.calls = call.id;
                join_parts(|part| connection.read_answer(call.id, deadline, part))
            }
        };
        Ok((connection, reply))
    }

    fn open(path: &Path, deadline: Deadline, timeout: Option<Duration>) -> Result<Self, ConnectError> {
        Ok(Self { stream: open(path, deadline)?, incoming: FrameBuffer::default(), timeout, calls: 0 })
    }

    /// Writes the first bytes and reads the welcome.
    fn handshake(
        &mut self,
        (path, hello): (&Path, &Hello),
        first: Result<Vec<u8>, FrameError>,
        deadline: Deadline,
    ) -> Result<Welcome, ConnectError> {
        let exchange = || -> Result<HelloReply, TransportError> {
            self.write(&first?, deadline)?;
            Ok(frame::decode(&self.read(deadline)?)?)
        };
        connect::accept(hello, exchange().map_err(|error| ConnectError::from_transport(path, error))?)
    }

    /// Sets the total time allowed for each call and each [`Connection::next_frame`]; `None` waits for ever.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Makes a call and waits for the whole answer; joins its parts.
    ///
    /// # Errors
    /// See [`TransportError`]. A refusal is no error here: it is in the reply.
    pub fn call(
        &mut self,
        op: Option<OpId>,
        lock: Option<Token>,
        request: Request,
    ) -> Result<Reply, TransportError> {
        join_parts(|part| self.call_each(op, lock, request, part))
    }

    /// Makes a call, passes each part to `part` as it arrives, and returns the reply, which holds the last
    /// part.
    pub fn call_each(
        &mut self,
        op: Option<OpId>,
        lock: Option<Token>,
        request: Request,
        part: impl FnMut(Response),
    ) -> Result<Reply, TransportError> {
        let deadline = Deadline::after(self.timeout);
        let id = self.send_call(Call { id: 0, op, lock, request }, deadline)?;
        self.read_answer(id, deadline, part)
    }

    /// Reads the answer to the call with this id.
    fn read_answer(
        &mut self,
        id: u64,
        deadline: Deadline,
        mut part: impl FnMut(Response),
    ) -> Result<Reply, TransportError> {
        loop {
            match self.frame(deadline)? {
                Frame::Part { id: of, part: next } if of == id => part(next),
                Frame::Reply { id: of, reply } if of == id => return Ok(reply),
                // The peer could not read the call. It gives the reason, and closes the connection.
                Frame::Reply { id: 0, reply: Err(refusal) } => return Ok(Err(refusal)),
                // The late answer to an abandoned call, or a frame of a subscription.
                _ => {}
            }
        }
    }

    /// Sends a request without waiting for an answer, for requests such as [`Request::Subscribe`]. Returns
    /// the call's id.
    pub fn send(&mut self, request: Request) -> Result<u64, TransportError> {
        let deadline = Deadline::after(self.timeout);
        self.send_call(Call { id: 0, op: None, lock: None, request }, deadline)
    }

    /// Reads the next frame of any kind. It may be called again after [`TransportError::Timeout`]: no bytes
    /// are lost.
    pub fn next_frame(&mut self) -> Result<Frame, TransportError> {
        self.frame(Deadline::after(self.timeout))
    }

    /// Assigns the next id to the call and writes it.
    fn send_call(&mut self, mut call: Call, deadline: Deadline) -> Result<u64, TransportError> {
        self.calls += 1;
        call.id = self.calls;
        self.write(&frame::encode(&call)?, deadline)?;
        Ok(call.id)
    }

    fn frame(&mut self, deadline: Deadline) -> Result<Frame, TransportError> {
        Ok(frame::decode(&self.read(deadline)?)?)
    }

    fn read(&mut self, deadline: Deadline) -> Result<Vec<u8>, TransportError> {
        for look in 0_u64.. {
            if let Some(payload) = self.incoming.take()? {
                return Ok(payload);
            }
            // Bytes that have arrived are read even after the deadline, once.
            if look > 0 {
                deadline.remaining()?;
            }
            if read_some(&self.stream, self.incoming.space(), deadline)? == 0 {
                return Err(TransportError::Closed);
            }
        }
        Err(TransportError::Timeout)
    }

    /// Writes a whole frame. An error half-way makes the connection useless and closes it.
    fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), TransportError> {
        write_all(&self.stream, bytes, deadline).map_err(|error| {
            // It may be closed already, which is just as good.
            drop(self.stream.inner().shutdown(Shutdown::Both));
            error.into()
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Asks `poold` to look at the files of this incarnation. Nobody answers, and a failure is harmless because
/// `poold` also looks periodically.
pub fn nudge(path: &Path, tag: Tag, within: Duration) -> Result<(), ConnectError> {
    let deadline = Deadline::after(Some(within));
    let stream = open(path, deadline)?;
    let bytes = frame::wrap(&job::nudge(tag));
    write_all(&stream, &bytes, deadline).map_err(|error| ConnectError::from_io(path, error))
}

/// Joins the parts of an answer that `call` passes on one by one.
fn join_parts(
    call: impl FnOnce(&mut dyn FnMut(Response)) -> Result<Reply, TransportError>,
) -> Result<Reply, TransportError> {
    let mut parts: Option<Response> = None;
    let mut fits = true;
    let mut join = |next: Response| match &mut parts {
        Some(whole) => fits &= whole.append(next),
        None => parts = Some(next),
    };
    match call(&mut join)? {
        Ok(last) => join(last),
        refused => return Ok(refused),
    }
    match parts {
        Some(whole) if fits => Ok(Ok(whole)),
        _ => Err(FrameError::Unexpected("a part of another kind than the one before").into()),
    }
}

/// Connects to a socket and checks that its peer runs as this user.
fn open(path: &Path, deadline: Deadline) -> Result<Stream, ConnectError> {
    loop {
        let stream = dial(path, deadline).map_err(|error| ConnectError::from_io(path, error))?;
        match peer::check(&stream) {
            Ok(_) => return Ok(stream),
            // The daemon's backlog is full. On Linux the socket is then left unconnected.
            Err(PeerError::Io(error)) if error.kind() == io::ErrorKind::NotConnected => {
                deadline.remaining().map_err(|error| ConnectError::from_io(path, error))?;
                thread::sleep(RETRY_PAUSE);
            }
            Err(error) => return Err(ConnectError::from_peer(path, error)),
        }
    }
}

fn dial(path: &Path, deadline: Deadline) -> io::Result<Stream> {
    let wait = deadline.remaining()?.map_or(ConnectWaitMode::Unbounded, ConnectWaitMode::Timeout);
    let name = path.to_fs_name::<GenericFilePath>()?;
    ConnectOptions::new().name(name).wait_mode(wait).nonblocking_stream(true).connect_sync_as()
}

fn read_some(mut stream: &Stream, into: &mut Vec<u8>, deadline: Deadline) -> io::Result<usize> {
    let mut chunk = [0; CHUNK];
    let read = retry(stream.as_fd(), PollFlags::POLLIN, deadline, || stream.read(&mut chunk))?;
    into.extend_from_slice(&chunk[..read]);
    Ok(read)
}

fn write_all(mut stream: &Stream, mut bytes: &[u8], deadline: Deadline) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = retry(stream.as_fd(), PollFlags::POLLOUT, deadline, || stream.write(bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Runs `attempt` as soon as the socket is ready for it.
fn retry(
    fd: BorrowedFd<'_>,
    ready: PollFlags,
    deadline: Deadline,
    mut attempt: impl FnMut() -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(fd, ready, deadline)?,
            result => return result,
        }
    }
}

fn wait(fd: BorrowedFd<'_>, ready: PollFlags, deadline: Deadline) -> io::Result<()> {
    let timeout = match deadline.remaining()? {
        // Rounded up by one millisecond: poll must not return just before the deadline.
        Some(left) => PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX),
        None => PollTimeout::NONE,
    };
    match poll(&mut [PollFd::new(fd, ready)], timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The time at which an operation must be finished; `None` is never.
#[derive(Debug, Clone, Copy)]
struct Deadline(Option<Instant>);

impl Deadline {
    fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Returns the remaining time, or [`io::ErrorKind::TimedOut`] if none is left.
    fn remaining(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}
