//! A connection to `poold`: one call at a time.

use std::time::Duration;

use protocol::aio::{self, FrameReader, ReadHalf, WriteHalf};
use protocol::reap::{Candidate, Lease, Verdict};
use protocol::{
    Call, Frame, FrameError, Hello, Reply, Request, Response, Role, SessionId, Tag, TransportError, frame,
};

use crate::Options;
use crate::error::Error;

/// Time limit of a reply, beyond the requested waiting time. A lease waits for the session's lock, 10 s,
/// and for a last capture of its screen, 5 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection after the handshake.
pub(crate) struct Link {
    reader: FrameReader<ReadHalf>,
    writer: WriteHalf,
    calls: u64,
}

impl Link {
    pub(crate) async fn open(options: &Options) -> Result<Self, Error> {
        let hello = Hello::new(Role::Reaper, &options.pool, &options.build);
        let (reader, writer, _welcome) = aio::connect(&options.socket, &hello).await?;
        Ok(Self { reader: FrameReader::new(reader), writer, calls: 0 })
    }

    /// Returns the next candidate, waiting at most this long.
    pub(crate) async fn next_candidate(&mut self, wait: Duration) -> Result<Option<Candidate>, Error> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        match self.call(Request::NextCandidate { wait_ms }, wait + PATIENCE).await? {
            Response::Candidates(named) => Ok(named.into_iter().next()),
            _ => Err(unexpected("no candidate")),
        }
    }

    pub(crate) async fn candidates(&mut self) -> Result<Vec<Candidate>, Error> {
        match self.call(Request::Candidates, PATIENCE).await? {
            Response::Candidates(named) => Ok(named),
            _ => Err(unexpected("no candidates")),
        }
    }

    pub(crate) async fn take_lease(&mut self, session: SessionId, tag: Tag) -> Result<Lease, Error> {
        match self.call(Request::TakeLease { session, tag }, PATIENCE).await? {
            Response::Lease(lease) => Ok(*lease),
            _ => Err(unexpected("no lease")),
        }
    }

    pub(crate) async fn settle(&mut self, verdict: Verdict) -> Result<(), Error> {
        self.call(Request::Settle(verdict), PATIENCE).await.map(drop)
    }

    /// Sends a request, and joins the parts of the response.
    async fn call(&mut self, request: Request, limit: Duration) -> Result<Response, Error> {
        let answer = tokio::time::timeout(limit, self.exchange(request)).await;
        Ok(answer.unwrap_or(Err(TransportError::Timeout))??)
    }

    async fn exchange(&mut self, request: Request) -> Result<Reply, TransportError> {
        self.calls += 1;
        let call = Call { id: self.calls, op: None, lock: None, request };
        aio::write_frame(&mut self.writer, &call).await?;
        let mut whole: Option<Response> = None;
        loop {
            let (part, is_last) = match self.frame().await? {
                Frame::Part { id, part } if id == self.calls => (part, false),
                Frame::Reply { id, reply: Ok(part) } if id == self.calls => (part, true),
                // The answer, or the reason why the connection ends.
                Frame::Reply { id, reply: Err(refusal) } if id == self.calls || id == 0 => {
                    return Ok(Err(refusal));
                }
                _ => continue,
            };
            let fits = whole.as_mut().is_none_or(|whole| whole.append(part.clone()));
            if !fits {
                return Err(FrameError::Unexpected("a part of another kind than the one before").into());
            }
            let joined = whole.take().unwrap_or(part);
            if is_last {
                return Ok(Ok(joined));
            }
            whole = Some(joined);
        }
    }

    async fn frame(&mut self) -> Result<Frame, TransportError> {
        let payload = self.reader.next().await?.ok_or(TransportError::Closed)?;
        Ok(frame::decode(&payload)?)
    }
}

fn unexpected(what: &'static str) -> Error {
    Error::Lost(TransportError::Frame(FrameError::Unexpected(what)))
}
