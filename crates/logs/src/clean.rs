//! Removes control sequences from program output, so that it cannot command a terminal.

/// The bytes to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Raw,
    /// The carriage return in a terminal's line ending.
    Plain,
    /// All control sequences and control characters except newline and tab, and marks that change the direction of
    /// text.
    Safe,
}

/// Cleans a stream of bytes. A sequence may be divided between pieces.
#[derive(Debug)]
pub struct Cleaner {
    mode: Mode,
    state: State,
    carriage_return: bool,
    /// The bytes so far of a character in UTF-8.
    character: Vec<u8>,
}

/// The position of the stream within a control sequence (ECMA-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Outside of a sequence.
    Ground,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate byte.
    Intermediate,
    /// After ESC [.
    Parameters,
    /// In a string (OSC, DCS, …), which ends with BEL or ESC \. A newline ends it, too, so that an unclosed
    /// string cannot swallow the rest of the output.
    Text,
    /// After the first byte of a C1 control in UTF-8.
    HighControl,
    /// Within a character of several bytes in UTF-8; this many bytes follow.
    Character(u8),
}

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

impl Cleaner {
    /// Creates a cleaner for the start of a stream.
    pub fn new(mode: Mode) -> Self {
        Self { mode, state: State::Ground, carriage_return: false, character: Vec::new() }
    }

    /// Returns what remains of a piece.
    pub fn clean(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        match self.mode {
            Mode::Raw => out.extend_from_slice(piece),
            Mode::Plain => piece.iter().for_each(|byte| self.line_end(*byte, b"\r", &mut out)),
            Mode::Safe => piece.iter().for_each(|byte| self.safe(*byte, &mut out)),
        }
        out
    }

    /// Writes a byte. A carriage return is held back until the next byte, and replaced by `alone` unless that
    /// is a newline.
    fn line_end(&mut self, byte: u8, alone: &[u8], out: &mut Vec<u8>) {
        if self.carriage_return && byte != b'\n' && byte != b'\r' {
            out.extend_from_slice(alone);
        }
        self.carriage_return = byte == b'\r';
        if byte != b'\r' {
            out.push(byte);
        }
    }

    fn safe(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.state = match self.state {
            State::Ground => self.ground(byte, out),
            State::Escape => match byte {
                b'[' => State::Parameters,
                b']' | b'P' | b'X' | b'^' | b'_' => State::Text,
                0x20..=0x2f => State::Intermediate,
                ESC => State::Escape,
                b'\n' => self.ground(byte, out),
                _ => State::Ground,
            },
            State::Intermediate if (0x20..=0x2f).contains(&byte) => State::Intermediate,
            State::Parameters if (0x20..=0x3f).contains(&byte) => State::Parameters,
            State::Text => match byte {
                BEL => State::Ground,
                ESC => State::Escape,
                b'\n' => self.ground(byte, out),
                _ => State::Text,
            },
            State::HighControl => self.high(byte, out),
            State::Character(left) => self.character(byte, left, out),
            State::Intermediate | State::Parameters if byte.is_ascii_control() => self.ground(byte, out),
            State::Intermediate | State::Parameters => State::Ground,
        };
    }

    fn ground(&mut self, byte: u8, out: &mut Vec<u8>) -> State {
        match byte {
            ESC => return State::Escape,
            0xc2 => return State::HighControl,
            0xc3..=0xf4 => {
                self.character.push(byte);
                return State::Character(if byte < 0xe0 { 1 } else { 2 + u8::from(byte >= 0xf0) });
            }
            // A C1 control in one byte, which a terminal that does not expect UTF-8 obeys.
            0x80..=0x9f => {}
            b'\n' | b'\t' | b'\r' => self.line_end(byte, b"\n", out),
            byte if byte.is_ascii_control() => {}
            byte => self.line_end(byte, b"\n", out),
        }
        State::Ground
    }

    /// Handles a byte within a character of which `left` bytes follow.
    fn character(&mut self, byte: u8, left: u8, out: &mut Vec<u8>) -> State {
        let is_part = (0x80..=0xbf).contains(&byte);
        if is_part {
            self.character.push(byte);
        }
        if is_part && left > 1 {
            return State::Character(left - 1);
        }
        let mut bytes = std::mem::take(&mut self.character);
        match std::str::from_utf8(&bytes) {
            Ok(text) if text.chars().any(is_direction_mark) => {}
            Ok(_) => bytes.iter().for_each(|byte| self.line_end(*byte, b"\n", out)),
            Err(_) => bytes
                .iter()
                .filter(|byte| !(0x80..=0x9f).contains(*byte))
                .for_each(|byte| self.line_end(*byte, b"\n", out)),
        }
        bytes.clear();
        self.character = bytes;
        if is_part { State::Ground } else { self.ground(byte, out) }
    }

    /// Handles the byte after 0xC2. U+0080 to U+009F are the C1 controls, equivalent to ESC sequences; the
    /// rest is text.
    fn high(&mut self, byte: u8, out: &mut Vec<u8>) -> State {
        match byte {
            0x9b => State::Parameters,
            0x90 | 0x98 | 0x9d | 0x9e | 0x9f => State::Text,
            0x80..=0x9a | 0x9c => State::Ground,
            byte => {
                self.line_end(0xc2, b"\n", out);
                self.ground(byte, out)
            }
        }
    }
}

/// True for a mark that changes the direction of text, or separates lines: what is shown would not be what is there.
pub fn is_direction_mark(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(mode: Mode, text: &[u8]) -> String {
        let whole = Cleaner::new(mode).clean(text);
        let mut cleaner = Cleaner::new(mode);
        let bytes: Vec<u8> = text.iter().flat_map(|byte| cleaner.clean(&[*byte])).collect();
        assert_eq!(whole, bytes, "the division into pieces makes no difference");
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn a_terminal_is_not_commanded() {
        let safe = |text: &str| clean(Mode::Safe, text.as_bytes());
        assert_eq!(safe("a\x1b[31mred\x1b[0m b\tc\n"), "ared b\tc\n");
        assert_eq!(safe("x\x1b]0;title\x07y\x1b]52;c;AAAA\x1b\\z\x1bP1$q\x1b\\!"), "xyz!");
        assert_eq!(safe("\x1b(Ba\x1bcb\x1b[?25l\x1b[1;2Hc\x07\x08\0\x7f"), "abc");
        assert_eq!(safe("a\u{9b}31mb\u{9d}0;t\x07c\u{85}d é ©"), "abcd é ©");
        assert_eq!(safe("\x1b]0;never closed\nnext line\n"), "\nnext line\n");
        assert_eq!(safe("\x1b[31\nx"), "\nx");
        assert_eq!(safe("a\u{202e}b\u{61c}c\u{2066}d 日本 \u{1f600} — …"), "abcd 日本 \u{1f600} — …");
        assert_eq!(clean(Mode::Safe, b"a\x9b31mb\x9dc"), "a31mbc", "controls in one byte");
        assert_eq!(Cleaner::new(Mode::Safe).clean(b"\xe2\x9b\n\xc3(\xe9"), b"\xe2\n\xc3(", "cut characters");
    }

    #[test]
    fn line_ends_are_newlines() {
        assert_eq!(clean(Mode::Safe, b"a\r\nb\r\r\n10%\r20%\n"), "a\nb\n10%\n20%\n");
        assert_eq!(clean(Mode::Plain, b"a\r\nb\rc\x1b[0m\n"), "a\nb\rc\x1b[0m\n");
        assert_eq!(clean(Mode::Raw, b"a\r\n\x1b"), "a\r\n\x1b");
    }
}
