//! Hostile clients.

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
use protocol::request::Subscribe;
use protocol::{Call, ErrorCode, Hello, OpId, PROMPT, ProcId, Request, Response, Role, SessionRef, frame};

use super::poold;
use crate::pool;

/// Number of clients that only send a hello, and of clients that send byte by byte.
pub(super) const HALF_OPEN: usize = 256;
pub(super) const DRIBBLING: usize = 256;
/// Number of these that send a byte at a time: each sends ten a second.
const AT_A_TIME: usize = 16;
const BETWEEN: Duration = Duration::from_millis(100 * AT_A_TIME as u64 / DRIBBLING as u64);
/// Interval of checks of the silent clients.
const LOOK: Duration = Duration::from_millis(20);
/// Interval of attempts on a full queue.
const TRY: Duration = Duration::from_millis(5);
/// Size of the messages that fill the queue, in bytes, and their maximum number: a queue that is not full
/// then has no limit.
const BODY: usize = 16 * 1024;
const BODIES_MAX: usize = 16 * 1024;

/// A hostile client that acts in small steps.
pub(super) trait Nuisance {
    /// Takes the next step.
    fn step(&mut self) -> Result<()>;
}

/// A subscriber that never reads, and reconnects when it is cut.
pub(super) struct Deaf {
    pool: PathBuf,
    socket: UnixStream,
}

impl Deaf {
    /// Subscribes at this daemon.
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
        // No event is requested but a hang-up, which is always reported.
        if fds[0].any().unwrap_or(true) {
            self.socket = subscribe(&self.pool)?;
        }
        Ok(())
    }
}

/// Many clients that never send a complete request.
pub(super) struct Crowd {
    pool: PathBuf,
    _silent: Vec<UnixStream>,
    /// Dribbling clients, each with the number of bytes sent.
    dribbling: Vec<(UnixStream, usize)>,
    /// The call that they send over and over.
    call: Vec<u8>,
    /// Index of the next one.
    next: usize,
}

impl Crowd {
    /// Connects them to this daemon; their calls name this session.
    pub(super) fn at(pool: &Path, session: &str) -> Result<Self> {
        let many = |count| (0..count).map(|_| dribbler(pool)).collect::<Result<Vec<_>>>();
        let session = SessionRef(session.to_owned());
        let request = poold::message(session, poold::KIND, &super::subject::BODY);
        // With the maximum length the call is never complete.
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
                // The daemon closed the connection: another one begins.
                Err(_) => (*socket, *sent) = (dribbler(&self.pool)?, 0),
            }
        }
        self.next = (self.next + AT_A_TIME) % DRIBBLING;
        thread::sleep(BETWEEN);
        Ok(())
    }
}

/// A session whose program is stopped and whose queue is full, and a client that keeps sending to it. tmux
/// buffers some of the typed text even if nobody reads it, so there is room now and then.
pub(super) struct Stuck {
    connection: Connection,
    session: SessionRef,
    calls: u128,
    /// Number of refused calls.
    refused: u128,
    /// The stopped program.
    program: ProcId,
}

impl Stuck {
    /// Turns this session into a stuck one.
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

    /// Returns the number of refused messages since then, and of all.
    pub(super) fn refused(&self) -> (u128, u128) {
        (self.refused, self.calls)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let handle = Handle::open(self.program)?.context("the program has ended")?;
        ensure!(handle.signal(signal)?, "the program has ended");
        Ok(())
    }

    /// Sends a message; true if it is refused for lack of room.
    fn is_refused(&mut self) -> Result<bool> {
        self.calls += 1;
        let request = poold::message(self.session.clone(), PROMPT, &[b'x'; BODY]);
        // Unique in this pool: other ids count up.
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

/// Returns the program of a session: the last of its processes.
fn program(connection: &mut Connection, session: &SessionRef) -> Result<ProcId> {
    let Response::Session(view) = connection.call(None, None, Request::Show(session.clone()))?? else {
        bail!("unexpected reply of poold instead of a session");
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
        // Lets it end like the others; it may have ended already.
        drop(self.signal(Signal::SIGCONT));
    }
}
