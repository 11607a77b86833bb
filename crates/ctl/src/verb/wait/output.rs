//! `wait --for output:REGEX`: seen on the screen, in the end of what this run wrote, or in what is written from now on.

use std::sync::mpsc::{self, Sender};
use std::thread;

use protocol::ids::Tag;
use protocol::request::{Capture, Extent};
use protocol::{Lifecycle, Request, Response, SessionRef, Timestamp};
use regex::bytes::{Regex, RegexBuilder};

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::clean::{Cleaner, Mode};
use crate::tail::{Sink, Tail};
use crate::verb::{expect_session, logs};

/// How much of what was written is looked at: of the log before, and for one match.
const WINDOW: usize = 64 * 1024;

/// A regular expression; `^` and `$` are the ends of a line.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Regex);

impl Pattern {
    /// One that was written like this.
    pub(super) fn new(expression: &str) -> Result<Self, String> {
        if expression.is_empty() {
            return Err("output: needs an expression".into());
        }
        RegexBuilder::new(expression).multi_line(true).build().map(Self).map_err(|error| error.to_string())
    }
}

/// What was found.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    /// Which of the patterns.
    pub at: usize,
    /// The text that matched.
    pub text: String,
}

/// Output that is being watched.
#[derive(Debug)]
pub(super) struct Watched(Sender<Result<Ending, Error>>);

impl Watched {
    /// Its program is over: nothing follows what this incarnation wrote.
    pub(super) fn is_over(&self, incarnation: Option<Tag>) {
        // It may have been found meanwhile.
        drop(self.0.send(Ok(Ending::Over(incarnation))));
    }
}

/// Why the output is followed no longer.
#[derive(Debug)]
enum Ending {
    Found,
    Over(Option<Tag>),
}

/// Watches for any of these, where there are some, and tells once: what was found, or that the session is over
/// without it.
pub(super) fn watch(
    context: &Context,
    (session, since): (&SessionRef, Option<Timestamp>),
    patterns: Vec<(usize, Pattern)>,
    tell: impl FnOnce(Result<Option<Found>, Error>) + Send + 'static,
) -> Option<Watched> {
    if patterns.is_empty() {
        return None;
    }
    let (sender, ending) = mpsc::channel();
    let (context, session, watched) = (context.clone(), session.clone(), Watched(sender.clone()));
    thread::spawn(move || {
        let mut seeker = Seeker::new(patterns, sender);
        tell(follow(&context, (session, since), &mut seeker, &ending).map(|()| seeker.found));
    });
    Some(watched)
}

fn follow(
    context: &Context,
    (session, since): (SessionRef, Option<Timestamp>),
    seeker: &mut Seeker,
    ending: &mpsc::Receiver<Result<Ending, Error>>,
) -> Result<(), Error> {
    let mut client = context.client();
    let record = expect_session(client.ask(Request::Show(session))?)?.session;
    let (session, run): (SessionRef, _) = (record.id.into(), record.incarnation.map(|run| run.tag));
    let mut tail = Tail::new(&logs::files(&mut client, &session)?);
    tail.skip_to_last_bytes(WINDOW as u64)?;
    match (since, run) {
        // The screen does not say when what is on it was written.
        (Some(since), _) => tail.skip_to_time(since)?,
        (None, Some(run)) => {
            tail.skip_to_run(run)?;
            look_at_screen(&mut client, &session, run, seeker);
        }
        (None, None) => {}
    }
    logs::when_over(context.patient_client(), session, (seeker.ending.clone(), Ending::Over));
    if let Ending::Over(incarnation) = tail.follow(seeker, ending)? {
        tail.finish(seeker, incarnation)?;
    }
    Ok(())
}

