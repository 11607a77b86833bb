//! `wait --for output:REGEX`: searches the screen, the end of this run's output, and the output from now on; of
//! a standard error that is kept apart, too.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use protocol::request::{Capture, Extent};
use protocol::{Lifecycle, Request, Response, SessionRef, Tag, Timestamp};

use super::condition::Pattern;
use crate::tail::{Sink, Tail};
use crate::{Client, Context, Error, calls, session_log, threads};
use logs::clean::{Cleaner, Mode};

/// Bytes of output that are searched: of the existing log, and for one match.
const WINDOW: usize = 64 * 1024;

/// Time without output after which an unfinished line, such as a prompt, counts as a line.
const LINE_PAUSE: Duration = Duration::from_millis(100);

/// A match in the output.
#[derive(Debug, PartialEq)]
pub(super) struct OutputMatch {
    /// The position of the pattern among the conditions.
    pub at: usize,
    /// The text that matched.
    pub text: String,
}

/// The output that a search reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Stream {
    /// The screen and the log of the terminal.
    Terminal,
    /// The log of the standard error.
    Stderr,
}

impl Stream {
    /// Returns the session by its id, and its streams. If the session is not found, the search reports that.
    pub(super) fn of(context: &Context, session: &SessionRef) -> (SessionRef, Vec<Self>) {
        match calls::session(&mut context.client(), session.clone()) {
            Ok(view) if view.session.spec.separate_stderr => {
                (view.session.id.into(), vec![Self::Terminal, Self::Stderr])
            }
            Ok(view) => (view.session.id.into(), vec![Self::Terminal]),
            Err(_) => (session.clone(), vec![Self::Terminal]),
        }
    }
}

/// A search that runs in another thread.
#[derive(Debug)]
pub(super) struct OutputWatch(Sender<Result<Stop, Error>>);

impl OutputWatch {
    /// Ends the search after the output of this incarnation: its program has ended.
    pub(super) fn finish(&self, incarnation: Option<Tag>) {
        // The search may have ended meanwhile.
        drop(self.0.send(Ok(Stop::Ended(incarnation))));
    }
}

/// The reason for which the output is followed no longer.
#[derive(Debug)]
enum Stop {
    Found,
    Ended(Option<Tag>),
}

/// Searches for these patterns, and calls `tell` once: with the match, or with `None` if the session has ended
/// without one.
pub(super) fn watch(
    context: &Context,
    (session, since): (&SessionRef, Option<Timestamp>),
    (patterns, stream): (Vec<(usize, Pattern)>, Stream),
    tell: impl FnOnce(Result<Option<OutputMatch>, Error>) + Send + 'static,
) -> Result<OutputWatch, Error> {
    let (sender, stop) = mpsc::channel();
    let (context, session, watch) = (context.clone(), session.clone(), OutputWatch(sender.clone()));
    let search = move || {
        let mut search = Search::new(patterns, sender);
        tell(follow(&context, (session, since, stream), &mut search, &stop).map(|()| search.found));
    };
    threads::require(search).map(|_| watch)
}

fn follow(
    context: &Context,
    (session, since, stream): (SessionRef, Option<Timestamp>, Stream),
    search: &mut Search,
    stop: &Receiver<Result<Stop, Error>>,
) -> Result<(), Error> {
    let mut client = context.client();
    let record = calls::session(&mut client, session)?.session;
    let (session, run): (SessionRef, _) = (record.id.into(), record.incarnation.map(|run| run.tag));
    let files = session_log::files(&mut client, &session)?;
    let mut tail = Tail::new(&match stream {
        Stream::Terminal => files,
        Stream::Stderr => session_log::stderr_of(&files),
    });
    tail.skip_to_last_bytes(WINDOW as u64)?;
    let cut = tail.offset();
    match (since, run) {
        // With `--since` the screen is not searched, because the time of its text is not known.
        (Some(since), _) => tail.skip_to_time(since)?,
        (None, Some(run)) => {
            tail.skip_to_run(run)?;
            if stream == Stream::Terminal {
                search_screen(&mut client, &session, run, search);
            }
        }
        (None, None) => {}
    }
    if cut > 0 && tail.offset() == cut {
        search.begin_within_line();
    }
    let sender = search.stop.clone();
    // The search may have ended meanwhile.
    session_log::notify_end(context.unlimited_client(), session, move |last| {
        drop(sender.send(last.map(Stop::Ended)));
    })?;
    if let Stop::Ended(incarnation) = tail.follow(search, stop)? {
        tail.finish(search, incarnation, stop)?;
        search.search_rest();
    }
    Ok(())
}

/// Searches the screen of this run. It counts only while the run lives, as a saved last screen may be that of another
/// run.
fn search_screen(client: &mut Client, session: &SessionRef, run: Tag, search: &mut Search) {
    let capture = Capture { session: session.clone(), extent: Extent::Visible, ansi: false };
    let Ok(Response::Screen(screen)) = client.ask(Request::Capture(capture)) else { return };
    let same = calls::session(client, session.clone()).is_ok_and(|view| {
        let now = view.session.incarnation.map(|run| run.tag);
        view.session.lifecycle == Lifecycle::Live && now == Some(run)
    });
    if same {
        search.search(&screen.0, true);
    }
}

/// The mark before output that begins within a line, so that `^` does not match there.
const WITHIN_LINE: &str = "\u{fffd}";

/// Cuts this many bytes off the beginning of a text, and the rest of a character that is cut. Marks that the text then
/// begins within a line.
fn begin_within(text: &mut Vec<u8>, excess: usize) {
    let is_within_character = |byte: &&u8| **byte & 0xc0 == 0x80;
    let cut = excess + WITHIN_LINE.len();
    let rest = text[cut.min(text.len())..].iter().take_while(is_within_character).count();
    text.splice(..(cut + rest).min(text.len()), WITHIN_LINE.bytes());
}

