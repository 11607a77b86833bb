//! The two pipes between us and a server in control mode, and whatever tells that they are over.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::Child;

use super::native::Socket;
use super::parse::{Event, Parser};
use crate::error::TmuxError;

/// Our ends of the pipes.
pub(super) struct Pipes {
    commands: pipe::Sender,
    replies: pipe::Receiver,
}

/// The other ends, for the server.
pub(super) struct FarEnds {
    pub(super) commands: OwnedFd,
    pub(super) replies: OwnedFd,
}

impl Pipes {
    pub(super) fn new() -> std::io::Result<(Self, FarEnds)> {
        let (commands, far_commands) = pipe::pipe()?;
        let (far_replies, replies) = pipe::pipe()?;
        let far =
            FarEnds { commands: far_commands.into_blocking_fd()?, replies: far_replies.into_blocking_fd()? };
        Ok((Self { commands, replies }, far))
    }
}

/// What a connection lasts as long as. Dropping it ends the connection.
pub(super) enum Tie {
    Socket(Socket),
    /// A tmux client, killed and reaped when it is dropped.
    Client(Child),
}

impl Tie {
    /// Returns when it is over. May be cancelled.
    async fn over(&mut self) {
        match self {
            Self::Socket(socket) => socket.over().await,
            // An error leaves nothing to wait for either.
            Self::Client(child) => drop(child.wait().await),
        }
    }
}

/// A connection in control mode.
pub(super) struct Wire {
    /// `None` once it is over.
    open: Option<(Pipes, Tie)>,
    /// Commands not yet written.
    outbox: Vec<u8>,
    parser: Parser,
}

impl Wire {
    pub(super) fn new(pipes: Pipes, tie: Tie, cap: usize) -> Self {
        Self { open: Some((pipes, tie)), outbox: Vec::new(), parser: Parser::new(cap) }
    }

    /// Puts a command line on its way.
    pub(super) fn send(&mut self, line: &str) {
        self.outbox.extend_from_slice(line.as_bytes());
    }

    /// Ends the connection. What came before is still heard.
    pub(super) fn close(&mut self) {
        self.open = None;
    }

    /// The next event; for `mark` see [`Parser::next`]. May be cancelled without loss.
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

    /// Writes or reads some.
    async fn exchange(&mut self) -> Result<(), TmuxError> {
        let (Pipes { commands, replies }, tie) = self.open.as_mut().ok_or(TmuxError::Closed)?;
        let lasts = tokio::select! {
            biased;
            written = commands.write(&self.outbox), if !self.outbox.is_empty() => {
                written.map(|n| self.outbox.drain(..n).len())
            }
            read = replies.read_buf(self.parser.room()) => read,
            () = tie.over() => Ok(0),
        };
        if !matches!(lasts, Ok(1..)) {
            // The server writes its last words before it ends the connection.
            drain(&*replies, self.parser.room());
            self.close();
        }
        Ok(())
    }
}

/// Takes what is there, without waiting: reading past the runtime's bookkeeping sees bytes that it
/// has not been told of yet. A pipe holds no more than a few times 64 KiB.
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
