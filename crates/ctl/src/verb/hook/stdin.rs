//! The payload that an agent writes to its hook, up to a maximal size and within a time limit.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Maximal size in bytes. The rest is read, so that the agent can finish writing, and discarded.
const MAX: usize = 1 << 20;
/// Time limit for the whole payload.
const LIMIT: Duration = Duration::from_secs(2);
/// Bytes per read: the capacity of a pipe.
const CHUNK: usize = 64 * 1024;

/// Reads standard input to its end, or as much of it as arrives in time.
pub(super) fn read() -> Vec<u8> {
    let (stdin, end) = (io::stdin(), Instant::now() + LIMIT);
    let (mut kept, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    while is_ready(stdin.as_fd(), end) && (kept.len() < MAX || Instant::now() < end) {
        match nix::unistd::read(&stdin, &mut chunk) {
            Ok(0) => break,
            Ok(n) => kept.extend_from_slice(&chunk[..n.min(MAX - kept.len())]),
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(_) => break,
        }
    }
    kept
}

/// Waits until there is data or the end of the input. Returns false after the time limit.
fn is_ready(fd: std::os::fd::BorrowedFd<'_>, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let limit = PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], limit) {
            // Data that has arrived by then is read, however late this thread runs.
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            // A descriptor that cannot be polled fails at once when it is read.
            Ok(_) | Err(_) => return true,
        }
    }
}
