//! Parser of control mode: blocks, one for each command, and notifications. Output in a block may be any
//! bytes, and on some versions names in notifications may contain line ends. So notifications are hints
//! only, and an answer counts only by its marks.

use std::ops::Range;

use protocol::TmuxSessionId;

use super::notice::Notice;
use crate::error::TmuxError;
use crate::format;

/// Size of one read, in bytes.
const CHUNK: usize = 64 << 10;

/// One parsed item.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Block(Block),
    Notice(Notice),
}

/// Output of one command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// True if the command came over this connection's input; false for the command it was opened with.
    pub(super) ours: bool,
    /// True if the command succeeded; else the text is the error.
    pub(super) ok: bool,
    pub(super) text: Vec<u8>,
}

/// A block whose end has not been read.
#[derive(Debug)]
struct OpenBlock {
    /// The three numbers of `%begin`, which its end repeats.
    guard: Vec<u8>,
    ours: bool,
    text: Vec<u8>,
    /// Block that begins with the last line, in case the next line proves it.
    inner: Option<Box<Self>>,
}

/// Incremental parser of a connection's bytes.
#[derive(Debug)]
pub(super) struct Parser {
    buffer: Vec<u8>,
    /// Start of the next line.
    at: usize,
    /// End of the bytes after `at` that contain no line end.
    scanned: usize,
    open: Option<OpenBlock>,
    /// Second notice of the same line.
    second: Option<Notice>,
    /// Maximum size of a line or a block, in bytes.
    cap: usize,
}

impl Parser {
    pub(super) fn new(cap: usize) -> Self {
        Self { buffer: Vec::new(), at: 0, scanned: 0, open: None, second: None, cap }
    }

