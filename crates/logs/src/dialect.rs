//! Translates control sequences that tmux knows and the emulator does not know, or does not bound, into sequences that
//! it knows. They are parsed by the emulator's own parser, so that both see the same sequences, even if control
//! characters are inside.

use vte::{Params, Parser, Perform};

/// Translates a stream of output for the emulator of a terminal.
#[derive(Default)]
pub(crate) struct Dialect(Parser);

impl Dialect {
    /// Returns a piece of output, translated for an emulator of a terminal with this number of columns. An incomplete
    /// sequence follows with the next piece.
    pub(crate) fn translate(&mut self, piece: &[u8], columns: u16) -> Vec<u8> {
        let mut translated = Translated { bytes: Vec::with_capacity(piece.len()), columns };
        self.0.advance(&mut translated, piece);
        translated.bytes
    }
}

/// The translated output. The emulator does not know strings such as titles and pictures, so they are left out.
struct Translated {
    bytes: Vec<u8>,
    columns: u16,
}

impl Translated {
    fn control_sequence(&mut self, intermediates: &[u8], params: &Params, action: char) {
        // The intermediates `<` to `?`, which come before the parameters, mark private sequences.
        let (marks, others): (Vec<u8>, Vec<u8>) =
            intermediates.iter().partition(|byte| (b'<'..=b'?').contains(*byte));
        let params =
            params.iter().map(|param| param.iter().map(u16::to_string).collect::<Vec<_>>().join(":"));
        let params = params.collect::<Vec<_>>().join(";");
        self.sequence(&[&marks, params.as_bytes(), &others].concat(), action);
    }

    fn sequence(&mut self, parameters: &[u8], action: char) {
        self.bytes.extend_from_slice(b"\x1b[");
        self.bytes.extend_from_slice(parameters);
        self.print(action);
    }
}

impl Perform for Translated {
    fn print(&mut self, c: char) {
        self.bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn execute(&mut self, byte: u8) {
        self.print(char::from(byte));
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _ignore: bool, action: char) {
        let first = params.iter().next().and_then(|param| param.first().copied()).unwrap_or_default();
        match (intermediates, action) {
            // Repeats the last character, here over a whole row at most.
            ([], 'b') => self.sequence(first.clamp(1, self.columns.max(1)).to_string().as_bytes(), 'b'),
            (_, 'b') => {}
            ([], 'a') => self.control_sequence(&[], params, 'C'),
            ([], 'e') => self.control_sequence(&[], params, 'B'),
            // The alternate screen, without the cursor's place.
            ([b'?'], 'h' | 'l') if first == 1047 => self.sequence(b"?47", action),
            _ => self.control_sequence(intermediates, params, action),
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], _ignore: bool, byte: u8) {
        match (intermediates, byte) {
            // Next line, and index.
            ([], b'E') => self.bytes.extend_from_slice(b"\r\n"),
            ([], b'D') => self.bytes.push(b'\n'),
            _ => self.bytes.extend([b"\x1b", intermediates, &[byte]].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_emulator_lacks_is_changed() {
        let of = |text: &str| String::from_utf8(Dialect::default().translate(text.as_bytes(), 80)).unwrap();
        assert_eq!(of("a\x1bEb\x1bDc"), "a\r\nb\nc");
        assert_eq!(of("\x1b[3a\x1b[2e\x1b[?1047hx\x1b[?1047l"), "\x1b[3C\x1b[2B\x1b[?47hx\x1b[?47l");
        for same in [
            "",
            "plain é\r\n\t",
            "\x1b[31mred\x1b[0m\x1b[?1049h",
            "\x1b[38:2:1:2:3m\x1b[1;2H\x1b[2 q\x1b7\x1b(B",
        ] {
            assert_eq!(of(same), same);
        }
        assert_eq!(of("\x1b]0;bE\x07a\x1bPq#\x1b\\b\x1b["), "a\x1b\\b");
    }

    #[test]
    fn a_repeat_takes_a_row_at_most_however_it_is_written() {
        let of = |text: &str| String::from_utf8(Dialect::default().translate(text.as_bytes(), 80)).unwrap();
        assert_eq!(of("x\x1b[65535b\x1b[99999999999999999999999b\x1b[b|"), "x\x1b[80b\x1b[80b\x1b[1b|");
        assert_eq!(of("\x1b[1;65535b\x1b[?65535b"), "\x1b[1b");
        for hidden in ["\x1b[\x0065535b", "\x1b\x00[65535b", "\x1b[\x1b[65535b", "\x1b[655\x7f35b"] {
            assert!(of(hidden).ends_with("\x1b[80b"), "{hidden:?}");
        }
        let mut pieces = Dialect::default();
        assert_eq!(pieces.translate(b"\x1b[655", 80), b"");
        assert_eq!(pieces.translate(b"35b", 80), b"\x1b[80b");
    }
}