/// Searches for patterns in the bytes that are written to it.
struct Search {
    patterns: Vec<(usize, Pattern)>,
    cleaner: Cleaner,
    /// The end of the output, without control sequences.
    text: Vec<u8>,
    /// When the output grew, unless its end was searched since.
    grew_at: Option<Instant>,
    found: Option<OutputMatch>,
    stop: Sender<Result<Stop, Error>>,
}

impl Search {
    fn new(patterns: Vec<(usize, Pattern)>, stop: Sender<Result<Stop, Error>>) -> Self {
        Self {
            patterns,
            cleaner: Cleaner::new(Mode::Safe),
            text: Vec::new(),
            grew_at: None,
            found: None,
            stop,
        }
    }

    /// Notes that the output begins within a line.
    fn begin_within_line(&mut self) {
        self.text = WITHIN_LINE.into();
    }

    /// Searches a text. A match at its end counts only if the text `is_whole`: otherwise the line may go on.
    fn search(&mut self, text: &[u8], is_whole: bool) {
        if self.found.is_some() {
            return;
        }
        let mut matches = self.patterns.iter().filter_map(|(at, pattern)| {
            let found = pattern.0.find(text).filter(|found| is_whole || found.end() < text.len())?;
            Some(OutputMatch { at: *at, text: String::from_utf8_lossy(found.as_bytes()).into_owned() })
        });
        self.found = matches.next();
        if self.found.is_some() {
            // The receiver lives as long as the log is followed.
            drop(self.stop.send(Ok(Stop::Found)));
        }
    }
}

impl Search {
    /// Searches the end of the output, after which nothing was written for a while.
    fn search_rest(&mut self) {
        if self.grew_at.take().is_some() {
            let text = std::mem::take(&mut self.text);
            self.search(&text, true);
            self.text = text;
        }
    }
}

impl Sink for Search {
    fn write(&mut self, _offset: u64, piece: &[u8]) -> Result<(), Error> {
        let mut text = std::mem::take(&mut self.text);
        text.extend(self.cleaner.clean(piece));
        self.search(&text, false);
        self.grew_at = Some(Instant::now());
        let excess = text.len().saturating_sub(WINDOW);
        // If possible, the kept text begins at the start of a line.
        match text[excess..].iter().position(|byte| *byte == b'\n').filter(|_| excess > 0) {
            Some(at) => drop(text.drain(..=excess + at)),
            None if excess > 0 => begin_within(&mut text, excess),
            None => {}
        }
        self.text = text;
        Ok(())
    }

    fn quiet(&mut self) -> Result<(), Error> {
        if self.grew_at.is_some_and(|at| at.elapsed() >= LINE_PAUSE) {
            self.search_rest();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search_in(expressions: &[&str], pieces: &[&[u8]]) -> Option<OutputMatch> {
        let patterns = expressions.iter().map(|text| Pattern::new(text).unwrap()).enumerate().collect();
        let mut search = Search::new(patterns, mpsc::channel().0);
        pieces.iter().for_each(|piece| search.write(0, piece).unwrap());
        assert!(search.text.len() <= WINDOW);
        search.search_rest();
        search.found
    }

    #[test]
    fn a_match_may_be_cut_anywhere_and_coloured() {
        let found = |at, text: &str| Some(OutputMatch { at, text: text.into() });
        assert_eq!(
            search_in(&["tests? passed"], &[b"3 te", b"\x1b[3", b"2msts", b" passed\r\n"]),
            found(0, "tests passed")
        );
        assert_eq!(search_in(&["nothing", "^b$"], &[b"a\r\nb\r\nc"]), found(1, "b"));
        assert_eq!(search_in(&["one\ntwo"], &[b"one\r\n", b"two\r\n"]), found(0, "one\ntwo"));
        assert_eq!(search_in(&["\u{e9}."], &[b"\xc3", b"\xa9\xff"]), None, "a dot is a character");
        assert_eq!(search_in(&["^x"], &[b"ax\r\n"]), None);
    }

    #[test]
    fn a_line_counts_once_it_is_whole() {
        assert_eq!(search_in(&["^done$"], &[b"done", b" 3 of 5\r\n"]), None);
        assert_eq!(search_in(&["[0-9]+"], &[b"12", b"3\r\n"]).map(|found| found.text), Some("123".into()));
        assert_eq!(search_in(&["[$] $"], &[b"done\r\n$ "]).map(|found| found.at), Some(0));
        let mut search = Search::new(vec![(0, Pattern::new("^x").unwrap())], mpsc::channel().0);
        search.begin_within_line();
        search.write(0, b"xy\r\n").unwrap();
        search.search_rest();
        assert_eq!(search.found, None, "it is not the begin of its line");
    }

    #[test]
    fn what_is_kept_to_look_at_is_bounded() {
        let line = [b"x".repeat(1023).as_slice(), b"\n"].concat();
        let pieces: Vec<&[u8]> = std::iter::repeat_n(line.as_slice(), 200).collect();
        assert_eq!(search_in(&["y"], &pieces), None);
        assert_eq!(search_in(&["y"], &[&b"x".repeat(3 * WINDOW)]), None);
        assert_eq!(search_in(&["y"], &[&b"x".repeat(3 * WINDOW), b"y"]).map(|found| found.at), Some(0));
        assert_eq!(
            search_in(&["^[x\u{e9}]"], &[b"=", "\u{e9}x".repeat(WINDOW).as_bytes()]),
            None,
            "one line"
        );
    }
}
