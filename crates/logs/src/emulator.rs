//! Converts program output to the lines that a person saw. Output that only appends lines is passed on
//! without control sequences. From the first sequence that moves back over the screen, the lines are those of
//! a terminal emulator: the rows that scroll off, and at the end the screen.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use vt100::capture::{BasicFormattedCaptureState, RowContents, basic_formatted_to_plain};
use vt100::{Callbacks, Parser};

use crate::clean::{Cleaner, Mode};
use crate::dialect::Dialect;

/// Time for which a row must stay unchanged before it is passed on to a follower.
const STABLE: Duration = Duration::from_millis(500);
/// Maximum length of a control sequence that is held back until it is complete, in bytes.
const SEQUENCE_MAX: usize = 64;
/// Maximum length of an incomplete line that is held back, in bytes.
const LINE_MAX: usize = 64 * 1024;

const ESC: u8 = 0x1b;

/// Maximum number of rows and of columns of the emulated terminal.
pub(crate) const SIZE_MAX: u16 = 1000;
/// Bytes between two collections of the rows that scrolled off.
const PIECE: usize = 4096;

/// Converts a stream of output to lines.
pub struct Emulator {
    terminal: Parser<Scrolled>,
    dialect: Dialect,
    cleaner: Cleaner,
    /// True once the output has moved back over the screen.
    redraws: bool,
    /// True if the text passed on so far does not end with a newline.
    is_mid_line: bool,
    /// The beginning of a control sequence; before the first redraw, of a line.
    held: Vec<u8>,
    /// The rows from the top of the screen that have been passed on, as they were then.
    shown: VecDeque<String>,
    /// The rows of the screen at the last check, each with the time since which it is unchanged.
    seen: VecDeque<(String, Instant)>,
}

/// A row of the screen. A wrapped row continues in the next one.
struct Row {
    text: String,
    is_wrapped: bool,
}

/// The rows that scrolled off the top of the screen.
struct Scrolled {
    rows: Vec<Row>,
    columns: usize,
}

impl Callbacks for Scrolled {
    fn on_scroll(&mut self, row: RowContents<'_>, alternate_screen: bool) {
        // Rows of a full-screen program are not passed on; only its last screen is.
        if alternate_screen {
            return;
        }
        let (mut state, mut text, mut next) =
            (BasicFormattedCaptureState::default(), String::new(), First::default());
        row.write_formatted_basic(&mut text, &mut state).ok();
        // The next row begins with a newline, unless this one is wrapped.
        row.write_formatted_basic(&mut next, &mut state).ok();
        let text: String = basic_formatted_to_plain(&text).collect();
        self.rows.push(Row::new(&text, next.0 != Some('\n'), self.columns));
    }
}

/// A writer that keeps the first character.
#[derive(Default)]
struct First(Option<char>);

impl fmt::Write for First {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.or(text.chars().next());
        Err(fmt::Error)
    }
}

impl Row {
    /// Creates a row. Blanks at the end of a line belong to the terminal and are removed. Those before a wrap
    /// belong to the program and are restored, because the emulator omits them; only for ASCII, whose width is
    /// known.
    fn new(text: &str, is_wrapped: bool, columns: usize) -> Self {
        let text = text.trim_end();
        let text = match is_wrapped && text.is_ascii() {
            true => format!("{text:columns$}"),
            false => text.to_owned(),
        };
        Self { text, is_wrapped }
    }
}

impl Emulator {
    /// Creates an emulator of a terminal of this size.
    pub fn new(rows: u16, columns: u16) -> Self {
        let size = |n: u16| std::num::NonZeroU16::new(n.min(SIZE_MAX)).unwrap_or(std::num::NonZeroU16::MIN);
        Self {
            terminal: Parser::new_with_callbacks(
                size(rows),
                size(columns),
                0,
                Scrolled { rows: Vec::new(), columns: size(columns).get().into() },
            ),
            dialect: Dialect::default(),
            cleaner: Cleaner::new(Mode::Safe),
            redraws: false,
            is_mid_line: false,
            held: Vec::new(),
            shown: VecDeque::new(),
            seen: VecDeque::new(),
        }
    }

