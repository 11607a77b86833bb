//! What goes through a handler's pipes. Whatever it leaves behind may keep them open: once it has ended, they are
//! served for a moment more, and then closed.

use std::io::{ErrorKind, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};
use protocol::message::RESULT_MAX;

use crate::follow;

/// The moment.
const REST: Duration = Duration::from_secs(1);

/// The time in which pipes are served.
pub(super) struct Span {
    /// Closed at the other end when the handler has ended.
    over: PipeReader,
    until: Option<Instant>,
}

impl Span {
    /// Until a moment after the other end of this is closed.
    pub(super) fn new(over: PipeReader) -> Self {
        Self { over, until: None }
    }

    /// Waits for a pipe. False once the time is over.
    fn ready(&mut self, pipe: BorrowedFd<'_>, flags: PollFlags) -> bool {
        loop {
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            let mut fds = vec![PollFd::new(pipe, flags)];
            // What has ended would be ready for ever.
            if left.is_none() {
                fds.push(PollFd::new(self.over.as_fd(), PollFlags::POLLIN));
            }
            if left == Some(Duration::ZERO) || follow::wait(&mut fds, left).is_err() {
                return false;
            }
            let is =
                |fd: &PollFd<'_>, flags| follow::has(fd, flags | PollFlags::POLLHUP | PollFlags::POLLERR);
            let (ready, ended) =
                (is(&fds[0], flags), fds.get(1).is_some_and(|over| is(over, PollFlags::POLLIN)));
            if ended {
                self.until = Some(Instant::now() + REST);
            }
            if ready {
                return true;
            }
        }
    }
}

/// Writes all of it. One that reads no further is free to.
pub(super) fn feed(mut stdin: ChildStdin, mut body: &[u8], mut span: Span) {
    // This end alone: the handler's is another.
    if fcntl(&stdin, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).is_err() {
        return;
    }
    while !body.is_empty() && span.ready(stdin.as_fd(), PollFlags::POLLOUT) {
        match stdin.write(body) {
            Ok(written) => body = &body[written..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return,
        }
    }
}

/// Reads all that is printed, and keeps as much of it as a result may have.
pub(super) fn collect(mut stdout: ChildStdout, mut span: Span) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 16 * 1024]);
    while span.ready(stdout.as_fd(), PollFlags::POLLIN) {
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
        let (over, running) = io::pipe().unwrap();
        let spans = [Span::new(over.try_clone().unwrap()), Span::new(over)];
        let [fed, read] = spans;
        let fed = thread::spawn(move || feed(stdin, &vec![0; 1 << 20], fed));
        let read = thread::spawn(move || collect(stdout, read));
        drop(running);
        fed.join().unwrap();
        assert_eq!(read.join().unwrap(), b"");
        left.kill().unwrap();
        left.wait().unwrap();
    }
}
