//! Subscribers to a session's output: the bytes of its log from an offset on, then new ones as they are
//! written, over all incarnations. The log is the buffer: a slow reader is only behind, until the bytes that
//! it would read next are rotated away.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use logs::Reader;
use protocol::request::Output;
use protocol::{Frame, Lifecycle, OsBytes, Refusal, SessionId, Tag};

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::{BlockingPool, Purpose};
use crate::host::dir_watcher::DirWatch;
use crate::host::log_writer_end;
use crate::host::outbox::{Outbox, PeerGone};
use crate::net::connection::Connection;
use crate::verb::wait;

/// Maximum number of bytes in a frame.
const BLOCK_MAX: usize = 64 << 10;

/// Serves the subscription until the connection or the session ends.
pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection, (id, asked): (u64, Output)) {
    let (reader, outbox) = (&mut connection.reader, &connection.outbox);
    let wanted = asked.session;
    let found =
        daemon.engine.turn(move |turn| pool::session::resolve(turn.pool(), &wanted).map(|s| s.id)).await;
    let session = match found.and_then(|found| found) {
        Ok(session) => session,
        Err(refusal) => return refuse(outbox, id, refusal),
    };
    let dir = daemon.paths.logs_of(session);
    // The watch begins before the first read, so that no change is missed.
    let watch = daemon.dir_watcher.watch(&dir);
    let log = match Log::open(daemon.blocking.clone(), dir, asked.from).await {
        Ok(log) => log,
        Err(refusal) => return refuse(outbox, id, refusal),
    };
    tokio::select! {
        biased;
        // The peer is gone, the session has ended, or the file system does not answer.
        followed = follow(daemon, outbox, session, (log, watch)) => drop(followed),
        // A subscriber sends nothing more: anything read here ends the subscription.
        _ = reader.next() => {}
    }
}

fn refuse(outbox: &Outbox, id: u64, refusal: Refusal) {
    // The peer may be gone already.
    drop(outbox.reply(id, Err(refusal)));
}

async fn follow(
    daemon: &Arc<Daemon>,
    outbox: &Outbox,
    session: SessionId,
    (mut log, mut watch): (Log, DirWatch),
) -> Result<(), PeerGone> {
    // Tells the offset at which the output begins.
    outbox.send(Frame::Output { offset: log.offset, bytes: OsBytes(Vec::new()) }).await?;
    loop {
        let context = Arc::clone(daemon);
        let ends = daemon.engine.wait_on(session, None, move |turn| finished(turn, &context, session));
        tokio::pin!(ends);
        let run = loop {
            if log.send_rest(outbox).await? {
                watch.reset_backoff();
            }
            tokio::select! {
                biased;
                () = watch.changed() => {}
                ended = &mut ends => break ended.map_err(|_| PeerGone)?,
            }
        };
        log_writer_end::wait(&daemon.blocking, &log.dir, run).await.ok_or(PeerGone)?;
        log.send_rest(outbox).await?;
        // Asked again, as the session may have been started since.
        let context = Arc::clone(daemon);
        let finished = daemon.engine.turn(move |turn| finished(turn, &context, session)).await;
        if finished.map_err(|_| PeerGone)?.is_some() {
            return outbox.send(Frame::Closed { offset: log.offset }).await;
        }
    }
}

/// Returns the last incarnation of a session whose log will not grow any more, unless a user starts it again;
/// `None` while it may grow.
fn finished(turn: &Turn<'_>, daemon: &Daemon, session: SessionId) -> Option<Option<Tag>> {
    match turn.pool().session(session) {
        None => Some(None),
        Some(session) if session.lifecycle == Lifecycle::Parked => None,
        Some(session) if wait::runs_or_starts(turn, daemon, session) => None,
        Some(session) => Some(session.tag()),
    }
}

/// A log that is being sent.
struct Log {
    blocking: BlockingPool,
    dir: PathBuf,
    /// None while another thread reads.
    reader: Option<Reader>,
    /// Offset of the next byte to send.
    offset: u64,
}

/// A block read from a log.
struct Block {
    reader: Reader,
    bytes: Vec<u8>,
    /// True if bytes before the block are rotated away.
    missed: bool,
}

impl Log {
    /// Opens the log at an offset, or at its end; an offset beyond that is of an earlier log.
    async fn open(blocking: BlockingPool, dir: PathBuf, from: Option<u64>) -> Result<Self, Refusal> {
        let path = dir.clone();
        let begin = move || {
            let (_, end) = logs::bounds(&path)?;
            Ok::<_, io::Error>(from.map_or(end, |from| from.min(end)))
        };
        let unreadable =
            |why: &str| Refusal::failed(format!("the log in {} cannot be read: {why}", dir.display()));
        let begin = blocking.with_timeout(Purpose::Logs, begin).await;
        let offset = begin
            .ok_or_else(|| unreadable("its file system does not answer"))?
            .map_err(|error| unreadable(&error.to_string()))?;
        Ok(Self { blocking, reader: Some(Reader::new(&dir, offset)), dir, offset })
    }

    /// Sends the rest of the log as fast as the peer reads. Returns true if there was any.
    async fn send_rest(&mut self, outbox: &Outbox) -> Result<bool, PeerGone> {
        let mut any = false;
        loop {
            outbox.wait_until_empty().await?;
            let Some(reader) = self.reader.take() else { return Err(PeerGone) };
            let Block { reader, bytes, missed } =
                self.blocking.with_timeout(Purpose::Logs, move || next(reader)).await.ok_or(PeerGone)??;
            let offset = reader.offset() - bytes.len() as u64;
            self.offset = reader.offset();
            self.reader = Some(reader);
            if missed {
                outbox.send(Frame::Truncated { offset }).await?;
            }
            if bytes.is_empty() {
                return Ok(any);
            }
            any = true;
            outbox.send(Frame::Output { offset, bytes: OsBytes(bytes) }).await?;
        }
    }
}

fn next(mut reader: Reader) -> Result<Block, PeerGone> {
    let mut bytes = vec![0; BLOCK_MAX];
    let read = reader.read(&mut bytes).map_err(|error| {
        tracing::warn!(%error, log = %reader.dir().display(), "a log cannot be read");
        PeerGone
    })?;
    bytes.truncate(read);
    bytes.shrink_to_fit();
    let missed = reader.take_missed() > 0;
    Ok(Block { reader, bytes, missed })
}