    /// Processes a piece and returns the text that it completes.
    pub fn write(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        if !self.redraws {
            let redraw = first_redraw(&bytes);
            let lines = bytes[..redraw.unwrap_or(bytes.len())]
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |at| at + 1);
            self.redraws = redraw.is_some();
            let rest = bytes.split_off(lines);
            let text = self.append(&bytes);
            if redraw.is_none() && rest.len() < LINE_MAX {
                self.held = rest;
                return text;
            }
            let is_cut = redraw.is_some() && self.is_mid_line;
            let more = if redraw.is_none() { self.append(&rest) } else { self.redraw(rest) };
            // The beginning of the line was passed on already; the whole line follows on its own.
            let end: &[u8] = if is_cut { b"\n" } else { b"" };
            return [&text, end, &more].concat();
        }
        self.redraw(bytes)
    }

    /// Returns the text that has become final because time has passed.
    pub fn quiet(&mut self) -> Vec<u8> {
        if !self.redraws {
            let held = std::mem::take(&mut self.held);
            return self.append(&held);
        }
        if self.terminal.screen().alternate_screen() {
            return Vec::new();
        }
        let (now, rows) = (Instant::now(), self.rows());
        let above = usize::from(self.terminal.screen().cursor_position().0);
        let since = |(n, row): (usize, &Row)| match self.seen.get(n) {
            Some((text, since)) if *text == row.text => (row.text.clone(), *since),
            _ => (row.text.clone(), now),
        };
        self.seen = rows.iter().enumerate().take(above).map(since).collect();
        let stable = self.seen.iter().take_while(|(_, since)| now.duration_since(*since) >= STABLE).count();
        self.settle(rows, stable)
    }

    /// Returns the text so far, final or not.
    pub fn flush(&mut self) -> Vec<u8> {
        if self.redraws { [self.scrolled(), self.settle_all()].concat() } else { self.quiet() }
    }

    /// Returns the remaining text at the end of the output.
    pub fn end(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        if !self.redraws {
            return self.append(&held);
        }
        let mut text = self.process(&held);
        text.extend(self.flush());
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        text
    }

    /// Passes on appended lines. Only the last ones, which fill the screen, are given to the terminal.
    fn append(&mut self, bytes: &[u8]) -> Vec<u8> {
        let rows = usize::from(self.terminal.screen().size().0.get());
        let newlines =
            bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let start = newlines.clone().nth(rows + 1).unwrap_or(0);
        for piece in bytes[start..].chunks(PIECE) {
            self.emulate(piece);
            self.terminal.callbacks_mut().rows.clear();
        }
        let (above, rows) = (self.terminal.screen().cursor_position().0, self.rows());
        self.shown = rows.into_iter().take(above.into()).map(|row| row.text).collect();
        let text = self.cleaner.clean(bytes);
        self.is_mid_line = text.last().map_or(self.is_mid_line, |last| *last != b'\n');
        text
    }

    /// Processes output that redraws the screen. Text is passed on before it is erased: a person saw it.
    fn redraw(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        self.held = bytes.split_off(complete(&bytes));
        let (mut text, mut from) = (Vec::new(), 0);
        for at in (0..bytes.len()).filter(|at| bytes[*at] == ESC) {
            let Some(erases) = erases(&bytes[at..]) else { continue };
            text.extend(self.process(&bytes[from..at]));
            from = at;
            let is_home = self.terminal.screen().cursor_position() == (0, 0);
            if !self.terminal.screen().alternate_screen() && (erases == Erases::All || is_home) {
                text.extend(self.settle_all());
            }
        }
        text.extend(self.process(&bytes[from..]));
        text
    }

    /// Gives bytes to the terminal, and collects the rows that scroll off.
    fn process(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes
            .chunks(PIECE)
            .flat_map(|piece| {
                self.emulate(piece);
                self.scrolled()
            })
            .collect()
    }

    fn emulate(&mut self, bytes: &[u8]) {
        let columns = self.terminal.screen().size().1.get();
        self.terminal.process(&self.dialect.translate(bytes, columns));
    }

    /// Returns the rows that scrolled off, without those that were passed on unchanged.
    fn scrolled(&mut self) -> Vec<u8> {
        let rows = std::mem::take(&mut self.terminal.callbacks_mut().rows);
        let mut text = Vec::new();
        for row in rows {
            self.seen.pop_front();
            if self.shown.pop_front().is_none_or(|shown| shown != row.text) {
                push(&mut text, &row);
            }
        }
        text
    }

    /// Passes on the whole screen, without the rows that were passed on already.
    fn settle_all(&mut self) -> Vec<u8> {
        let rows = self.rows();
        let used = rows.iter().rposition(|row| !row.text.is_empty()).map_or(0, |at| at + 1);
        self.settle(rows, used)
    }

    /// Passes on the first `count` rows of the screen, without those at its top that were passed on before.
    fn settle(&mut self, rows: Vec<Row>, count: usize) -> Vec<u8> {
        let same =
            rows.iter().take(count).zip(&self.shown).take_while(|(row, shown)| row.text == **shown).count();
        let mut text = Vec::new();
        rows.iter().take(count).skip(same).for_each(|row| push(&mut text, row));
        if same < count {
            self.shown = rows.into_iter().take(count).map(|row| row.text).collect();
        }
        text
    }

    fn rows(&self) -> Vec<Row> {
        let screen = self.terminal.screen();
        let (rows, columns) = (screen.size().0.get(), screen.size().1.get());
        let wrapped = (0..rows).map(|row| screen.row_wrapped(row));
        let texts = screen.rows(0, columns);
        texts.zip(wrapped).map(|(text, is_wrapped)| Row::new(&text, is_wrapped, columns.into())).collect()
    }
}

