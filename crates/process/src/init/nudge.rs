//! Notifies `poold` that there is an exit record to read. Only a hint: the files are authoritative, so an
//! absent or busy daemon is not waited for.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use protocol::job::{self, Job, NUDGE_LEN};

/// Total time of attempts while the daemon's connection backlog is full.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);
const RETRY_PAUSE: Duration = Duration::from_millis(10);

pub(super) fn nudge(job: &Job) {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let _ = connect_to_daemon(job, deadline).and_then(|mut stream| {
        let mut frame = [0; 4 + NUDGE_LEN];
        frame[..4].copy_from_slice(&u32::try_from(NUDGE_LEN).unwrap_or(0).to_le_bytes());
        frame[4..].copy_from_slice(&job::nudge(job.tag));
        // Fits into the buffer of a new socket, so the write completes at once or never.
        stream.write_all(&frame).ok()
    });
}

/// Opens a non-blocking connection; `None` if there is no daemon, or its backlog stays full until the
/// deadline.
fn connect_to_daemon(job: &Job, deadline: Instant) -> Option<UnixStream> {
    let address = UnixAddr::new(job.socket.as_path()).ok()?;
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).ok()?;
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
    loop {
        match connect(fd.as_raw_fd(), &address) {
            Ok(()) => return Some(UnixStream::from(fd)),
            Err(Errno::EAGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY_PAUSE),
            Err(_) => return None,
        }
    }
}
