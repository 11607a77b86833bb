//! Tells `poold` that there is something to read. A hint: the files are the truth, so a daemon
//! that is away or busy is not waited for.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use protocol::job::{self, Job, NUDGE_LEN};

/// How long a full line of waiting connections is tried, in all.
const LIMIT: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_millis(10);

pub(super) fn nudge(job: &Job) {
    let deadline = Instant::now() + LIMIT;
    let _ = connected(job, deadline).and_then(|mut stream| {
        let mut frame = [0; 4 + NUDGE_LEN];
        frame[..4].copy_from_slice(&u32::try_from(NUDGE_LEN).unwrap_or(0).to_le_bytes());
        frame[4..].copy_from_slice(&job::nudge(job.tag));
        // Fits the buffer of a fresh socket, so it is taken at once or never.
        stream.write_all(&frame).ok()
    });
}

/// A connection that never blocks; `None` where there is no daemon, or it has no room in time.
fn connected(job: &Job, deadline: Instant) -> Option<UnixStream> {
    let address = UnixAddr::new(job.socket.as_path()).ok()?;
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).ok()?;
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
    loop {
        match connect(fd.as_raw_fd(), &address) {
            Ok(()) => return Some(UnixStream::from(fd)),
            Err(Errno::EAGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY),
            Err(_) => return None,
        }
    }
}
