//! What an agent writes to its hook: at most so much is kept, and at most so long is waited for it.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The most that is kept, in bytes. What comes after it is read, so that the agent can finish, and thrown away.
pub(super) const MAX: usize = 1 << 20;
/// How long an agent has for all of it.
const LIMIT: Duration = Duration::from_secs(2);
/// What is read at a time, in bytes: as much as a pipe holds.
const CHUNK: usize = 64 * 1024;

/// Standard input to its end, or as much of it as comes in time.
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

/// Waits until there is something to read, or the end of it; not where that takes too long.
fn is_ready(fd: std::os::fd::BorrowedFd<'_>, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let limit = PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], limit) {
            // What is there by then is read, however late this runs.
            Ok(0) if left.is_zero() => return false,
            Ok(0) | Err(Errno::EINTR) => {}
            // A descriptor that cannot be polled shows itself at once when it is read.
            Ok(_) | Err(_) => return true,
        }
    }
}
