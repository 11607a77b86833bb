//! Waiting for file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};
use protocol::Refusal;

use crate::Error;

/// Waits until one of the descriptors is ready or the time is over; may return earlier.
pub(crate) fn wait(fds: &mut [PollFd<'_>], left: Option<Duration>) -> Result<(), Refusal> {
    let timeout = left.map_or(PollTimeout::NONE, |left| {
        // Rounded up, so as not to end just before the time is over.
        PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
    });
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(Refusal::failed(format!("cannot wait: {error}"))),
    }
}

/// True if the last [`wait`] found one of these conditions.
pub(crate) fn has(fd: &PollFd<'_>, flags: PollFlags) -> bool {
    fd.revents().is_some_and(|found| found.intersects(flags))
}

/// True if one of these conditions holds now.
pub(crate) fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd, flags)];
    poll(&mut fds, PollTimeout::ZERO).is_ok() && has(&fds[0], flags)
}

/// True if standard input is a pipe or a file with data, which the user expects to be read.
pub(crate) fn stdin_has_data() -> bool {
    let stdin = io::stdin();
    let Ok(found) = fstat(&stdin) else { return false };
    match SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => found.st_size > 0,
        SFlag::S_IFIFO => is_ready(stdin.as_fd(), PollFlags::POLLIN),
        _ => false,
    }
}

/// Waits this long, or until standard output is closed.
pub(crate) fn pause(time: Duration) -> Result<(), Error> {
    let stdout = io::stdout();
    let fds = &mut [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    wait(fds, Some(time))?;
    has_reader(&fds[0])
}

/// Waits until standard output is closed by its reader, and returns the error for that. Returns `Ok` at once if
/// standard output cannot be polled.
pub(crate) fn await_closed_output() -> Result<(), Error> {
    let stdout = io::stdout();
    let fds = &mut [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    while !has(&fds[0], PollFlags::POLLNVAL) {
        wait(fds, None)?;
        has_reader(&fds[0])?;
    }
    Ok(())
}

/// Fails if standard output is closed. For places where nothing is printed.
pub(crate) fn check_reader() -> Result<(), Error> {
    pause(Duration::ZERO)
}

/// Fails if standard output is closed, which `poll` reports for any requested events.
pub(crate) fn has_reader(stdout: &PollFd<'_>) -> Result<(), Error> {
    let gone = has(stdout, PollFlags::POLLERR | PollFlags::POLLHUP);
    if gone { Err(Error::Output(io::ErrorKind::BrokenPipe.into())) } else { Ok(()) }
}