/// What this run shows. Of one that does not run, or runs no more, the last screen may be another's.
fn look_at_screen(client: &mut Client, session: &SessionRef, run: Tag, seeker: &mut Seeker) {
    let capture = Capture { session: session.clone(), extent: Extent::Visible, ansi: false };
    let Ok(Response::Screen(screen)) = client.ask(Request::Capture(capture)) else { return };
    let now = client.ask(Request::Show(session.clone())).and_then(expect_session);
    let same = now.is_ok_and(|view| {
        let now = view.session.incarnation.map(|run| run.tag);
        view.session.lifecycle == Lifecycle::Live && now == Some(run)
    });
    if same {
        seeker.look_at(&screen.0);
    }
}

/// Looks for patterns in what is written to it.
struct Seeker {
    patterns: Vec<(usize, Pattern)>,
    cleaner: Cleaner,
    /// The end of what was written, cleaned.
    text: Vec<u8>,
    found: Option<Found>,
    ending: Sender<Result<Ending, Error>>,
}

impl Seeker {
    fn new(patterns: Vec<(usize, Pattern)>, ending: Sender<Result<Ending, Error>>) -> Self {
        Self { patterns, cleaner: Cleaner::new(Mode::Safe), text: Vec::new(), found: None, ending }
    }

    fn look_at(&mut self, text: &[u8]) {
        if self.found.is_some() {
            return;
        }
        let mut matches = self.patterns.iter().filter_map(|(at, pattern)| {
            let found = pattern.0.find(text)?;
            Some(Found { at: *at, text: String::from_utf8_lossy(found.as_bytes()).into_owned() })
        });
        self.found = matches.next();
        if self.found.is_some() {
            // Whoever follows has its end of this.
            drop(self.ending.send(Ok(Ending::Found)));
        }
    }
}

impl Sink for Seeker {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        let mut text = std::mem::take(&mut self.text);
        text.extend(self.cleaner.clean(piece));
        self.look_at(&text);
        let excess = text.len().saturating_sub(WINDOW);
        // Where that can be, what is kept begins with a line.
        let cut = text[excess..].iter().position(|byte| *byte == b'\n').map_or(excess, |at| excess + at + 1);
        text.drain(..if excess == 0 { 0 } else { cut });
        self.text = text;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seek(expressions: &[&str], pieces: &[&[u8]]) -> Option<Found> {
        let patterns = expressions.iter().map(|text| Pattern::new(text).unwrap()).enumerate().collect();
        let mut seeker = Seeker::new(patterns, mpsc::channel().0);
        pieces.iter().for_each(|piece| seeker.write(0, piece).unwrap());
        assert!(seeker.text.len() <= WINDOW);
        seeker.found
    }

    #[test]
    fn a_match_may_be_cut_anywhere_and_coloured() {
        let found = |at, text: &str| Some(Found { at, text: text.into() });
        assert_eq!(
            seek(&["tests? passed"], &[b"3 te", b"\x1b[3", b"2msts", b" passed\r\n"]),
            found(0, "tests passed")
        );
        assert_eq!(seek(&["nothing", "^b$"], &[b"a\r\nb\r\nc"]), found(1, "b"));
        assert_eq!(seek(&["one\ntwo"], &[b"one\r\n", b"two\r\n"]), found(0, "one\ntwo"));
        assert_eq!(seek(&["\u{e9}."], &[b"\xc3", b"\xa9\xff"]), None, "a dot is a character");
        assert_eq!(seek(&["^x"], &[b"ax\r\n"]), None);
    }

    #[test]
    fn what_is_kept_to_look_at_is_bounded() {
        let line = [b"x".repeat(1023).as_slice(), b"\n"].concat();
        let pieces: Vec<&[u8]> = std::iter::repeat_n(line.as_slice(), 200).collect();
        assert_eq!(seek(&["y"], &pieces), None);
        assert_eq!(seek(&["y"], &[&b"x".repeat(3 * WINDOW)]), None);
        assert_eq!(seek(&["y"], &[&b"x".repeat(3 * WINDOW), b"y"]).map(|found| found.at), Some(0));
    }

    #[test]
    fn an_expression_must_be_one() {
        assert!(Pattern::new("").is_err() && Pattern::new("(").is_err());
    }
}
