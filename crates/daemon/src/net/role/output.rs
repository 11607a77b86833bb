//! Subscribers to what a session writes: the bytes of its log from where they want, then each as it comes, over all
//! runs. The log is the buffer: whoever reads slowly is only behind, until what it would read next is not kept any more.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use logs::Reader;
use protocol::request::Output;
use protocol::session::Session;
use protocol::{Frame, Lifecycle, OsBytes, Refusal, SessionId, Tag};
use tokio::time::{Instant, sleep};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::host::outbox::{Gone, Outbox};
use crate::net::connection::Connection;

/// The most bytes of a frame.
const BLOCK: usize = 64 << 10;

/// Between two looks whether the log's writer is done.
const WRITER_PAUSE: Duration = Duration::from_millis(20);

/// Serves it until the connection or the session is over.
pub(crate) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection, (id, asked): (u64, Output)) {
    let (reader, outbox) = (&mut connection.reader, &connection.outbox);
    let wanted = asked.session;
    let found =
        daemon.engine.turn(move |turn| pool::admit::resolve(turn.pool(), &wanted).map(|s| s.id)).await;
    let session = match found.and_then(|found| found) {
        Ok(session) => session,
        Err(refusal) => return refuse(outbox, id, refusal),
    };
    tokio::select! {
        // A peer that is gone, and a file system that does not answer, end it alike.
        followed = follow(daemon, outbox, session, asked.from) => drop(followed),
        // It says nothing more; this is its end.
        _ = reader.next() => {}
    }
}

fn refuse(outbox: &Outbox, id: u64, refusal: Refusal) {
    // It may be gone already.
    drop(outbox.reply(id, Err(refusal)));
}

async fn follow(
    daemon: &Arc<Daemon>,
    outbox: &Outbox,
    session: SessionId,
    from: Option<u64>,
) -> Result<(), Gone> {
    let dir = daemon.paths.session(session).join("logs");
    // Before the first look, so that nothing comes in between.
    let mut ear = daemon.ears.listen(&dir);
    let mut log = Log::open(dir, from).await?;
    // Where it begins.
    outbox.send(Frame::Output { offset: log.offset, bytes: OsBytes(Vec::new()) }).await?;
    loop {
        let ends = daemon.engine.wait_on(session, None, move |turn| end(turn, session));
        tokio::pin!(ends);
        let run = loop {
            if log.send_rest(outbox).await? {
                ear.heard();
            }
            tokio::select! {
                () = ear.hear() => {}
                ended = &mut ends => break ended.map_err(|_| Gone)?,
            }
        };
        log.written(run).await?;
        log.send_rest(outbox).await?;
        // It may have been started again meanwhile.
        if daemon.engine.turn(move |turn| end(turn, session)).await.map_err(|_| Gone)?.is_some() {
            return outbox.send(Frame::Closed { offset: log.offset }).await;
        }
    }
}

/// Whether nothing will write to the session's log any more, unless somebody starts it again; and its last incarnation.
fn end(turn: &Turn<'_>, session: SessionId) -> Option<Option<Tag>> {
    match turn.pool().session(session) {
        None => Some(None),
        Some(session) if may_write_more(session) => None,
        Some(session) => Some(session.incarnation.as_ref().map(|run| run.tag)),
    }
}

fn may_write_more(session: &Session) -> bool {
    let lifecycle = session.lifecycle;
    let comes_again = lifecycle == Lifecycle::Parked || session.budget.due_at.is_some();
    lifecycle.holds_slot() || comes_again || pool::is_between(session)
}

/// A log that is sent.
struct Log {
    dir: PathBuf,
    /// Not there while it is read elsewhere.
    reader: Option<Reader>,
    /// The offset of what comes next.
    offset: u64,
}

/// What comes next in a log.
struct Piece {
    reader: Reader,
    bytes: Vec<u8>,
    missed: bool,
}

impl Log {
    /// At this offset, or at its end.
    async fn open(dir: PathBuf, from: Option<u64>) -> Result<Self, Gone> {
        let path = dir.clone();
        let begin = move || match from {
            Some(from) => Ok(from),
            None => logs::bounds(&path).map(|(_, end)| end),
        };
        let offset = blocking::limited(Purpose::Logs, begin).await.and_then(Result::ok).ok_or(Gone)?;
        Ok(Self { reader: Some(Reader::new(&dir, offset)), dir, offset })
    }

    /// Sends all that there is, as fast as the peer reads. Whether that was anything.
    async fn send_rest(&mut self, outbox: &Outbox) -> Result<bool, Gone> {
        let mut any = false;
        loop {
            outbox.empty().await?;
            let Some(reader) = self.reader.take() else { return Err(Gone) };
            let Piece { reader, bytes, missed } =
                blocking::limited(Purpose::Logs, move || next(reader)).await.ok_or(Gone)??;
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

    /// Waits until the writer of this incarnation is done, but not for ever.
    async fn written(&self, run: Option<Tag>) -> Result<(), Gone> {
        let began = Instant::now();
        let awaited = || {
            let dir = self.dir.clone();
            blocking::limited(Purpose::Logs, move || logs::should_wait(&dir, run, began.elapsed()))
        };
        while awaited().await.ok_or(Gone)? {
            sleep(WRITER_PAUSE).await;
        }
        Ok(())
    }
}

fn next(mut reader: Reader) -> Result<Piece, Gone> {
    let mut bytes = vec![0; BLOCK];
    let read = reader.read(&mut bytes).map_err(|error| {
        tracing::warn!(%error, log = %reader.dir().display(), "a log cannot be read");
        Gone
    })?;
    bytes.truncate(read);
    bytes.shrink_to_fit();
    let missed = reader.take_missed() > 0;
    Ok(Piece { reader, bytes, missed })
}
