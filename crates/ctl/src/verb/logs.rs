//! `logs`: a session's output log.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use protocol::reply::LogFiles;
use protocol::{ErrorCode, Lifecycle, Request, Response, SessionRef};
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::clean::{Cleaner, Mode};
use crate::show::out;
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
    #[arg(long, value_name = "N")]
    pub lines: Option<u64>,
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
    if let Some(lines) = args.lines {
        tail.skip_to_last(lines)?;
    }
    let mut sink = sink(context, args, &id, tail.offset());
    tail.copy(&mut *sink)?;
    if args.follow {
        tail.follow(&mut *sink, &when_over(context.patient_client(), id))?;
        tail.finish(&mut *sink)?;
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

fn sink(context: &Context, args: &Args, session: &SessionRef, offset: u64) -> Box<dyn Sink> {
    if context.style.json {
        Box::new(JsonLines { session: session.to_string(), offset, line: Vec::new() })
    } else if args.raw {
        Box::new(Cleaned(Cleaner::new(Mode::Raw)))
    } else {
        Box::new(Cleaned::new(context.style.terminal))
    }
}

/// Says when the session neither runs nor can be woken, or is removed.
fn when_over(mut client: Client, session: SessionRef) -> Receiver<Result<(), Error>> {
    let (sender, over) = mpsc::channel();
    thread::spawn(move || {
        let result = loop {
            match client.ask(Request::Show(session.clone())).and_then(expect_session) {
                Ok(view) if view.session.lifecycle.holds_slot() => {}
                Ok(view) if view.session.lifecycle == Lifecycle::Parked => {}
                Ok(_) => break Ok(()),
                Err(error) if error.code() == ErrorCode::NotFound => break Ok(()),
                Err(error) => break Err(error),
            }
            thread::sleep(LOOK_AGAIN);
        };
        // Whoever followed may be gone.
        drop(sender.send(result));
    });
    over
}

/// A JSON document a line: `{"session", "offset", "text"}`, the offset in bytes of the line's start.
struct JsonLines {
    session: String,
    offset: u64,
    line: Vec<u8>,
}

impl JsonLines {
    fn flush(&mut self) -> Result<(), Error> {
        let line = std::mem::take(&mut self.line);
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let document =
            json!({"session": self.session, "offset": self.offset, "text": String::from_utf8_lossy(text)});
        self.offset += line.len() as u64;
        out::json(&document)
    }
}

impl Sink for JsonLines {
    fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
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
