//! Reading without ever stopping: what cannot be written is counted, and said once it can.

use std::io::{self, ErrorKind, Read, Write};

/// What is read at once, in bytes: twice what a pipe holds.
const BUFFER: usize = 128 * 1024;

/// Copies to the end of the input.
pub(super) fn copy(mut input: impl Read, mut out: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut lost = 0;
    loop {
        let length = match input.read(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if lost > 0 && write_fully(&mut out, notice(lost).as_bytes()) == 0 {
            lost = 0;
        }
        if length == 0 {
            return Ok(());
        }
        // With a gap that is not marked yet nothing may follow it.
        lost += if lost > 0 { length } else { write_fully(&mut out, &buffer[..length]) };
    }
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

    impl Read for Chunks<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0.set(self.0.get() + 1);
            if self.0.get() == self.1 {
                return Ok(0);
            }
            buffer[..10].fill(b'0' + u8::try_from(self.0.get()).unwrap());
            Ok(10)
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
    fn a_cut_notice_is_repeated() {
        let text = log(&[0, 5, 99, 99]);
        assert_eq!(text, format!("{}{}3333333333", &notice(10)[..5], notice(20)));
    }
}
