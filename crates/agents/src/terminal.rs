//! What a program tells its terminal: marks of prompts and commands (OSC 133), the bell, titles, its directory, the
//! alternate screen. Read from its raw output, in pieces of any size.

use crate::kind::Adapter;

/// The longest text of a title or a directory that is kept, in bytes; longer ones are left out.
const TEXT_MAX: usize = 4096;

/// The longest parameters of a control sequence that are looked at, in bytes.
const PARAMETERS_MAX: usize = 64;

const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;

/// Whether an agent whose window has this title waits for a person: Codex (0.169.0) says so there, blinking, and to no hook.
#[must_use]
pub fn title_asks(adapter: Adapter, title: &str) -> bool {
    adapter == Adapter::Codex && title.contains("] Action Required")
}

/// Something that a program told its terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// The shell's prompt begins (OSC 133;A).
    PromptStart,
    /// The prompt is written: what follows is what is typed (OSC 133;B).
    PromptEnd,
    /// A command runs (OSC 133;C).
    CommandStart,
    /// A command ended, with its exit code where it says so (OSC 133;D).
    CommandEnd(Option<i32>),
    /// The bell.
    Bell,
    /// A title (OSC 0 and 2).
    Title(String),
    /// The directory, as the program tells it: a URL (OSC 7).
    Directory(String),
    /// The alternate screen is on, or off.
    Alternate(bool),
    /// Pastes are asked for in brackets, or not any more.
    BracketedPaste(bool),
}

impl Mark {
    /// Whether the other is news of the same thing.
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Where in a sequence the output stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// In none.
    #[default]
    Plain,
    /// Behind ESC.
    Escape,
    /// In a control sequence (CSI).
    Control,
    /// In an operating system command (OSC).
    Command,
    /// Behind ESC in one.
    CommandEscape,
    /// In another string (DCS, SOS, PM, APC, a window's name).
    String,
    /// Behind ESC in one.
    StringEscape,
}

/// Reads output as it comes. Its memory is bounded.
#[derive(Debug, Clone, Default)]
pub struct Scanner {
    state: State,
    kept: Vec<u8>,
    /// The sequence is longer than what is kept.
    cut: bool,
}

impl Scanner {
    /// One that stands at the beginning of a program's output.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the next piece. Of each kind of mark the newest in it, in the order in which those came: nine at most.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<Mark> {
        let mut marks = Vec::new();
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            if self.state == State::Plain && byte != ESC && byte != BEL {
                rest = &rest[plain(rest)..];
                continue;
            }
            if let Some(mark) = self.step(byte) {
                marks.retain(|earlier: &Mark| !earlier.is_like(&mark));
                marks.push(mark);
            }
            rest = after;
        }
        marks
    }

    /// Takes in one byte.
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
            // Not its end: it is given up, and another sequence begins.
            State::CommandEscape | State::StringEscape => self.begin(byte),
        }
    }

    /// Takes in the byte behind ESC.
    fn begin(&mut self, byte: u8) -> Option<Mark> {
        self.kept.clear();
        self.cut = false;
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
            // What stands between ESC and its end.
            0x20..=0x2f => None,
            BEL => Some(Mark::Bell),
            _ => self.go(State::Plain),
        }
    }

    /// Takes in a byte of a control sequence.
    fn control(&mut self, byte: u8) -> Option<Mark> {
        match byte {
            ESC => self.go(State::Escape),
            BEL => Some(Mark::Bell),
            0x40..=0x7e => {
                self.state = State::Plain;
                mode(&self.kept, byte).filter(|_| !self.cut)
            }
            _ => self.keep(byte, PARAMETERS_MAX),
        }
    }

    /// What an operating system command says.
    fn end_command(&mut self) -> Option<Mark> {
        self.state = State::Plain;
        if self.cut {
            return None;
        }
        let text = std::str::from_utf8(&self.kept).ok()?;
        let (number, text) = text.split_once(';')?;
        match number {
            "0" | "2" => Some(Mark::Title(text.to_owned())),
            "7" => Some(Mark::Directory(text.to_owned())),
            "133" => prompt(text),
            _ => None,
        }
    }

    fn go(&mut self, state: State) -> Option<Mark> {
        self.state = state;
        None
    }

    fn keep(&mut self, byte: u8, most: usize) -> Option<Mark> {
        self.cut = self.cut || self.kept.len() >= most;
        if !self.cut {
            self.kept.push(byte);
        }
        None
    }
}

/// How many bytes there are before the next one that begins something.
fn plain(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| matches!(*byte, ESC | BEL)).unwrap_or(bytes.len())
}

/// What OSC 133 says: a letter, then parameters.
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

/// The mark of a control sequence that sets or resets the alternate screen (private modes 47, 1047 and 1049) or bracketed
/// pastes (2004).
fn mode(parameters: &[u8], end: u8) -> Option<Mark> {
    let on = match end {
        b'h' => true,
        b'l' => false,
        _ => return None,
    };
    let modes = parameters.strip_prefix(b"?")?;
    let named = |wanted: &[&[u8]]| modes.split(|byte| *byte == b';').any(|mode| wanted.contains(&mode));
    // Of both in one sequence, which no program is known to write, the screen.
    if named(&[b"47", b"1047", b"1049"]) {
        return Some(Mark::Alternate(on));
    }
    named(&[b"2004"]).then_some(Mark::BracketedPaste(on))
}
