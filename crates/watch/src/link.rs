//! The connection to `poold`: observations go out as calls, answers and questions come in.

use std::path::Path;
use std::time::Duration;

use protocol::aio::{self, FrameReader, ReadHalf, WriteHalf};
use protocol::reply::{Ask, WatchSetup};
use protocol::request::Observe;
use protocol::tmux::Means;
use protocol::{Call, Frame, FrameError, Hello, Request, Response, Role, TransportError, frame};

use crate::Options;
use crate::error::Error;
use crate::stream::{Heard, Sink};

/// How long `poold` may take to read or to answer before it is given up: a turn of its engine is
/// milliseconds, and a disk that stalls for longer than this helps nobody.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many observations may be unanswered.
const WINDOW: u64 = 4;

/// A welcomed connection.
pub(crate) struct Link {
    reader: FrameReader<ReadHalf>,
    writer: WriteHalf,
    sent: u64,
    answered: u64,
}

impl Link {
    /// Connects as a watcher in this role, and hears what to watch.
    pub(crate) async fn open(options: &Options, role: Role) -> Result<(Self, WatchSetup), Error> {
        let hello = Hello::new(role, &options.pool, &options.build);
        let (reader, writer, _welcome) = aio::connect(Path::new(&options.socket), &hello).await?;
        let mut link = Self { reader: FrameReader::new(reader), writer, sent: 0, answered: 0 };
        match in_time(link.frame()).await? {
            Frame::Ask(Ask::Watch(setup)) => Ok((link, setup)),
            Frame::Reply { reply: Err(refusal), .. } => Err(Error::Refused(refusal)),
            _ => Err(unexpected("something else than what to watch")),
        }
    }

    /// Not to be cancelled.
    async fn call(&mut self, request: Request) -> Result<(), Error> {
        self.sent += 1;
        let call = Call { id: self.sent, op: None, lock: None, request };
        let written = aio::write_frame(&mut self.writer, &call);
        in_time(async { Ok(written.await.map_err(TransportError::from)?) }).await
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

    async fn watching_by(&mut self, means: Means) -> Result<(), Error> {
        self.call(Request::WatchingBy(means)).await
    }

    async fn hear(&mut self) -> Result<Heard, Error> {
        Ok(match self.frame().await? {
            Frame::Ask(Ask::Snapshot { n }) => Heard::Asked(n),
            Frame::Reply { reply: Err(refusal), .. } => return Err(Error::Refused(refusal)),
            Frame::Reply { id, reply: Ok(response) } => {
                self.answered += 1;
                if response == Response::SendSnapshot { Heard::Gap(id) } else { Heard::Fine }
            }
            _ => Heard::Fine,
        })
    }

    fn patience(&self) -> Option<Duration> {
        Some(PATIENCE)
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or(Err(Error::Lost(TransportError::Timeout)))
}

fn unexpected(what: &'static str) -> Error {
    Error::Lost(TransportError::Frame(FrameError::Unexpected(what)))
}
