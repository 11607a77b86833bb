//! Standard input, read by a thread of its own: a disk or a lock that does not answer must not stop the reading, because
//! tmux keeps what is not read in memory without a limit, and its server is that of all sessions.

use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// What is read at once, in bytes: twice what a pipe holds.
const BUFFER: usize = 128 * 1024;
/// How many pieces wait to be written.
const PIECES: usize = 8;
/// How long a writer that takes nothing is waited for before what comes is thrown away.
const STALL: Duration = Duration::from_secs(1);
/// How often a full queue is tried again.
const RETRY: Duration = Duration::from_millis(1);
/// More than the thread needs in an unoptimised build.
const STACK: usize = 128 * 1024;

/// A piece of the input, and how many bytes before it were thrown away.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) lost: usize,
    pub(super) bytes: Vec<u8>,
}

/// Its pieces up to its end, or to an error.
pub(super) fn pieces(input: impl Read + Send + 'static) -> io::Result<Receiver<io::Result<Piece>>> {
    let (sender, pieces) = sync_channel(PIECES);
    thread::Builder::new().stack_size(STACK).spawn(move || read(input, &sender))?;
    Ok(pieces)
}

fn read(mut input: impl Read, sender: &SyncSender<io::Result<Piece>>) {
    let mut buffer = vec![0; BUFFER];
    let (mut lost, mut patience) = (0, STALL);
    loop {
        let length = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                // The writer is gone, where nobody takes it.
                let _gone = sender.send(Err(error));
                return;
            }
        };
        match put(sender, Piece { lost, bytes: buffer[..length].to_vec() }, patience) {
            Put::Taken => (lost, patience) = (0, STALL),
            Put::Refused => (lost, patience) = (lost + length, Duration::ZERO),
            Put::Gone => return,
        }
    }
    if lost > 0 {
        let _gone = sender.send(Ok(Piece { lost, bytes: Vec::new() }));
    }
}

enum Put {
    Taken,
    Refused,
    Gone,
}

fn put(sender: &SyncSender<io::Result<Piece>>, piece: Piece, patience: Duration) -> Put {
    let deadline = Instant::now() + patience;
    let mut piece = Ok(piece);
    loop {
        piece = match sender.try_send(piece) {
            Ok(()) => return Put::Taken,
            Err(TrySendError::Disconnected(_)) => return Put::Gone,
            Err(TrySendError::Full(piece)) => piece,
        };
        if Instant::now() >= deadline {
            return Put::Refused;
        }
        thread::sleep(RETRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_counted_and_the_reading_goes_on() {
        let all = vec![b'x'; (PIECES + 3) * BUFFER];
        let (reader, mut writer) = io::pipe().unwrap();
        let pieces = pieces(reader).unwrap();
        // Returns although nothing is taken: all of it was read.
        io::Write::write_all(&mut writer, &all).unwrap();
        drop(writer);
        let (mut taken, mut lost) = (0, 0);
        for piece in pieces {
            let piece = piece.unwrap();
            lost += piece.lost;
            taken += piece.bytes.len();
        }
        assert!(lost > 0);
        assert_eq!(taken + lost, all.len(), "each byte is kept or counted");
    }

    #[test]
    fn all_of_it_in_order_where_it_is_taken() {
        let all: Vec<u8> = (0..4 * PIECES * BUFFER).map(|n| (n / 1000) as u8).collect();
        let pieces = pieces(io::Cursor::new(all.clone())).unwrap();
        let taken: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.unwrap().bytes).collect();
        assert!(taken == all);
    }
}
