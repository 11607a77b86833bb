//! The connection to `poold`: observations go out as calls, replies and requests for snapshots come in.

use std::path::Path;
use std::time::Duration;

use protocol::aio::{self, FrameReader, ReadHalf, WriteHalf};
use protocol::reply::{WatchSetup, WatcherCommand};
use protocol::request::Observe;
use protocol::tmux::TmuxTransport;
use protocol::{Call, Frame, FrameError, Hello, Request, Response, Role, TransportError, frame};

use crate::Options;
use crate::error::Error;
use crate::stream::{Feedback, Sink};

/// Time limit for `poold` to read or to answer: a turn of its engine takes milliseconds, and waiting out a
/// disk that stalls for longer is of no use.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of unanswered observations.
const WINDOW: u64 = 4;

/// A connection after the handshake.
pub(crate) struct Link {
    reader: FrameReader<ReadHalf>,
    writer: WriteHalf,
    sent: u64,
    answered: u64,
}

impl Link {
    /// Connects as a watcher in this role, and receives the setup.
    pub(crate) async fn open(options: &Options, role: Role) -> Result<(Self, WatchSetup), Error> {
        let hello = Hello::new(role, &options.pool, &options.build);
        let (reader, writer, _welcome) = aio::connect(Path::new(&options.socket), &hello).await?;
        let mut link = Self { reader: FrameReader::new(reader), writer, sent: 0, answered: 0 };
        match with_timeout(link.frame()).await? {
            Frame::Command(WatcherCommand::Watch(setup)) => Ok((link, setup)),
            Frame::Reply { reply: Err(refusal), .. } => Err(Error::Refused(refusal)),
            _ => Err(unexpected("another frame than the setup")),
        }
    }

    /// Sends a request. Not cancel-safe.
    async fn call(&mut self, request: Request) -> Result<(), Error> {
        self.sent += 1;
        let call = Call { id: self.sent, op: None, lock: None, request };
        let written = aio::write_frame(&mut self.writer, &call);
        with_timeout(async { Ok(written.await.map_err(TransportError::from)?) }).await
    }

    async fn frame(&mut self) -> Result<Frame, Error> {
        let payload = self.reader.next().await.map_err(TransportError::from)?;
        let payload = payload.ok_or(TransportError::Closed)?;
        Ok(frame::decode(&payload).map_err(TransportError::from)?)
    }
}

impl Sink for Link {
    fn has_room(&self) -> bool {
        self.sent - self.answered < WINDOW
    }

    fn next_call(&self) -> u64 {
        self.sent + 1
    }

    async fn observe(&mut self, observe: Observe) -> Result<(), Error> {
        self.call(Request::Observe(observe)).await
    }

    async fn report_transport(&mut self, transport: TmuxTransport) -> Result<(), Error> {
        self.call(Request::WatchingBy(transport)).await
    }

    async fn feedback(&mut self) -> Result<Feedback, Error> {
        Ok(match self.frame().await? {
            Frame::Command(WatcherCommand::Snapshot { n }) => Feedback::SnapshotRequested(n),
            Frame::Reply { reply: Err(refusal), .. } => return Err(Error::Refused(refusal)),
            Frame::Reply { id, reply: Ok(response) } => {
                self.answered += 1;
                if response == Response::SendSnapshot { Feedback::Gap(id) } else { Feedback::Nothing }
            }
            _ => Feedback::Nothing,
        })
    }

    fn stall_limit(&self) -> Option<Duration> {
        Some(PATIENCE)
    }
}

async fn with_timeout<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or(Err(Error::Lost(TransportError::Timeout)))
}

fn unexpected(what: &'static str) -> Error {
    Error::Lost(TransportError::Frame(FrameError::Unexpected(what)))
}
