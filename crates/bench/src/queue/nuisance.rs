//! Those that make trouble while a good client works.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::blocking::Connection;
use protocol::message::PROMPT;
use protocol::request::{Call, Subscribe};
use protocol::{ErrorCode, Hello, OpId, ProcId, Request, Response, Role, SessionRef, frame};

use super::poold;
use crate::pool;

/// Clients that say hello and nothing more, and clients that send byte after byte.
pub(super) const HALF_OPEN: usize = 256;
pub(super) const DRIBBLING: usize = 256;
/// So many of them send a byte at a time: each does so ten times a second.
const AT_A_TIME: usize = 16;
const BETWEEN: Duration = Duration::from_millis(100 * AT_A_TIME as u64 / DRIBBLING as u64);
/// How often the silent are looked after.
const LOOK: Duration = Duration::from_millis(20);
/// How often a full queue is tried.
const TRY: Duration = Duration::from_millis(5);
/// What fills a queue, in bytes; one that is not full after so many has no limit.
const BODY: usize = 16 * 1024;
const BODIES_MAX: usize = 16 * 1024;

/// Somebody who makes trouble, a little at a time.
pub(super) trait Nuisance {
    /// The next little.
    ///
    /// # Errors
    /// It cannot go on.
    fn step(&mut self) -> Result<()>;
}

/// A subscriber that never reads. Each time it is cut it comes again.
pub(super) struct Deaf {
    pool: PathBuf,
    socket: UnixStream,
}

impl Deaf {
    /// Subscribes at the daemon that listens there.
    ///
    /// # Errors
    /// It is not let in.
    pub(super) fn at(pool: &Path) -> Result<Self> {
        Ok(Self { pool: pool.to_owned(), socket: subscribe(pool)? })
    }
}

fn subscribe(pool: &Path) -> Result<UnixStream> {
    let mut socket = poold::connect(pool, Role::Subscriber)?;
    let request = Request::Subscribe(Subscribe { since: None });
    socket.write_all(&frame::encode(&Call { id: 1, op: None, lock: None, request })?)?;
    Ok(socket)
}

impl Nuisance for Deaf {
    fn step(&mut self) -> Result<()> {
        thread::sleep(LOOK);
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO)?;
        // No event is asked for but the one that is always told: that the other side hung up.
        if fds[0].any().unwrap_or(true) {
            self.socket = subscribe(&self.pool)?;
        }
        Ok(())
    }
}

/// Very many clients of which none ever says anything whole.
pub(super) struct Crowd {
    pool: PathBuf,
    _silent: Vec<UnixStream>,
    /// Each with how much it has sent.
    dribbling: Vec<(UnixStream, usize)>,
    /// What these send, again and again.
    call: Vec<u8>,
    /// Which is next.
    next: usize,
}

impl Crowd {
    /// Connects them to the daemon that listens there; they speak of this session.
    ///
    /// # Errors
    /// One is not let in.
    pub(super) fn at(pool: &Path, session: &str) -> Result<Self> {
        let many = |count| (0..count).map(|_| dribbler(pool)).collect::<Result<Vec<_>>>();
        let session = SessionRef(session.to_owned());
        let request = poold::message(session, poold::KIND, &super::subject::BODY);
        // With the longest length the call is never whole.
        let mut call = frame::encode(&Call { id: 1, op: Some(OpId::Random([7; 16])), lock: None, request })?;
        let length = u32::try_from(frame::FRAME_MAX)?.to_le_bytes();
        call.get_mut(..length.len()).context("a call without a length")?.copy_from_slice(&length);
        let dribbling = many(DRIBBLING)?.into_iter().map(|socket| (socket, 0)).collect();
        Ok(Self { pool: pool.to_owned(), _silent: many(HALF_OPEN)?, dribbling, call, next: 0 })
    }
}

fn dribbler(pool: &Path) -> Result<UnixStream> {
    let socket = poold::connect(pool, Role::Client)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Nuisance for Crowd {
    fn step(&mut self) -> Result<()> {
        for (socket, sent) in self.dribbling.iter_mut().skip(self.next).take(AT_A_TIME) {
            match socket.write(&[self.call[*sent % self.call.len()]]) {
                Ok(written) => *sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // It was cut, and comes again.
                Err(_) => (*socket, *sent) = (dribbler(&self.pool)?, 0),
            }
        }
        self.next = (self.next + AT_A_TIME) % DRIBBLING;
        thread::sleep(BETWEEN);
        Ok(())
    }
}

/// A session whose program is stopped and whose queue is full, and a client that goes on sending to it: tmux takes
/// what is typed for a while also where nobody reads it, so that there is room now and then.
pub(super) struct Stuck {
    connection: Connection,
    session: SessionRef,
    calls: u128,
    /// Calls that were refused.
    refused: u128,
    /// The program.
    program: ProcId,
}

impl Stuck {
    /// Makes this session one.
    ///
    /// # Errors
    /// It has no program, or its queue is never full.
    pub(super) fn make(pool: &Path, session: &str) -> Result<Self> {
        let (mut connection, _welcome) =
            Connection::connect(pool, &Hello::new(Role::Client, pool::NAME, "bench"))?;
        let session = SessionRef(session.to_owned());
        let program = program(&mut connection, &session)?;
        let mut stuck = Self { connection, session, calls: 0, refused: 0, program };
        stuck.signal(Signal::SIGSTOP)?;
        for _ in 0..BODIES_MAX {
            if stuck.is_refused()? {
                return Ok(stuck);
            }
        }
        bail!("the queue of {} is not full after {BODIES_MAX} messages", stuck.session.0)
    }

    /// How many of its messages were refused since, and how many there were.
    pub(super) fn refused(&self) -> (u128, u128) {
        (self.refused, self.calls)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let handle = Handle::open(self.program)?.context("the program has ended")?;
        ensure!(handle.signal(signal)?, "the program has ended");
        Ok(())
    }

    /// Sends a message; whether there is no room for it.
    fn is_refused(&mut self) -> Result<bool> {
        self.calls += 1;
        let request = poold::message(self.session.clone(), PROMPT, &[b'x'; BODY]);
        // Unique in this pool, which nobody else uses so.
        let op = OpId::Random((u128::MAX - self.calls).to_be_bytes());
        match self.connection.call(Some(op), None, request)? {
            Ok(_) => Ok(false),
            Err(refusal) if refusal.code == ErrorCode::Refused => {
                self.refused += 1;
                Ok(true)
            }
            Err(refusal) => bail!("{refusal}"),
        }
    }
}

/// The program of a session: the last of its processes.
fn program(connection: &mut Connection, session: &SessionRef) -> Result<ProcId> {
    let Response::Session(view) = connection.call(None, None, Request::Show(session.clone()))?? else {
        bail!("poold answers something else than a session");
    };
    ensure!(view.processes.len() > 1, "a session without a program");
    Ok(view.processes.last().context("a session without a process")?.process)
}

impl Nuisance for Stuck {
    fn step(&mut self) -> Result<()> {
        thread::sleep(TRY);
        self.is_refused().map(drop)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        // So that it ends as others do; it may have ended already.
        drop(self.signal(Signal::SIGCONT));
    }
}
