//! Reads standard input in a thread of its own, so that a disk or a lock that does not answer cannot stop the
//! reading: the tmux server, which all sessions share, buffers unread output in memory without a limit.

use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum size of a chunk, in bytes: twice the capacity of a pipe.
const BUFFER: usize = 128 * 1024;
/// Maximum number of chunks that wait to be written.
const QUEUE: usize = 8;
/// Time for which a full queue is waited for before input is discarded.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two attempts at a full queue.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Stack size in bytes: more than the thread needs in an unoptimised build.
const STACK: usize = 128 * 1024;

/// A chunk of the input.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// Number of bytes discarded before it.
    pub(super) lost: usize,
    pub(super) bytes: Vec<u8>,
}

/// Starts the thread, and returns the channel of its chunks, which ends at the end of the input or after an
/// error.
pub(super) fn read_chunks(input: impl Read + Send + 'static) -> io::Result<Receiver<io::Result<Chunk>>> {
    let (sender, chunks) = sync_channel(QUEUE);
    thread::Builder::new().stack_size(STACK).spawn(move || read(input, &sender))?;
    Ok(chunks)
}

fn read(mut input: impl Read, sender: &SyncSender<io::Result<Chunk>>) {
    let mut buffer = vec![0; BUFFER];
    let (mut lost, mut timeout) = (0, STALL_TIMEOUT);
    loop {
        let length = match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                // Fails only if the writer has ended.
                let _ended = sender.send(Err(error));
                return;
            }
        };
        match send(sender, Chunk { lost, bytes: buffer[..length].to_vec() }, timeout) {
            SendResult::Sent => (lost, timeout) = (0, STALL_TIMEOUT),
            SendResult::TimedOut => (lost, timeout) = (lost + length, Duration::ZERO),
            SendResult::WriterEnded => return,
        }
    }
    if lost > 0 {
        let _ended = sender.send(Ok(Chunk { lost, bytes: Vec::new() }));
    }
}

enum SendResult {
    Sent,
    TimedOut,
    WriterEnded,
}

fn send(sender: &SyncSender<io::Result<Chunk>>, chunk: Chunk, timeout: Duration) -> SendResult {
    let deadline = Instant::now() + timeout;
    let mut chunk = Ok(chunk);
    loop {
        chunk = match sender.try_send(chunk) {
            Ok(()) => return SendResult::Sent,
            Err(TrySendError::Disconnected(_)) => return SendResult::WriterEnded,
            Err(TrySendError::Full(chunk)) => chunk,
        };
        if Instant::now() >= deadline {
            return SendResult::TimedOut;
        }
        thread::sleep(RETRY_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_takes_is_counted_and_the_reading_goes_on() {
        let all = vec![b'x'; (QUEUE + 3) * BUFFER];
        let (reader, mut writer) = io::pipe().unwrap();
        let chunks = read_chunks(reader).unwrap();
        // Returns although no chunk is received: all of it was read.
        io::Write::write_all(&mut writer, &all).unwrap();
        drop(writer);
        let (mut taken, mut lost) = (0, 0);
        for chunk in chunks {
            let chunk = chunk.unwrap();
            lost += chunk.lost;
            taken += chunk.bytes.len();
        }
        assert!(lost > 0);
        assert_eq!(taken + lost, all.len(), "each byte is kept or counted");
    }

    #[test]
    fn all_of_it_in_order_where_it_is_taken() {
        let all: Vec<u8> = (0..4 * QUEUE * BUFFER).map(|n| (n / 1000) as u8).collect();
        let chunks = read_chunks(io::Cursor::new(all.clone())).unwrap();
        let taken: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.unwrap().bytes).collect();
        assert!(taken == all);
    }
}