fn push(text: &mut Vec<u8>, row: &Row) {
    text.extend_from_slice(row.text.as_bytes());
    if !row.is_wrapped {
        text.push(b'\n');
    }
}

/// The part of the screen that a sequence erases.
#[derive(Debug, PartialEq, Eq)]
enum Erases {
    All,
    /// Everything after the cursor.
    After,
}

fn erases(sequence: &[u8]) -> Option<Erases> {
    let starts = |with: &str| sequence.starts_with(with.as_bytes());
    if starts("\x1b[2J") || starts("\x1bc") {
        Some(Erases::All)
    } else {
        (starts("\x1b[J") || starts("\x1b[0J")).then_some(Erases::After)
    }
}

/// Returns the position of the first sequence or character that moves the cursor back over the screen.
fn first_redraw(bytes: &[u8]) -> Option<usize> {
    let goes_back = |at: &usize| match bytes[*at] {
        0x08 => true,
        b'\r' => bytes.get(at + 1).is_some_and(|next| !matches!(next, b'\n' | b'\r')),
        ESC => match bytes.get(at + 1) {
            Some(b'[') => {
                let end = bytes[at + 2..].iter().find(|byte| (0x40..=0x7e).contains(*byte));
                end.is_some_and(|end| b"@ABCDEFGHIJLMPSTXZ`abdefr".contains(end))
                    || bytes[at + 2..].starts_with(b"?1049")
                    || bytes[at + 2..].starts_with(b"?47")
                    || bytes[at + 2..].starts_with(b"?1047")
            }
            Some(next) => b"78DEMc".contains(next),
            None => false,
        },
        _ => false,
    };
    (0..bytes.len()).find(goes_back)
}

