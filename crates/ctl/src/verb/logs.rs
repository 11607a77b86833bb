//! `logs`: a session's output log.

use logs::Times;
use protocol::reply::LogFiles;
use protocol::{OsBytes, Refusal, Session, SessionId, SessionRef, Size, Timestamp};
use serde_json::json;

use crate::journal::{self, Printer};
use crate::session_log::{emulator, files, follow_to_end, stderr_of};
use crate::show::out::Style;
use crate::show::{out, time};
use crate::tail::{CleanOutput, Sink, Tail};
use crate::{Client, Context, Error, calls, poll};
use logs::clean::{Cleaner, Mode};
use logs::emulator::Emulator;

/// Bytes of the end of a log that are read first for its last lines.
const LINES_WINDOW: u64 = 256 * 1024;
/// Bytes of text collected for the last lines before those in excess are dropped.
const LAST_MAX: usize = 8 << 20;

/// Print a session's output log
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Continue until the session has ended
    #[arg(short, long)]
    follow: bool,
    /// Only the last N lines
    #[arg(short = 'n', long, alias = "tail", value_name = "N")]
    lines: Option<u64>,
    /// Only what was written since: how long ago (10m), or a time (2026-11-22T10:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = time::parse_time)]
    since: Option<Timestamp>,
    /// Exactly the bytes that were logged, control sequences and line ends included
    #[arg(long)]
    raw: bool,
    /// The standard error of a session that keeps it apart (`new --stderr separate`)
    #[arg(long)]
    stderr: bool,
    /// The session's events as JSON lines, as `events --session` prints them; with --follow until interrupted
    #[arg(long, conflicts_with_all = ["stderr", "raw", "lines"])]
    events: bool,
}

/// Prints the log of a session as it was seen on the terminal, for verbs that do this as well.
pub(crate) fn print(
    context: &Context,
    session: String,
    (follow, lines): (bool, Option<u64>),
) -> Result<(), Error> {
    run(context, Args { session, follow, lines, since: None, raw: false, stderr: false, events: false })
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut client = context.client();
    let session = calls::session(&mut client, context.session(&args.session)?)?.session;
    if args.events {
        return print_events(context, client, &args, session.id);
    }
    let mut files = files(&mut client, &session.id.into())?;
    if args.stderr {
        if !session.spec.separate_stderr {
            let why = "its standard error is its terminal: it was created without `--stderr separate`";
            return Err(Refusal::refused(format!("{}: {why}", session.name)).into());
        }
        files = stderr_of(&files);
    }
    if args.raw || args.stderr || context.style.json {
        print_bytes(context, &args, &session, &files)
    } else {
        print_screen(context, &args, &session, &files)
    }
}

/// Prints the events of the session, and with `--follow` those from now on.
fn print_events(context: &Context, mut client: Client, args: &Args, id: SessionId) -> Result<(), Error> {
    let style = Style { json: true, ..context.style };
    let printer = Printer { style, session: Some(id), kinds: &[], from: args.since, marks_snapshot: false };
    let last = journal::print(&mut client, &printer, None)?;
    if args.follow {
        return journal::follow_from(context, context.unlimited_client(), printer, Some(last));
    }
    Ok(())
}

/// Prints the bytes of a log as they are, as JSON lines, or those of a standard error without control
/// sequences.
fn print_bytes(context: &Context, args: &Args, session: &Session, files: &LogFiles) -> Result<(), Error> {
    let id: SessionRef = session.id.into();
    let mut tail = Tail::new(files).within(context.left());
    skip_to_start(args, &mut tail)?;
    let end = match args.lines {
        Some(lines) => tail.skip_to_last(lines)?,
        None => tail.end()?,
    };
    if args.since.is_none() {
        tail.note_gone()?;
    }
    let mut sink = sink(context, args, &id, tail.times());
    let copied = tail.copy_until(&mut *sink, end).map(drop);
    let followed = match copied {
        Ok(()) if args.follow => follow_to_end(context, id, &mut tail, &mut *sink),
        copied => copied,
    };
    // Prints the last line even without its newline, also if the time limit has ended the copying.
    let ended = sink.end();
    if !args.follow {
        tail.note_lost_end();
    }
    followed.and(ended)
}

