//! A connection to the daemon: of a client, a hook, a worker, the reaper or the watcher.

use std::time::Duration;

use protocol::aio::FrameReader;
use protocol::hello::HelloReply;
use protocol::{Call, Frame, Hello, OpId, ProcId, Reply, Request, Role, Token, frame};
use tokio::time::timeout;
use world::transport::{Receiver, Sender};

use crate::world::net::Net;

/// Time limit for an answer.
const LIMIT: Duration = Duration::from_secs(300);

/// A connection after its handshake.
pub(crate) struct Client {
    reader: FrameReader<Receiver>,
    sender: Box<dyn Sender>,
    calls: u64,
    /// True once a request was not answered in time.
    pub(crate) is_unanswered: bool,
}

impl Client {
    /// Connects. `None` if no daemon answers, or it refuses.
    pub(crate) async fn connect(net: &Net, role: Role, process: Option<ProcId>) -> Option<Self> {
        let stream = net.connect(process)?;
        let mut client = Self {
            reader: FrameReader::new(stream.receiver),
            sender: stream.sender,
            calls: 0,
            is_unanswered: false,
        };
        client.send(&frame::encode(&Hello::new(role, "", "sim")).ok()?).await?;
        let payload = timeout(Duration::from_secs(10), client.reader.next()).await.ok()?.ok()??;
        frame::decode::<HelloReply>(&payload).ok()?.ok()?;
        Some(client)
    }

    /// Sends a request, and returns its answer; the parts of a long one are joined. `None` if the connection
    /// is lost.
    pub(crate) async fn call(&mut self, op: Option<OpId>, request: Request) -> Option<Reply> {
        self.call_under(op, None, request).await
    }

    /// Does the same under a user's lock, if one is given.
    pub(crate) async fn call_under(
        &mut self,
        op: Option<OpId>,
        lock: Option<Token>,
        request: Request,
    ) -> Option<Reply> {
        self.calls += 1;
        let id = self.calls;
        let call = Call { id, op, lock, request };
        self.send(&frame::encode(&call).ok()?).await?;
        let mut whole: Option<protocol::Response> = None;
        loop {
            let Ok(frame) = timeout(LIMIT, self.frame()).await else {
                self.is_unanswered = true;
                return None;
            };
            let frame = frame?;
            let (part, is_last) = match frame {
                Frame::Part { id: of, part } if of == id => (part, false),
                Frame::Reply { id: of, reply: Ok(part) } if of == id => (part, true),
                Frame::Reply { id: of, reply: Err(refusal) } if of == id => return Some(Err(refusal)),
                _ => continue,
            };
            let fits = whole.as_mut().is_none_or(|whole| whole.append(part.clone()));
            if !fits {
                return None;
            }
            let joined = whole.take().unwrap_or(part);
            if is_last {
                return Some(Ok(joined));
            }
            whole = Some(joined);
        }
    }

    /// Returns the next frame; `None` once the connection has ended.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let payload = self.reader.next().await.ok()??;
        frame::decode(&payload).ok()
    }

    pub(crate) async fn send(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            self.sender.ready().await.ok()?;
            match self.sender.try_send(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        Some(())
    }
}
