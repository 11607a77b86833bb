//! Scanner for the escape sequences in a program's raw output that tell its state: prompts and commands (OSC
//! 133), the bell, titles, the alternate screen, bracketed pastes.

use crate::adapter::Adapter;

/// The longest title, in bytes; longer ones are ignored.
const TEXT_MAX: usize = 4096;

/// The longest parameters of a control sequence, in bytes; longer sequences are ignored.
const PARAMETERS_MAX: usize = 64;

const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;

/// True if this window title says that the agent waits for a person. Codex (0.169.0) says so in a blinking
/// title and calls no hook.
pub fn title_wants_attention(adapter: Adapter, title: &str) -> bool {
    adapter == Adapter::Codex && title.contains("] Action Required")
}

/// A change of state that a program signals to its terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The shell's prompt begins (OSC 133;A).
    PromptStart,
    /// The prompt ends, the user's input begins (OSC 133;B).
    PromptEnd,
    /// A command starts (OSC 133;C).
    CommandStart,
    /// A command ended, with its exit code if given (OSC 133;D).
    CommandEnd(Option<i32>),
    /// The bell.
    Bell,
    /// The window title (OSC 0 and 2).
    Title(String),
    /// The alternate screen was switched on or off.
    Alternate(bool),
    /// Bracketed pastes were switched on or off.
    BracketedPaste(bool),
}

impl Mark {
    /// True if the marks are of one kind, so that the newer one replaces the other.
    fn is_same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The state of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Outside of any sequence.
    #[default]
    Plain,
    /// After ESC.
    Escape,
    /// In a control sequence (CSI).
    Control,
    /// In an operating system command (OSC).
    Command,
    /// After ESC in an operating system command.
    CommandEscape,
    /// In another string (DCS, SOS, PM, APC, a window's name).
    String,
    /// After ESC in another string.
    StringEscape,
}

/// Incremental scanner of a program's output, with bounded memory.
#[derive(Debug, Clone, Default)]
pub struct Scanner {
    state: State,
    /// The content of the current sequence.
    buffer: Vec<u8>,
    /// The sequence is longer than its limit.
    overflowed: bool,
}

impl Scanner {
    /// Creates a scanner for the beginning of a program's output.
    pub fn new() -> Self {
        Self::default()
    }

    /// Scans the next piece of output, of any size. Returns the newest mark of each kind in it, in the order
    /// of the output: at most eight.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<Mark> {
        self.feed_with_ends(piece).into_iter().map(|(_, mark)| mark).collect()
    }

    /// Like [`Scanner::feed`], each mark with the number of the piece's bytes up to its end.
    pub fn feed_with_ends(&mut self, piece: &[u8]) -> Vec<(usize, Mark)> {
        let mut marks = Vec::new();
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            if self.state == State::Plain && byte != ESC && byte != BEL {
                rest = &rest[plain_len(rest)..];
                continue;
            }
            if let Some(mark) = self.step(byte) {
                marks.retain(|(_, earlier): &(usize, Mark)| !earlier.is_same_kind(&mark));
                marks.push((piece.len() - after.len(), mark));
            }
            rest = after;
        }
        marks
    }

    /// Processes one byte.
    fn step(&mut self, byte: u8) -> Option<Mark> {
        if matches!(byte, CAN | SUB) {
            self.state = State::Plain;
            return None;
        }
        match self.state {
            State::Plain => {
                if byte == ESC {
                    self.state = State::Escape;
                }
                (byte == BEL).then_some(Mark::Bell)
            }
            State::Escape => self.begin(byte),
            State::Control => self.control(byte),
            State::Command if byte == ESC => self.go(State::CommandEscape),
            State::Command if byte == BEL => self.end_command(),
            State::Command => self.keep(byte, TEXT_MAX),
            State::String if byte == ESC => self.go(State::StringEscape),
            State::String => None,
            State::CommandEscape if byte == b'\\' => self.end_command(),
            State::StringEscape if byte == b'\\' => self.go(State::Plain),
            // Not the terminator: the string is dropped and another sequence begins.
            State::CommandEscape | State::StringEscape => self.begin(byte),
        }
    }

    /// Processes the byte after ESC.
    fn begin(&mut self, byte: u8) -> Option<Mark> {
        self.buffer.clear();
        self.overflowed = false;
        match byte {
            b'[' => self.go(State::Control),
            b']' => self.go(State::Command),
            b'P' | b'X' | b'^' | b'_' | b'k' => self.go(State::String),
            ESC => self.go(State::Escape),
            // A full reset.
            b'c' => {
                self.state = State::Plain;
                Some(Mark::Alternate(false))
            }
            // An intermediate byte.
            0x20..=0x2f => None,
            BEL => Some(Mark::Bell),
            _ => self.go(State::Plain),
        }
    }

    /// Processes a byte of a control sequence.
    fn control(&mut self, byte: u8) -> Option<Mark> {
        match byte {
            ESC => self.go(State::Escape),
            BEL => Some(Mark::Bell),
            0x40..=0x7e => {
                self.state = State::Plain;
                mode(&self.buffer, byte).filter(|_| !self.overflowed)
            }
            _ => self.keep(byte, PARAMETERS_MAX),
        }
    }

    /// Evaluates a complete operating system command.
    fn end_command(&mut self) -> Option<Mark> {
        self.state = State::Plain;
        if self.overflowed {
            return None;
        }
        let text = std::str::from_utf8(&self.buffer).ok()?;
        let (number, text) = text.split_once(';')?;
        match number {
            "0" | "2" => Some(Mark::Title(text.to_owned())),
            "133" => prompt(text),
            _ => None,
        }
    }

    fn go(&mut self, state: State) -> Option<Mark> {
        self.state = state;
        None
    }

    fn keep(&mut self, byte: u8, most: usize) -> Option<Mark> {
        self.overflowed = self.overflowed || self.buffer.len() >= most;
        if !self.overflowed {
            self.buffer.push(byte);
        }
        None
    }
}

/// Returns the number of bytes before the next ESC or BEL.
fn plain_len(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| matches!(*byte, ESC | BEL)).unwrap_or(bytes.len())
}

/// Parses OSC 133: a letter, then parameters.
fn prompt(text: &str) -> Option<Mark> {
    let mut parts = text.split(';');
    match parts.next()? {
        "A" => Some(Mark::PromptStart),
        "B" => Some(Mark::PromptEnd),
        "C" => Some(Mark::CommandStart),
        "D" => Some(Mark::CommandEnd(parts.next().and_then(|code| code.parse().ok()))),
        _ => None,
    }
}

/// Returns the mark of a control sequence that switches the alternate screen (private modes 47, 1047 and
/// 1049) or bracketed pastes (2004).
fn mode(parameters: &[u8], end: u8) -> Option<Mark> {
    let on = match end {
        b'h' => true,
        b'l' => false,
        _ => return None,
    };
    let modes = parameters.strip_prefix(b"?")?;
    let named = |wanted: &[&[u8]]| modes.split(|byte| *byte == b';').any(|mode| wanted.contains(&mode));
    // A sequence with both, which no program is known to write, counts for the screen.
    if named(&[b"47", b"1047", b"1049"]) {
        return Some(Mark::Alternate(on));
    }
    named(&[b"2004"]).then_some(Mark::BracketedPaste(on))
}
