//! The two pipes to a server in control mode, and detection of their end.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Child;

use super::parse::{Event, Parser};
use crate::error::TmuxError;
use crate::imsg::{self, Form, kind};

/// This process's ends of the pipes.
pub(super) struct Pipes {
    commands: pipe::Sender,
    replies: pipe::Receiver,
}

/// The server's ends of the pipes.
pub(super) struct ServerEnds {
    pub(super) commands: OwnedFd,
    pub(super) replies: OwnedFd,
}

impl Pipes {
    pub(super) fn new() -> std::io::Result<(Self, ServerEnds)> {
        let (commands, far_commands) = pipe::pipe()?;
        let (far_replies, replies) = pipe::pipe()?;
        let far = ServerEnds {
            commands: far_commands.into_blocking_fd()?,
            replies: far_replies.into_blocking_fd()?,
        };
        Ok((Self { commands, replies }, far))
    }
}

/// The socket or the process that the connection lives as long as. Dropping it ends the connection.
pub(super) enum Peer {
    Socket(Socket),
    /// A tmux client, killed and reaped on drop.
    Client(Child),
}

impl Peer {
    /// Waits for the end. Cancel-safe.
    async fn ended(&mut self) {
        match self {
            Self::Socket(socket) => socket.ended().await,
            // An error leaves nothing to wait for either.
            Self::Client(child) => drop(child.wait().await),
        }
    }
}

/// The socket of a native connection. After identification only its end matters.
pub(super) struct Socket {
    stream: UnixStream,
    form: Form,
    buffer: Vec<u8>,
}

impl Socket {
    pub(super) fn new(stream: UnixStream, form: Form) -> Self {
        Self { stream, form, buffer: Vec::new() }
    }

    /// Waits until the server is gone or tells the client to exit. Cancel-safe.
    async fn ended(&mut self) {
        while let Ok(1..) = self.stream.read_buf(&mut self.buffer).await {
            if self.has_ended() {
                return;
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        loop {
            match imsg::decode(self.form, &self.buffer) {
                Ok(None) => return false,
                Ok(Some((frame, length))) => {
                    if frame.kind == kind::VERSION || kind::ENDS.contains(&frame.kind) {
                        return true;
                    }
                    self.buffer.drain(..length);
                }
                Err(_) => return true,
            }
        }
    }
}

/// A connection in control mode.
pub(super) struct Channel {
    /// `None` once it has ended.
    open: Option<(Pipes, Peer)>,
    /// Commands not yet written.
    outbox: Vec<u8>,
    parser: Parser,
}

impl Channel {
    pub(super) fn new(pipes: Pipes, peer: Peer, cap: usize) -> Self {
        Self { open: Some((pipes, peer)), outbox: Vec::new(), parser: Parser::new(cap) }
    }

    /// Queues a command line.
    pub(super) fn send(&mut self, line: &str) {
        self.outbox.extend_from_slice(line.as_bytes());
    }

    /// Ends the connection. Events received before are still delivered.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// Returns the next event; for `mark` see [`Parser::next`]. Cancel-safe.
    ///
    /// # Errors
    /// [`TmuxError::Closed`], [`TmuxError::TooLong`].
    pub(super) async fn event(&mut self, mark: &str) -> Result<Event, TmuxError> {
        loop {
            if let Some(event) = self.parser.next(mark)? {
                return Ok(event);
            }
            self.exchange().await?;
        }
    }

    /// Writes or reads some bytes.
    async fn exchange(&mut self) -> Result<(), TmuxError> {
        let (Pipes { commands, replies }, peer) = self.open.as_mut().ok_or(TmuxError::Closed)?;
        let lasts = tokio::select! {
            biased;
            written = commands.write(&self.outbox), if !self.outbox.is_empty() => {
                written.map(|n| self.outbox.drain(..n).len())
            }
            read = replies.read_buf(self.parser.buffer_mut()) => read,
            () = peer.ended() => Ok(0),
        };
        if !matches!(lasts, Ok(1..)) {
            // The server writes its last words before it ends the connection.
            drain(&*replies, self.parser.buffer_mut());
            self.close();
        }
        Ok(())
    }
}

/// Reads the available bytes without waiting. A read past the runtime's readiness bookkeeping sees bytes
/// that it has not been notified of yet. A pipe holds no more than a few times 64 KiB.
fn drain(from: impl AsFd, into: &mut Vec<u8>) {
    let mut chunk = [0; 16 << 10];
    loop {
        match nix::unistd::read(from.as_fd(), &mut chunk) {
            Ok(n @ 1..) => into.extend_from_slice(&chunk[..n]),
            Err(Errno::EINTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}
