//! The connection to `poold`: observations go out as calls, answers and questions come in.

use std::path::Path;
use std::time::Duration;

use protocol::aio::{self, FrameReader, ReadHalf, WriteHalf};
use protocol::reply::{Ask, WatchSetup};
use protocol::request::Observe;
use protocol::{Call, Frame, FrameError, Hello, Request, Response, Role, TransportError, frame};

use crate::Options;
use crate::error::Error;

/// How long `poold` may take to read or to answer before it is given up: a turn of its engine is
/// milliseconds, and a disk that stalls for longer than this helps nobody.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many observations may be unanswered.
const WINDOW: u64 = 4;

/// What `poold` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Observation number `.0` of this connection left a gap: a whole snapshot is needed.
    Gap(u64),
    /// A snapshot with this number is asked for, taken from now on.
    Asked(u64),
    /// Nothing to act on.
    Fine,
}

/// A welcomed connection.
pub(crate) struct Link {
    reader: FrameReader<ReadHalf>,
    writer: WriteHalf,
    sent: u64,
    answered: u64,
}

impl Link {
    /// Connects, and hears what to watch.
    pub(crate) async fn open(options: &Options) -> Result<(Self, WatchSetup), Error> {
        let hello = Hello::new(Role::Watcher, &options.pool, &options.build);
        let (reader, writer, _welcome) = aio::connect(Path::new(&options.socket), &hello).await?;
        let mut link = Self { reader: FrameReader::new(reader), writer, sent: 0, answered: 0 };
        match in_time(link.frame()).await? {
            Frame::Ask(Ask::Watch(setup)) => Ok((link, setup)),
            Frame::Reply { reply: Err(refusal), .. } => Err(Error::Refused(refusal)),
            _ => Err(unexpected("something else than what to watch")),
        }
    }

    /// Whether another observation may be sent before an answer was heard.
    pub(crate) fn has_room(&self) -> bool {
        self.sent - self.answered < WINDOW
    }

    /// The number that the next observation will have.
    pub(crate) fn next_call(&self) -> u64 {
        self.sent + 1
    }

    /// Sends an observation. Not to be cancelled.
    pub(crate) async fn send(&mut self, observe: Observe) -> Result<(), Error> {
        self.sent += 1;
        let call = Call { id: self.sent, op: None, lock: None, request: Request::Observe(observe) };
        let written = aio::write_frame(&mut self.writer, &call);
        in_time(async { Ok(written.await.map_err(TransportError::from)?) }).await
    }

    /// What `poold` says next. May be cancelled.
    pub(crate) async fn hear(&mut self) -> Result<Heard, Error> {
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

    /// As [`Link::hear`], where silence means that `poold` is stuck.
    pub(crate) async fn hear_soon(&mut self) -> Result<Heard, Error> {
        in_time(self.hear()).await
    }

    async fn frame(&mut self) -> Result<Frame, Error> {
        let payload = self.reader.next().await.map_err(TransportError::from)?;
        let payload = payload.ok_or(TransportError::Closed)?;
        Ok(frame::decode(&payload).map_err(TransportError::from)?)
    }
}

async fn in_time<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or(Err(Error::Lost(TransportError::Timeout)))
}

fn unexpected(what: &'static str) -> Error {
    Error::Lost(TransportError::Frame(FrameError::Unexpected(what)))
}