/// Prints the log as it was seen on the terminal.
fn print_screen(context: &Context, args: &Args, session: &Session, files: &LogFiles) -> Result<(), Error> {
    let size = session.spec.size;
    let mut screen = Screen { emulated: emulator(size), last: None };
    let mut tail = Tail::new(files).within(context.left());
    let copied = match args.lines {
        Some(count) => {
            tail = print_last(args, (size, files), &mut screen, count)?.within(context.left());
            Ok(())
        }
        None => {
            let end = seek(args, &mut tail)?;
            tail.copy_until(&mut screen, end).map(drop)
        }
    };
    let followed = match copied {
        Ok(()) if args.follow => follow_to_end(context, session.id.into(), &mut tail, &mut screen),
        copied => copied,
    };
    // Prints the lines that are still on the screen, also if the time limit has ended the copying.
    let ended = screen.end();
    if !args.follow {
        tail.note_lost_end();
    }
    followed.and(ended)
}

/// Skips to the first byte that is asked for.
fn skip_to_start(args: &Args, tail: &mut Tail) -> Result<(), Error> {
    match args.since {
        Some(at) => tail.skip_to_time(at),
        None => tail.skip_to_first(),
    }
}

/// Skips to the first byte that is asked for, and returns the log's present end.
fn seek(args: &Args, tail: &mut Tail) -> Result<u64, Error> {
    skip_to_start(args, tail)?;
    if args.since.is_none() && args.lines.is_none() {
        tail.note_gone()?;
    }
    tail.end()
}

/// Prints the last lines. Reads more and more of the log's end until there are enough: a program that redraws
/// writes many bytes per line.
fn print_last(
    args: &Args,
    (size, files): (Size, &LogFiles),
    screen: &mut Screen,
    count: u64,
) -> Result<Tail, Error> {
    let mut begin = Tail::new(files);
    let end = seek(args, &mut begin)?;
    let mut window = LINES_WINDOW;
    loop {
        let mut tail = Tail::new(files);
        tail.skip_to(begin.offset());
        let is_whole = end.saturating_sub(tail.offset()) <= window;
        tail.skip_to_bytes_before(end, window)?;
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let last = LastLines { count, text: Vec::new(), lines: 0, limit: LAST_MAX };
        *screen = Screen { emulated: emulator(size), last: Some(last) };
        tail.copy_until(screen, end)?;
        if screen.print_last(is_whole)? {
            return Ok(tail);
        }
        window = window.saturating_mul(8);
    }
}

/// Standard output, as the lines of an emulated terminal.
struct Screen {
    emulated: Emulator,
    /// The last lines so far, while only those are to be printed.
    last: Option<LastLines>,
}

/// The last lines of a text.
struct LastLines {
    count: usize,
    text: Vec<u8>,
    lines: usize,
    /// Bytes of text after which the lines in excess are dropped.
    limit: usize,
}

impl Screen {
    fn print(&mut self, text: &[u8]) -> Result<(), Error> {
        match &mut self.last {
            Some(last) => {
                last.push(text);
                Ok(())
            }
            None => out::bytes(text),
        }
    }

    /// Prints the last lines, and everything from now on. If there may be too few lines, prints nothing and returns
    /// false: the first line may be incomplete unless this is the whole log.
    fn print_last(&mut self, is_whole: bool) -> Result<bool, Error> {
        let text = self.emulated.flush();
        self.print(&text)?;
        let is_enough = self.last.as_ref().is_none_or(|last| is_whole || last.lines > last.count);
        if let Some(last) = self.last.take().filter(|_| is_enough) {
            out::bytes(last.end())?;
        }
        Ok(is_enough)
    }
}

