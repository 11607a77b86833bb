//! `logs`: a session's output log.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use logs::Times;
use protocol::ids::Tag;
use protocol::reply::LogFiles;
use protocol::session::{Reason, Session, Size};
use protocol::{ErrorCode, Lifecycle, Request, Response, SessionRef, Timestamp};
use serde_json::json;

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::clean::{Cleaner, Mode};
use crate::show::emulate::Emulated;
use crate::show::{out, time};
use crate::tail::{Cleaned, Sink, Tail};
use crate::verb::expect_session;

/// Bytes of the end of a log that are read for its last lines at first.
const LINES_WINDOW: u64 = 256 * 1024;
/// Bytes of text that are kept of them before those that are too many are dropped.
const LAST_MAX: usize = 8 << 20;
/// Time for tmux to tell the size of a terminal.
const SIZE_LIMIT: Duration = Duration::from_secs(2);
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
    let record = expect_session(client.ask(Request::Show(session))?)?.session;
    let id: SessionRef = record.id.into();
    let files = files(&mut client, &id)?;
    if !args.raw && !context.style.json {
        return as_seen(context, args, (client, &record, &files));
    }
    let mut tail = Tail::new(&files);
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
    let mut sink = sink(context, &id, tail.times());
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

/// Prints it as a person saw it.
fn as_seen(
    context: &Context,
    args: &Args,
    (mut client, session, files): (Client, &Session, &LogFiles),
) -> Result<u8, Error> {
    let size = size(&mut client, session);
    let mut lines = Lines { emulated: emulated(size), last: None };
    let mut tail = match args.lines {
        Some(count) => last_lines(args, (size, files), &mut lines, count)?,
        None => {
            let mut tail = Tail::new(files);
            let end = begin(args, &mut tail)?;
            tail.copy_until(&mut lines, end)?;
            tail
        }
    };
    if args.follow {
        let (sender, over) = mpsc::channel();
        when_over(context.patient_client(), session.id.into(), (sender, |incarnation| incarnation));
        drop(client);
        let incarnation = tail.follow(&mut lines, &over)?;
        tail.finish(&mut lines, incarnation)?;
    }
    lines.end()?;
    Ok(exit::OK)
}

/// Goes to where it is to begin; its end now.
fn begin(args: &Args, tail: &mut Tail) -> Result<u64, Error> {
    match args.since {
        Some(at) => tail.skip_to_time(at)?,
        None => tail.skip_to_first()?,
    }
    if args.since.is_none() && args.lines.is_none() {
        tail.note_gone()?;
    }
    tail.end()
}

/// Prints the last lines of it. Reads more and more of its end until there are enough: a program that redraws writes much
/// for a line.
fn last_lines(
    args: &Args,
    (size, files): (Size, &LogFiles),
    lines: &mut Lines,
    count: u64,
) -> Result<Tail, Error> {
    let mut window = LINES_WINDOW;
    loop {
        let mut tail = Tail::new(files);
        let end = begin(args, &mut tail)?;
        let is_whole = end.saturating_sub(tail.offset()) <= window;
        tail.skip_to_bytes_before(end, window)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let last = Last { count, text: Vec::new(), lines: 0, limit: LAST_MAX };
        *lines = Lines { emulated: emulated(size), last: Some(last) };
        tail.copy_until(lines, end)?;
        if lines.show_last(is_whole)? {
            return Ok(tail);
        }
        window = window.saturating_mul(8);
    }
}

/// The size that a session's terminal has now, or had when it was made.
pub(crate) fn size(client: &mut Client, session: &Session) -> Size {
    let terminal = Request::Terminal(session.id.into());
    match session.lifecycle.holds_slot().then(|| client.ask_once(terminal, SIZE_LIMIT)) {
        Some(Ok(Response::Terminal(terminal))) => terminal.size,
        _ => session.spec.size,
    }
}

/// A terminal of this size.
pub(crate) fn emulated(size: Size) -> Emulated {
    Emulated::new(size.rows, size.cols)
}

/// Standard output, a line a line.
struct Lines {
    emulated: Emulated,
    /// The last lines of what came so far, where no others are to be shown.
    last: Option<Last>,
}

/// The last so many lines of a text.
struct Last {
    count: usize,
    text: Vec<u8>,
    lines: usize,
    /// Bytes after which the lines that are too many are cut off.
    limit: usize,
}

impl Lines {
    fn show(&mut self, text: &[u8]) -> Result<(), Error> {
        match &mut self.last {
            Some(last) => {
                last.push(text);
                Ok(())
            }
            None => out::bytes(text),
        }
    }

    /// Shows the last lines, and from now on all. False, and nothing shown, where there may be too few: unless this is the
    /// whole log, the first line may be a piece.
    fn show_last(&mut self, is_whole: bool) -> Result<bool, Error> {
        let text = self.emulated.flush();
        self.show(&text)?;
        let is_enough = self.last.as_ref().is_none_or(|last| is_whole || last.lines > last.count);
        if let Some(last) = self.last.take().filter(|_| is_enough) {
            out::bytes(last.end())?;
        }
        Ok(is_enough)
    }
}

impl Sink for Lines {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        let text = self.emulated.write(piece);
        self.show(&text)
    }

    fn quiet(&mut self) -> Result<(), Error> {
        let text = self.emulated.quiet();
        self.show(&text)
    }

    fn end(&mut self) -> Result<(), Error> {
        let text = self.emulated.end();
        self.show(&text)
    }
}

impl Last {
    fn push(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        self.lines += lines_in(text);
        if self.text.len() > self.limit {
            self.text = self.end().to_owned();
            self.lines = lines_in(&self.text);
            self.limit = LAST_MAX.max(2 * self.text.len());
        }
    }

    /// The last lines. A newline at the very end ends the last one.
    fn end(&self) -> &[u8] {
        if self.count == 0 {
            return b"";
        }
        let body = self.text.strip_suffix(b"\n").unwrap_or(&self.text);
        let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
        let start = ends.map(|(at, _)| at + 1).nth(self.count - 1).unwrap_or(0);
        &self.text[start..]
    }
}

fn lines_in(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Where a session's logs are.
pub(crate) fn files(client: &mut Client, session: &SessionRef) -> Result<LogFiles, Error> {
    match client.ask(Request::Logs(session.clone()))? {
        Response::Logs(files) => Ok(files),
        other => Err(Error::unexpected(&other)),
    }
}

fn sink(context: &Context, session: &SessionRef, times: Times) -> Box<dyn Sink> {
    if context.style.json {
        Box::new(JsonLines { session: session.to_string(), times, offset: 0, line: Vec::new() })
    } else {
        Box::new(Cleaned(Cleaner::new(Mode::Raw)))
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
