//! `logs`: a session's output log.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use logs::Times;
use protocol::ids::Tag;
use protocol::reply::LogFiles;
use protocol::session::{Reason, Session};
use protocol::{ErrorCode, Lifecycle, Request, Response, SessionRef, Timestamp};
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::clean::{Cleaner, Mode};
use crate::show::{out, time};
use crate::tail::{Cleaned, Sink, Tail};
use crate::verb::expect_session;

/// Time between two questions whether a session that is followed still runs.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Print a session's output log
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Of which session
    pub session: String,
    /// Go on until the session is over
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last so many lines
    #[arg(short = 'n', long, alias = "tail", value_name = "N")]
    pub lines: Option<u64>,
    /// Only what was written since then: how long ago (10m), or a time (2026-11-22T10:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = time::moment)]
    pub since: Option<Timestamp>,
    /// Exactly the bytes that were logged, control sequences and line ends included
    #[arg(long)]
    pub raw: bool,
}

/// Prints it.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let mut client = context.client();
    let session = context.session(&args.session)?;
    let id = expect_session(client.ask(Request::Show(session))?)?.session.id.into();
    let mut tail = Tail::new(&files(&mut client, &id)?);
    match args.since {
        Some(at) => tail.skip_to_time(at)?,
        None => tail.skip_to_first()?,
    }
    let end = match args.lines {
        Some(lines) => tail.skip_to_last(lines)?,
        None => tail.end()?,
    };
    if args.since.is_none() {
        tail.note_gone()?;
    }
    let mut sink = sink(context, args, &id, tail.times());
    tail.copy_until(&mut *sink, end)?;
    if args.follow {
        let (sender, over) = mpsc::channel();
        when_over(context.patient_client(), id, (sender, |incarnation| incarnation));
        let incarnation = tail.follow(&mut *sink, &over)?;
        tail.finish(&mut *sink, incarnation)?;
    }
    sink.end()?;
    Ok(exit::OK)
}

/// Where a session's logs are.
pub(crate) fn files(client: &mut Client, session: &SessionRef) -> Result<LogFiles, Error> {
    match client.ask(Request::Logs(session.clone()))? {
        Response::Logs(files) => Ok(files),
        other => Err(Error::unexpected(&other)),
    }
}

fn sink(context: &Context, args: &Args, session: &SessionRef, times: Times) -> Box<dyn Sink> {
    if context.style.json {
        Box::new(JsonLines { session: session.to_string(), times, offset: 0, line: Vec::new() })
    } else if args.raw {
        Box::new(Cleaned(Cleaner::new(Mode::Raw)))
    } else {
        Box::new(Cleaned::new(context.style.terminal))
    }
}

/// Where it is told that nothing more is written, and as what.
pub(crate) type Told<T> = (Sender<Result<T, Error>>, fn(Option<Tag>) -> T);

/// Says when the session neither runs nor can be woken nor is about to be started again, or is removed: what is
/// made of its last incarnation.
pub(crate) fn when_over<T: Send + 'static>(mut client: Client, session: SessionRef, (sender, made): Told<T>) {
    thread::spawn(move || {
        let result = loop {
            match client.ask(Request::Show(session.clone())).and_then(expect_session) {
                Ok(view) if may_write_more(&view.session) => {}
                Ok(view) => break Ok(view.session.incarnation.map(|run| run.tag)),
                Err(error) if error.code() == ErrorCode::NotFound => break Ok(None),
                Err(error) => break Err(error),
            }
            thread::sleep(LOOK_AGAIN);
        };
        // Whoever followed may be gone.
        drop(sender.send(result.map(made)));
    });
}

fn may_write_more(session: &Session) -> bool {
    let lifecycle = session.lifecycle;
    let comes_again = lifecycle == Lifecycle::Parked || session.budget.due_at.is_some();
    // A restart that is under way.
    let between = lifecycle == Lifecycle::Stopped && session.reason == Some(Reason::Restarted);
    lifecycle.holds_slot() || comes_again || between
}

/// A JSON document a line: `{"session", "offset", "at", "text"}`: the offset of the line's first byte, and
/// when that was written, where it is known.
struct JsonLines {
    session: String,
    times: Times,
    offset: u64,
    line: Vec<u8>,
}

impl JsonLines {
    fn flush(&mut self) -> Result<(), Error> {
        let line = std::mem::take(&mut self.line);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let document = json!({
            "session": self.session,
            "offset": self.offset,
            "at": self.times.at(self.offset).map(time::rfc3339),
            "text": String::from_utf8_lossy(text),
        });
        out::json(&document)
    }
}

impl Sink for JsonLines {
    fn write(&mut self, mut offset: u64, piece: &[u8]) -> Result<(), Error> {
        // What a gap cut off is a line of its own.
        if offset != self.offset + self.line.len() as u64 {
            self.end()?;
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line.is_empty() {
                self.offset = offset;
            }
            offset += part.len() as u64;
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.line.is_empty() { Ok(()) } else { self.flush() }
    }
}
