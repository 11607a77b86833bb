//! Copies the input to the log. Bytes that cannot be written are counted, and a notice is written once
//! possible.

use std::io::{self, ErrorKind, Write};

use protocol::logs::NOTICE;

use super::stdin_reader::Chunk;

/// Copies the input to its end. Returns the number of lost bytes of which no notice could be written.
pub(super) fn copy(
    input: impl IntoIterator<Item = io::Result<Chunk>>,
    mut out: impl Write,
) -> io::Result<usize> {
    let mut lost = 0;
    for chunk in input {
        let chunk = chunk?;
        lost = write_notice(&mut out, lost + chunk.lost);
        // Nothing may follow a gap before its notice.
        lost += if lost > 0 { chunk.bytes.len() } else { write_fully(&mut out, &chunk.bytes) };
    }
    Ok(write_notice(&mut out, lost))
}

/// Writes the notice of lost bytes, if any; returns the number that still has to be reported.
fn write_notice(out: &mut impl Write, lost: usize) -> usize {
    if lost > 0 && write_fully(out, notice(lost).as_bytes()) == 0 { 0 } else { lost }
}

/// Returns the notice, which is a separate line on a terminal as well.
fn notice(lost: usize) -> String {
    format!("{NOTICE}{lost} bytes of output lost]\r\n")
}

/// Writes as many of the bytes as possible; returns the number that could not be written.
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

    /// Input of ten bytes per turn; the last turn is its end.
    struct Chunks<'a>(&'a Cell<usize>, usize);

    impl Iterator for Chunks<'_> {
        type Item = io::Result<Chunk>;

        fn next(&mut self) -> Option<Self::Item> {
            self.0.set(self.0.get() + 1);
            let bytes = vec![b'0' + u8::try_from(self.0.get()).unwrap(); 10];
            (self.0.get() < self.1).then_some(Ok(Chunk { lost: 0, bytes }))
        }
    }

    /// A disk with a given number of free bytes at each turn.
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

    /// Returns what is written to the disk, and the number of lost bytes that it does not tell.
    fn copied(room: &[usize]) -> (String, usize) {
        let turn = Cell::new(0);
        let mut disk = Disk { room: room.to_vec(), turn: &turn, written: Vec::new() };
        let lost = copy(Chunks(&turn, room.len()), &mut disk).unwrap();
        (String::from_utf8(disk.written).unwrap(), lost)
    }

    fn log(room: &[usize]) -> String {
        copied(room).0
    }

    #[test]
    fn all_of_it_in_order() {
        assert_eq!(log(&[99, 99, 99]), "11111111112222222222");
    }

    #[test]
    fn what_a_full_disk_drops_is_counted_and_said() {
        assert_eq!(log(&[4, 0, 99, 99]), format!("1111{}3333333333", notice(16)));
        assert_eq!(copied(&[4, 0, 0]), ("1111".to_owned(), 16), "the disk stays full");
        assert_eq!(copied(&[4, 0, 99]), (format!("1111{}", notice(16)), 0), "said at the end at the latest");
    }

    #[test]
    fn what_was_thrown_away_before_a_piece_is_said_before_it() {
        let mut out = Vec::new();
        let chunks = [(0, "one"), (5, "two"), (7, "")];
        let chunks = chunks.map(|(lost, text)| Ok(Chunk { lost, bytes: text.into() }));
        copy(chunks, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("one{}two{}", notice(5), notice(7)));
    }

    #[test]
    fn a_cut_notice_is_repeated() {
        let text = log(&[0, 5, 99, 99]);
        assert_eq!(text, format!("{}{}3333333333", &notice(10)[..5], notice(20)));
    }
}
