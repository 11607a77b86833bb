//! `export`: the whole database as JSON lines.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use protocol::{Frame, Refusal, Reply, Response};
use store::maintenance;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::engine::{Daemon, in_doubt};
use crate::host::blocking_pool::{self, Purpose};
use crate::verb::answer_parts::Parts;
use crate::verb::database;

/// Time for a client to take a part: as long as its text is being read, the file of the database only grows.
const READ_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Bytes of a part.
const PART: usize = 128 * 1024;

/// Sends the database in parts, as fast as the client reads.
pub(super) async fn export(daemon: &Arc<Daemon>, parts: Parts<'_>) -> Reply {
    let reader = database::reader(daemon).await?;
    // Longer than for a part, so that a client that reads again is told that its export was given up.
    parts.outbox.set_stall_limit(2 * READ_LIMIT);
    let (sender, mut texts) = mpsc::channel::<String>(4);
    // The text is written by a thread of its own, so that the next part is written while the last one is sent.
    let blocking = daemon.blocking.clone();
    let write = move || {
        let mut out = TextParts { sender, text: Vec::with_capacity(PART) };
        maintenance::export(&reader, &mut out).and_then(|()| Ok(out.flush()?))
    };
    let writing = daemon
        .world
        .detach("export", async move { blocking.without_timeout(Purpose::DatabaseCopies, write).await });
    while let Some(text) = texts.recv().await {
        let part = Frame::Part { id: parts.call, part: Response::Text(text) };
        // The writing thread notices the end at its next part.
        match timeout(READ_LIMIT, parts.outbox.send(part)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Refusal::unavailable("the client is gone")),
            Err(_) => {
                return Err(Refusal::timeout("the export is not read; export into a file, and read that"));
            }
        }
    }
    match writing.await.ok_or_else(in_doubt)? {
        Ok(Ok(())) => Ok(Response::Done),
        Ok(Err(error)) => {
            // The engine notices a failure of the database in its next turn.
            daemon.engine.post(|_| ());
            Err(database::refusal(&error))
        }
        Err(error) => Err(blocking_pool::refusal(error)),
    }
}

/// A writer of JSON that sends it in parts, cut between two characters.
struct TextParts {
    sender: mpsc::Sender<String>,
    text: Vec<u8>,
}

impl TextParts {
    /// Sends the complete characters of the first `bytes` bytes.
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

impl Write for TextParts {
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