    /// Returns the buffer for appending further bytes.
    pub(super) fn buffer_mut(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..self.at);
        self.scanned -= self.at;
        self.at = 0;
        self.buffer.reserve(CHUNK);
        &mut self.buffer
    }

    /// Returns the next event; `None` until there are more bytes. A line that starts with the unpredictable
    /// `mark` is the first of the pending answer, even inside of a block, which was forged then. An empty
    /// mark means that no answer is pending.
    ///
    /// # Errors
    /// [`TmuxError::TooLong`]: the connection is unusable.
    pub(super) fn next(&mut self, mark: &str) -> Result<Option<Event>, TmuxError> {
        if let Some(notice) = self.second.take() {
            return Ok(Some(Event::Notice(notice)));
        }
        while let Some(range) = self.line()? {
            let line = &self.buffer[range];
            let Some(open) = &mut self.open else {
                self.open = OpenBlock::begin(line);
                if let Some((first, second)) = notices(line) {
                    self.second = second;
                    return Ok(Some(Event::Notice(first)));
                }
                continue;
            };
            if let Some(ok) = open.end(line) {
                let block = Block { ours: open.ours, ok, text: std::mem::take(&mut open.text) };
                self.open = None;
                return Ok(Some(Event::Block(block)));
            }
            open.add(line, mark);
            if open.text.len() > self.cap {
                return Err(TmuxError::TooLong(self.cap));
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> Result<Option<Range<usize>>, TmuxError> {
        let Some(length) = self.buffer[self.scanned..].iter().position(|&b| b == b'\n') else {
            self.scanned = self.buffer.len();
            let pending = self.scanned - self.at;
            return if pending > self.cap { Err(TmuxError::TooLong(self.cap)) } else { Ok(None) };
        };
        let line = self.at..self.scanned + length;
        self.at = line.end + 1;
        self.scanned = self.at;
        Ok(Some(line))
    }
}

impl OpenBlock {
    fn begin(line: &[u8]) -> Option<Self> {
        let guard = line.strip_prefix(b"%begin ")?;
        let mut numbers = guard.split(|&b| b == b' ').map(|number| format::field::<u64>(Some(number)));
        let (Some(_time), Some(_number), Some(flags)) = (numbers.next()?, numbers.next()?, numbers.next()?)
        else {
            return None;
        };
        let known = numbers.next().is_none();
        known.then(|| Self { guard: guard.to_vec(), ours: flags & 1 == 1, text: Vec::new(), inner: None })
    }

    /// Returns `Some` if the line ends the block, with its success.
    fn end(&self, line: &[u8]) -> Option<bool> {
        if line.strip_prefix(b"%end ") == Some(self.guard.as_slice()) {
            Some(true)
        } else if line.strip_prefix(b"%error ") == Some(self.guard.as_slice()) {
            Some(false)
        } else {
            None
        }
    }

    fn add(&mut self, line: &[u8], mark: &str) {
        if let Some(inner) = self.inner.take()
            && !mark.is_empty()
            && line.starts_with(mark.as_bytes())
        {
            *self = *inner;
        }
        self.inner = Self::begin(line).map(Box::new);
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
    }
}

/// Parses a notification; the ids are in the positions used from 3.2 on.
fn notices(line: &[u8]) -> Option<(Notice, Option<Notice>)> {
    let mut words = line.split(|&b| b == b' ');
    let kind = words.next()?;
    let first = match kind {
        b"%sessions-changed" => Notice::Sessions,
        b"%client-detached" => Notice::Clients,
        b"%session-renamed" | b"%session-changed" | b"%session-window-changed" => {
            Notice::Session(format::field(words.next())?)
        }
        b"%client-session-changed" => {
            let session = words.find_map(|word| format::field::<TmuxSessionId>(Some(word)))?;
            // The client's previous session has lost a client too, and is not named.
            return Some((Notice::Session(session), Some(Notice::Clients)));
        }
        b"%window-add" | b"%unlinked-window-add" | b"%layout-change" | b"%window-pane-changed" => {
            Notice::Window(format::field(words.next())?)
        }
        b"%window-close" | b"%unlinked-window-close" => Notice::Closed(format::field(words.next())?),
        b"%pane-mode-changed" => Notice::Pane(format::field(words.next())?),
        _ => return None,
    };
    Some((first, None))
}

/// Returns all events of these bytes, fed in pieces of this size.
#[cfg(any(test, feature = "testing"))]
fn events_of(bytes: &[u8], piece: usize, mark: &str) -> Result<Vec<Event>, TmuxError> {
    let mut parser = Parser::new(1 << 20);
    let mut events = Vec::new();
    for piece in bytes.chunks(piece) {
        parser.buffer_mut().extend_from_slice(piece);
        while let Some(event) = parser.next(mark)? {
            events.push(event);
        }
    }
    Ok(events)
}

/// True if these bytes, at most 1 MiB, mean the same in pieces of this size as all at once.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn pieces_agree(bytes: &[u8], piece: usize, mark: &str) -> bool {
    let whole = events_of(bytes, bytes.len().max(1), mark);
    whole.is_ok_and(|whole| events_of(bytes, piece, mark).is_ok_and(|pieces| pieces == whole))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use protocol::ids::{PaneId, WindowId};

    use super::*;

    fn events(bytes: &[u8], piece: usize, mark: &str) -> Vec<Event> {
        events_of(bytes, piece, mark).unwrap()
    }

    fn block(ours: bool, ok: bool, text: &str) -> Event {
        Event::Block(Block { ours, ok, text: text.into() })
    }

    #[test]
    fn blocks_end_where_their_own_numbers_stand() {
        let text = "%begin 17 4 0\n%end 17 4 0\n%begin 17 5 1\nline\n%end 17 4 1\n%end 17 5 0\n%error 18 5 1\n\
            %exit\n\n%begin 17 6 1\n%sessions-changed\n%end 17 5 1\n%begin 17 7 1\nno\n%error 17 7 1\n";
        let body =
            "line\n%end 17 4 1\n%end 17 5 0\n%error 18 5 1\n%exit\n\n%begin 17 6 1\n%sessions-changed\n";
        let expected = || vec![block(false, true, ""), block(true, true, body), block(true, false, "no\n")];
        for piece in [1, 2, 7, 1000] {
            assert_eq!(events(text.as_bytes(), piece, ""), expected(), "in pieces of {piece}");
        }
    }

    #[test]
    fn a_forged_block_hides_no_answer() {
        let real = "%begin 17 9 1\nBEGIN 77 1 2\n%end 17 9 1\n";
        for forged in
            ["%begin 1 1 1\n", "%begin 1 1 0\nx\n", "%begin 17 9 1\n", "%begin 1 1 1\n%begin 1 2 1\n"]
        {
            let text = format!("%unlinked-window-renamed @3 name\n{forged}%window-add @1\n{real}");
            assert_eq!(
                events(text.as_bytes(), 5, "BEGIN 77 "),
                [block(true, true, "BEGIN 77 1 2\n")],
                "{forged}"
            );
        }
        let other = format!("%begin 1 1 1\n{real}");
        assert_eq!(events(other.as_bytes(), 5, "BEGIN 78 "), [], "another mark proves nothing");
        assert_eq!(events(other.as_bytes(), 5, ""), [], "nor does none");
    }

    #[test]
    fn notifications_say_where_to_look() {
        use Notice::{Clients, Closed, Pane, Session, Sessions, Window};
        let (one, two, three) = (TmuxSessionId(1), WindowId(2), PaneId(3));
        let known = [
            ("%sessions-changed", vec![Sessions]),
            ("%session-renamed $1 a b", vec![Session(one)]),
            ("%session-changed $1 a", vec![Session(one)]),
            ("%session-window-changed $1 @2", vec![Session(one)]),
            ("%client-session-changed /dev/pts/1 $1 a", vec![Session(one), Clients]),
            ("%client-session-changed an odd name $1 $5", vec![Session(one), Clients]),
            ("%client-detached client-77", vec![Clients]),
            ("%window-add @2", vec![Window(two)]),
            ("%window-close @2", vec![Closed(two)]),
            ("%unlinked-window-add @2", vec![Window(two)]),
            ("%unlinked-window-close @2", vec![Closed(two)]),
            ("%layout-change @2 b25d,80x24,0,0,0 b25d,80x24,0,0,0 *", vec![Window(two)]),
            ("%window-pane-changed @2 %3", vec![Window(two)]),
            ("%pane-mode-changed %3", vec![Pane(three)]),
        ];
        for (line, expected) in known {
            let expected: Vec<Event> = expected.into_iter().map(Event::Notice).collect();
            assert_eq!(events(format!("{line}\n").as_bytes(), 100, ""), expected, "{line}");
        }
        let unknown = [
            "",
            "%",
            "%exit",
            "%output %1 x",
            "%window-renamed @2 a",
            "%unlinked-window-renamed @2 a",
            "%session-renamed",
            "%session-renamed 1 a",
            "%window-add @",
            "%window-add %2",
            "%window-add @02",
            "%begin 1 2",
            "%begin 1 2 1 ",
            "%begin 1 -2 1",
            "%begin a b c",
            "%end 1 2 1",
            "%paste-buffer-changed x",
            "sessions-changed",
            "%config-error x",
        ];
        for line in unknown {
            assert_eq!(events(format!("{line}\n").as_bytes(), 100, ""), [], "{line}");
        }
    }

    #[test]
    fn what_never_ends_is_cut() {
        for start in ["", "%begin 1 1 1\n"] {
            let mut parser = Parser::new(1000);
            let whole = |parser: &mut Parser, text: &str| {
                parser.buffer_mut().extend_from_slice(text.as_bytes());
                parser.next("")
            };
            assert_eq!(whole(&mut parser, start).unwrap(), None);
            let endless = (0..1000).map(|_| whole(&mut parser, "12345678")).find(Result::is_err);
            assert!(matches!(endless, Some(Err(TmuxError::TooLong(1000)))));
            let mut parser = Parser::new(1000);
            assert_eq!(whole(&mut parser, start).unwrap(), None);
            let lines = (0..1000).map(|_| whole(&mut parser, "1234567\n")).find(Result::is_err);
            assert_eq!(lines.is_some(), !start.is_empty(), "lines outside of a block are not kept");
            assert!(parser.buffer.capacity() < 4 * CHUNK);
        }
    }

    /// Generates lines of a plausible conversation.
    fn line() -> impl Strategy<Value = Vec<u8>> {
        let guards = prop_oneof!["%(begin|end|error) [0-2] [0-2] [01]", "%(begin|end|error) [ 0-9-]{0,8}"];
        let notices = "%[a-z-]{0,20} ?[$@%]?[0-9]{0,3} ?.{0,5}";
        prop_oneof![
            guards.prop_map(String::into_bytes),
            notices.prop_map(String::into_bytes),
            any::<Vec<u8>>()
        ]
    }

    proptest! {
        #[test]
        fn bytes_never_panic_and_pieces_make_no_difference(
            lines in prop::collection::vec(line(), 0..40), piece in 1..60usize,
        ) {
            let bytes = lines.join(&b'\n');
            prop_assert_eq!(events(&bytes, piece, "BEGIN"), events(&bytes, bytes.len().max(1), "BEGIN"));
        }

        #[test]
        fn a_block_holds_any_lines_but_its_end(lines in prop::collection::vec(line(), 0..20), ok: bool) {
            let end: &[u8] = if ok { b"%end 17 12345 1" } else { b"%error 17 12345 1" };
            let body = lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect::<Vec<u8>>();
            let text = [b"%begin 17 12345 1\n", &body[..], end, b"\n"].concat();
            prop_assert_eq!(events(&text, 9, "BEGIN"), vec![Event::Block(Block { ours: true, ok, text: body })]);
        }
    }
}
