//! Looking after the database while it is in use: `export`, `backup`, `check`, `compact`.

use std::io;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use protocol::{ErrorCode, Frame, OsBytes, Refusal, Reply, Response};
use store::{Reader, StoreError, maintenance};
use tokio::sync::{mpsc, oneshot};

use crate::engine::context::Daemon;
use crate::engine::handle::in_doubt;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::host::outbox::Outbox;

/// Bytes of one part of an export.
const PART: usize = 128 * 1024;

async fn reader(daemon: &Arc<Daemon>) -> Result<Reader, Refusal> {
    daemon.engine.turn(|turn| turn.reader()).await
}

fn failed(error: &StoreError) -> Refusal {
    let code = match error {
        StoreError::Exists(_) => ErrorCode::Conflict,
        StoreError::Io(_) | StoreError::Busy => ErrorCode::Failed,
        _ => ErrorCode::Storage,
    };
    Refusal::new(code, error.to_string())
}

/// Sends the whole database as parts, as fast as the peer reads.
pub(crate) async fn export(daemon: &Arc<Daemon>, outbox: &Outbox, id: u64) -> Reply {
    let reader = reader(daemon).await?;
    let (sender, mut parts) = mpsc::channel::<String>(4);
    // In a task of its own: it writes while its parts are sent from here.
    let writing = tokio::spawn(blocking::unlimited(Purpose::Copies, move || {
        let mut out = Parts { sender, text: Vec::with_capacity(PART) };
        maintenance::export(&reader, &mut out).and_then(|()| Ok(out.flush()?))
    }));
    while let Some(text) = parts.recv().await {
        if outbox.send(Frame::Part { id, part: Response::Text(text) }).await.is_err() {
            // The thread learns it at its next part.
            return Err(Refusal::new(ErrorCode::Unavailable, "the client is gone"));
        }
    }
    match writing.await.map_err(|_| in_doubt())? {
        Ok(Ok(())) => Ok(Response::Done),
        Ok(Err(error)) => {
            daemon.engine.post(|_| ());
            Err(failed(&error))
        }
        Err(error) => Err(blocking::refusal(error)),
    }
}

/// Collects what is written into parts; JSON is text, which is cut anywhere between two characters.
struct Parts {
    sender: mpsc::Sender<String>,
    text: Vec<u8>,
}

impl Parts {
    /// Sends what is whole of the first so many bytes.
    fn send(&mut self, bytes: usize) -> io::Result<()> {
        let whole = match std::str::from_utf8(&self.text[..bytes]) {
            Ok(text) => text.len(),
            Err(cut) if cut.error_len().is_none() => cut.valid_up_to(),
            Err(error) => return Err(io::Error::other(error)),
        };
        let rest = self.text.split_off(whole);
        let text = String::from_utf8(std::mem::replace(&mut self.text, rest)).map_err(io::Error::other)?;
        self.sender.blocking_send(text).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        while self.text.len() >= PART {
            self.send(PART)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() { Ok(()) } else { self.send(self.text.len()) }
    }
}

pub(super) async fn backup(daemon: &Arc<Daemon>, path: OsBytes) -> Reply {
    if !path.as_path().is_absolute() {
        return Err(Refusal::new(ErrorCode::Usage, "the path of a backup is absolute"));
    }
    let reader = reader(daemon).await?;
    let made = blocking::unlimited(Purpose::Copies, move || {
        maintenance::backup(&reader, path.as_path())
            .and_then(|()| Ok(std::fs::metadata(path.as_path())?.len()))
    });
    let bytes = made.await.map_err(blocking::refusal)?.map_err(|error| failed(&error))?;
    Ok(Response::Text(format!("{bytes} bytes")))
}

pub(super) async fn check(daemon: &Arc<Daemon>) -> Reply {
    let reader = reader(daemon).await?;
    let checked = blocking::unlimited(Purpose::Copies, move || maintenance::check(&reader))
        .await
        .map_err(blocking::refusal)?;
    checked.map(Response::Checked).map_err(|error| failed(&error))
}

/// How long a compaction may take, beside a second for each of these bytes.
const COMPACTION: Duration = Duration::from_secs(60);

const BYTES_A_SECOND: u64 = 2 << 20;

/// By the engine, after a turn: nothing else is done meanwhile, and whoever supervises is told so.
pub(super) async fn compact(daemon: &Arc<Daemon>) -> Reply {
    let bytes = std::fs::metadata(&daemon.paths.database).map_or(0, |found| found.len());
    let limit = COMPACTION + Duration::from_secs(bytes / BYTES_A_SECOND);
    let told = daemon.paths.run.join("compacting");
    let until = crate::host::clock::now().after(limit).0;
    // Only a hint for `poolctl up`.
    drop(std::fs::write(&told, format!("{} {until}\n", std::process::id())));
    daemon.engine.is_long(Some(limit));
    let compacted = compacted(daemon).await;
    daemon.engine.is_long(None);
    drop(std::fs::remove_file(told));
    let (before, after) = compacted?;
    Ok(Response::Compacted { before, after })
}

async fn compacted(daemon: &Arc<Daemon>) -> Result<(u64, u64), Refusal> {
    let (answer, answered) = oneshot::channel();
    daemon.engine.turn(move |turn| turn.compact(answer)).await?;
    answered.await.map_err(|_| in_doubt())?.map_err(|error| failed(&error))
}