impl Sink for Screen {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        let text = self.emulated.write(piece);
        self.print(&text)
    }

    fn quiet(&mut self) -> Result<(), Error> {
        let text = self.emulated.quiet();
        self.print(&text)?;
        poll::check_reader()
    }

    fn end(&mut self) -> Result<(), Error> {
        let text = self.emulated.end();
        self.print(&text)
    }
}

impl LastLines {
    fn push(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        self.lines += lines_in(text);
        if self.text.len() > self.limit {
            self.text = self.end().to_owned();
            self.lines = lines_in(&self.text);
            self.limit = LAST_MAX.max(2 * self.text.len());
        }
    }

    /// The last lines. A newline at the very end ends the last line.
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

fn sink(context: &Context, args: &Args, session: &SessionRef, times: Times) -> Box<dyn Sink> {
    if context.style.json {
        Box::new(JsonLines { session: session.to_string(), times, offset: 0, line: Vec::new() })
    } else if !args.raw {
        Box::new(CleanOutput::new(context.style.terminal))
    } else {
        Box::new(CleanOutput(Cleaner::new(Mode::Raw)))
    }
}

/// Length of a line, in bytes without its end, beyond which it continues in a further document.
const JSON_LINE_MAX: usize = 64 * 1024;

/// Standard output, as a JSON document per line: `{"session", "offset", "at", "text"}`, with the offset of
/// the line's first byte, and the time at which that was written, if known.
struct JsonLines {
    session: String,
    times: Times,
    offset: u64,
    line: Vec<u8>,
}

impl JsonLines {
    fn flush(&mut self) -> Result<(), Error> {
        let line = std::mem::take(&mut self.line);
        let text = match line.strip_suffix(b"\n") {
            Some(text) => text.strip_suffix(b"\r").unwrap_or(text),
            None => &line,
        };
        let document = json!({
            "session": self.session,
            "offset": self.offset,
            "at": self.times.at(self.offset).map(time::rfc3339),
            "text": OsBytes(text.to_vec()),
        });
        out::json(&document)
    }

    /// Prints the beginning of a line that is too long, up to the end of a character.
    fn flush_beginning(&mut self) -> Result<(), Error> {
        let rest = self.line.split_off(beginning(&self.line, JSON_LINE_MAX));
        let offset = self.offset + self.line.len() as u64;
        self.flush()?;
        (self.line, self.offset) = (rest, offset);
        Ok(())
    }
}

/// Returns the length of a beginning of at most `most` bytes that ends with a whole character, if the text has any
/// there.
fn beginning(text: &[u8], most: usize) -> usize {
    let is_inside = |at: &usize| text[*at] & 0xc0 == 0x80;
    (most - 3..=most).rev().find(|at| !is_inside(at)).unwrap_or(most)
}

impl Sink for JsonLines {
    fn write(&mut self, mut offset: u64, piece: &[u8]) -> Result<(), Error> {
        // The text before a gap in the log is a line of its own.
        if offset != self.offset + self.line.len() as u64 {
            self.end()?;
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line.is_empty() {
                self.offset = offset;
            }
            offset += part.len() as u64;
            self.line.extend_from_slice(part);
            // The limit of a line is without its end, `\r\n`.
            while self.line.len() > JSON_LINE_MAX + 2 {
                self.flush_beginning()?;
            }
            if part.ends_with(b"\n") {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn quiet(&mut self) -> Result<(), Error> {
        poll::check_reader()
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.line.is_empty() { Ok(()) } else { self.flush() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_between_characters() {
        assert_eq!(beginning(b"0123456789", 8), 8);
        assert_eq!(beginning("01234567é".as_bytes(), 9), 8);
        assert_eq!(beginning("0123456日本".as_bytes(), 9), 7);
        assert_eq!(beginning(&[0x80; 12], 8), 8, "no text");
    }
}
