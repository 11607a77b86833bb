//! The pipes of a handler. Processes that it leaves behind may keep them open: after its end they are served
//! for a second more, and then closed.

use std::io::{ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use protocol::message::RESULT_MAX;

use crate::poll;

/// Time for which pipes are served after the handler's end.
const REST: Duration = Duration::from_secs(1);

/// The time during which a pipe is served.
pub(super) struct ServiceTime {
    /// Its other end is closed when the handler has ended.
    ended: PipeReader,
    until: Option<Instant>,
}

impl ServiceTime {
    /// Lasts until [`REST`] after the other end of this pipe is closed.
    pub(super) fn new(ended: PipeReader) -> Self {
        Self { ended, until: None }
    }

    /// Waits until a pipe is ready. Returns false once the time is over.
    fn ready(&mut self, pipe: BorrowedFd<'_>, flags: PollFlags) -> bool {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let mut fds = vec![PollFd::new(pipe, flags)];
            // A closed pipe is always ready.
            if left.is_none() {
                fds.push(PollFd::new(self.ended.as_fd(), PollFlags::POLLIN));
            }
            if left == Some(Duration::ZERO) || poll::wait(&mut fds, left).is_err() {
                return false;
            }
            let is = |fd: &PollFd<'_>, flags| poll::has(fd, flags | PollFlags::POLLHUP | PollFlags::POLLERR);
            let (ready, ended) =
                (is(&fds[0], flags), fds.get(1).is_some_and(|ended| is(ended, PollFlags::POLLIN)));
            if ended {
                self.until = Some(Instant::now() + REST);
            }
            if ready {
                return true;
            }
        }
    }
}

/// Writes the body. A handler need not read all of it.
pub(super) fn feed(mut stdin: ChildStdin, mut body: &[u8], mut time: ServiceTime) {
    // Affects this end only, not the handler's.
    if fcntl(&stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_err() {
        return;
    }
    while !body.is_empty() && time.ready(stdin.as_fd(), PollFlags::POLLOUT) {
        match stdin.write(body) {
            Ok(written) => body = &body[written..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
    }
}

/// Reads all of the output, and returns as much of it as a result may have.
pub(super) fn collect(mut stdout: ChildStdout, mut time: ServiceTime) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 16 * 1024]);
    while time.ready(stdout.as_fd(), PollFlags::POLLIN) {
        match stdout.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => all.extend_from_slice(&piece[..read.min(RESULT_MAX - all.len())]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::{io, thread};

    use super::*;

    #[test]
    fn a_pipe_that_stays_open_is_given_up() {
        let mut left = Command::new("sleep");
        let mut left = left.arg("1000").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (left.stdin.take().unwrap(), left.stdout.take().unwrap());
        let (ended, running) = io::pipe().unwrap();
        let times = [ServiceTime::new(ended.try_clone().unwrap()), ServiceTime::new(ended)];
        let [fed, read] = times;
        let fed = thread::spawn(move || feed(stdin, &vec![0; 1 << 20], fed));
        let read = thread::spawn(move || collect(stdout, read));
        drop(running);
        fed.join().unwrap();
        assert_eq!(read.join().unwrap(), b"");
        left.kill().unwrap();
        left.wait().unwrap();
    }
}