/// Returns the length without an incomplete control sequence at the end.
fn complete(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(SEQUENCE_MAX);
    let Some(start) = bytes[from..].iter().rposition(|byte| *byte == ESC).map(|at| from + at) else {
        return bytes.len();
    };
    let is_whole = match bytes.get(start + 1) {
        None => false,
        Some(b'[') => bytes[start + 2..].iter().any(|byte| (0x40..=0x7e).contains(byte)),
        // The terminal itself waits for the end of a string.
        Some(_) => true,
    };
    if is_whole { bytes.len() } else { start }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text at the end, and asserts that the division into pieces makes no difference.
    fn text(bytes: &str) -> String {
        let whole = |size: usize| {
            let mut emulator = Emulator::new(5, 20);
            let parts =
                bytes.as_bytes().chunks(size).flat_map(|part| emulator.write(part)).collect::<Vec<u8>>();
            String::from_utf8([parts, emulator.end()].concat()).unwrap()
        };
        let text = whole(bytes.len().max(1));
        for size in [1, 2, 7] {
            assert_eq!(whole(size), text, "in pieces of {size}");
        }
        text
    }

    #[test]
    fn appended_lines_are_unchanged() {
        let many: String =
            (0..100).map(|n| format!("line\t{n} of \x1b[31mmany\x1b[0m that are rather long\r\n")).collect();
        let lines: String = (0..100).map(|n| format!("line\t{n} of many that are rather long\n")).collect();
        assert_eq!(text(&many), lines);
        assert_eq!(text("no end"), "no end");
        assert_eq!(text(""), "");
    }

    #[test]
    fn overwritten_text_is_shown_in_its_final_form() {
        assert_eq!(text("10%\r20%\r100%\r\ndone\r\n"), "100%\ndone\n");
        assert_eq!(text("$ lx\x08\x1b[Ks\r\na  b\r\n"), "$ ls\na  b\n");
        assert_eq!(
            text("one\r\ntwo\r\n\x1b[2A\x1b[2Kone!\r\n\x1b[2Ktwo!\r\n"),
            "one\ntwo\none!\ntwo!\n",
            "both were seen"
        );
    }

    #[test]
    fn words_separated_by_cursor_moves_stay_separate() {
        assert_eq!(text("\x1b[1;3HWorking\x1b[2Con\x1b[1Cit\r\nnext"), "  Working  on it\nnext\n");
    }

    #[test]
    fn scrolled_rows_precede_the_last_screen_and_long_lines_are_whole() {
        let lines: String = (0..9).map(|n| format!("row {n}\r\n")).collect();
        let wanted: String = (0..9).map(|n| format!("row {n}\n")).collect();
        assert_eq!(text(&format!("\x1b[H{lines}")), wanted);
        let long = "0123456789".repeat(7);
        assert_eq!(text(&format!("\x1b[H{long}\r\nend")), format!("{long}\nend\n"));
    }

    #[test]
    fn cleared_text_is_shown_and_an_identical_redraw_is_not_repeated() {
        assert_eq!(text("\x1b[H\x1b[Jfirst\r\n\x1b[H\x1b[Jsecond\r\n"), "first\nsecond\n");
        assert_eq!(text("\x1b[H\x1b[2Jtitle\r\n1\r\n\x1b[H\x1b[2Jtitle\r\n2\r\n"), "title\n1\n2\n");
        assert_eq!(text("\x1b[H\x1b[2Jsame\r\n\x1b[H\x1b[2Jsame\r\n"), "same\n");
    }

    #[test]
    fn rows_are_passed_on_once_they_are_stable() {
        let mut emulator = Emulator::new(5, 20);
        assert_eq!(emulator.write(b"plain\r\n$ "), b"plain\n");
        assert_eq!(emulator.quiet(), b"$ ", "nothing was redrawn yet");
        assert_eq!(emulator.write(b"\r\x1b[Kdone\r\nspin"), b"\n", "it is shown whole, in a line of its own");
        assert_eq!(emulator.quiet(), b"", "it may be drawn over");
        let deadline = Instant::now() + STABLE * 20;
        let text = loop {
            let text = emulator.quiet();
            if !text.is_empty() || Instant::now() > deadline {
                break text;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(text, b"done\n");
        assert_eq!(emulator.end(), b"spin\n");
    }

    #[test]
    fn what_tmux_knows_is_shown_as_in_tmux() {
        assert_eq!(text("x\x1b[9b|\n"), "xxxxxxxxxx|\n");
        assert_eq!(text("one\x1bEtwo\r\n"), "one\ntwo\n");
        assert_eq!(text("make\r\n\x1b[?1047h\x1b[H\x1b[2Jtop\x1b[?1047lafter\r\n"), "make\nafter\n");
    }

    #[test]
    fn what_repeats_a_character_takes_no_more_than_a_row() {
        for repeat in ["\x1b[65535b", "\x1b[\x0065535b", "\x1b\x00[65535b", "\x1b[\x1b[65535b"] {
            let mut emulator = Emulator::new(5, 20);
            let text = emulator.write(format!("x{}", repeat.repeat(1000)).as_bytes());
            let text = [text, emulator.end()].concat();
            assert!(text.len() <= 1000 * 21, "{repeat:?}: {}", text.len());
        }
    }

    #[test]
    fn a_blank_before_a_wrap_is_kept() {
        let words = format!("{} {}", "a".repeat(19), "b".repeat(19));
        assert_eq!(text(&format!("\x1b[H{words}\r\nend")), format!("{words}\nend\n"));
    }

    #[test]
    fn a_full_screen_program_does_not_change_the_lines_before_it() {
        let pages: String = (0..30).map(|n| format!("page {n}\r\n")).collect();
        let made = format!("make\r\ndone\r\n\x1b[?1049h\x1b[H\x1b[2J{pages}\x1b[?1049lafter\r\n");
        assert_eq!(text(&made), "make\ndone\nafter\n");
        assert_eq!(text("make\r\n\x1b[?1049h\x1b[H\x1b[2Jtop\r\n"), "make\ntop\n", "its last screen");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_passed_on() {
        let mut emulator = Emulator::new(5, 20);
        assert_eq!(emulator.write(b"a\xff\xc3\nb\xc3"), b"a\xff\xc3\n");
        assert_eq!([emulator.quiet(), emulator.write(b"\xa9\n")].concat(), "b\u{e9}\n".as_bytes());
    }
}
