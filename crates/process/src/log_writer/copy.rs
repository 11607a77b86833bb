//! Writing what comes: what cannot be written is counted, and said once it can.

use std::io::{self, ErrorKind, Write};

use super::input::Piece;

/// Copies to the end of the input.
pub(super) fn copy(
    input: impl IntoIterator<Item = io::Result<Piece>>,
    mut out: impl Write,
) -> io::Result<()> {
    let mut lost = 0;
    for piece in input {
        let piece = piece?;
        lost = said(&mut out, lost + piece.lost);
        // With a gap that is not marked yet nothing may follow it.
        lost += if lost > 0 { piece.bytes.len() } else { write_fully(&mut out, &piece.bytes) };
    }
    said(&mut out, lost);
    Ok(())
}

/// Says how much was lost, if anything; what is still to be said.
fn said(out: &mut impl Write, lost: usize) -> usize {
    if lost > 0 && write_fully(out, notice(lost).as_bytes()) == 0 { 0 } else { lost }
}

/// A line of its own on a terminal, too.
fn notice(lost: usize) -> String {
    format!("\r\n[tmux-pool: {lost} bytes of output lost]\r\n")
}

/// How many bytes could not be written.
pub(super) fn write_fully(out: &mut impl Write, mut bytes: &[u8]) -> usize {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => break,
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Chunks of ten bytes to read, one at a time; the last turn is the end of the input.
    struct Chunks<'a>(&'a Cell<usize>, usize);

    impl Iterator for Chunks<'_> {
        type Item = io::Result<Piece>;

        fn next(&mut self) -> Option<Self::Item> {
            self.0.set(self.0.get() + 1);
            let bytes = vec![b'0' + u8::try_from(self.0.get()).unwrap(); 10];
            (self.0.get() < self.1).then_some(Ok(Piece { lost: 0, bytes }))
        }
    }

    /// A disk with so many bytes of room at each turn.
    struct Disk<'a> {
        room: Vec<usize>,
        turn: &'a Cell<usize>,
        written: Vec<u8>,
    }

    impl Write for &mut Disk<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let turn = self.turn.get() - 1;
            let length = bytes.len().min(self.room[turn]);
            if length == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room[turn] -= length;
            self.written.extend(&bytes[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn log(room: &[usize]) -> String {
        let turn = Cell::new(0);
        let mut disk = Disk { room: room.to_vec(), turn: &turn, written: Vec::new() };
        copy(Chunks(&turn, room.len()), &mut disk).unwrap();
        String::from_utf8(disk.written).unwrap()
    }

    #[test]
    fn all_of_it_in_order() {
        assert_eq!(log(&[99, 99, 99]), "11111111112222222222");
    }

    #[test]
    fn what_a_full_disk_drops_is_counted_and_said() {
        assert_eq!(log(&[4, 0, 99, 99]), format!("1111{}3333333333", notice(16)));
        assert_eq!(log(&[4, 0, 0]), "1111", "the disk stays full");
        assert_eq!(log(&[4, 0, 99]), format!("1111{}", notice(16)), "said at the end at the latest");
    }

    #[test]
    fn what_was_thrown_away_before_a_piece_is_said_before_it() {
        let mut out = Vec::new();
        let pieces = [(0, "one"), (5, "two"), (7, "")];
        let pieces = pieces.map(|(lost, text)| Ok(Piece { lost, bytes: text.into() }));
        copy(pieces, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("one{}two{}", notice(5), notice(7)));
    }

    #[test]
    fn a_cut_notice_is_repeated() {
        let text = log(&[0, 5, 99, 99]);
        assert_eq!(text, format!("{}{}3333333333", &notice(10)[..5], notice(20)));
    }
}
