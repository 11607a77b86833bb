//! The load generator: one thread for any number of clients, each of which asks again as soon as it is answered.
//! All that listens at a socket or a pipe is driven by it, so that the client's side costs all of them the same.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::child::Spawned;
use crate::interrupt;
use crate::stats::Times;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How late an interruption is noticed while nothing is answered, in milliseconds.
const TICK_MS: u8 = 200;
/// So much is read at a time, in bytes.
const CHUNK: usize = 64 * 1024;

/// What an answer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The operation has a further request.
    Further,
    /// It is done.
    Over,
}

/// How one client speaks with its server.
pub(super) trait Talk {
    /// Appends the next request.
    ///
    /// # Errors
    /// It cannot be written.
    fn ask(&mut self, to: &mut Vec<u8>) -> Result<()>;

    /// The answer at the front of what came: how many bytes it has, and what it came to. `None` while it is not
    /// whole.
    ///
    /// # Errors
    /// A refusal, or something that is no answer.
    fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>>;
}

/// A connected client.
pub(super) struct Client {
    talk: Box<dyn Talk>,
    /// Where its server is a process of its own; it ends when its input does.
    _server: Option<Spawned>,
    writer: File,
    reader: File,
    out: Vec<u8>,
    incoming: Vec<u8>,
    /// When each operation under way was begun, oldest first.
    begun: VecDeque<Instant>,
}

/// When to ask no more.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// After so long.
    Time(Duration),
    /// After so many operations in all.
    Count(usize),
}

/// What all clients did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// How long each operation took.
    pub(super) times: Times,
    /// Those that were done in time.
    pub(super) operations: usize,
    /// That time.
    pub(super) took: Duration,
}

impl Client {
    /// A client at a socket on which everything said so far is answered.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn at(socket: UnixStream, talk: impl Talk + 'static) -> Result<Self> {
        let reader = OwnedFd::from(socket.try_clone()?);
        Self::new(None, (reader, socket.into()), talk)
    }

    /// A client of a process that reads requests and writes answers.
    ///
    /// # Errors
    /// It has no pipes, or the system refuses.
    pub(super) fn of(mut server: Spawned, talk: impl Talk + 'static) -> Result<Self> {
        let (reader, writer) = server.pipes().context("a process without pipes")?;
        Self::new(Some(server), (reader, writer), talk)
    }

    fn new(
        server: Option<Spawned>,
        (reader, writer): (OwnedFd, OwnedFd),
        talk: impl Talk + 'static,
    ) -> Result<Self> {
        for fd in [&reader, &writer] {
            let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
            fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        }
        Ok(Self {
            talk: Box::new(talk),
            _server: server,
            writer: writer.into(),
            reader: reader.into(),
            out: Vec::new(),
            incoming: Vec::new(),
            begun: VecDeque::new(),
        })
    }

    /// Begins an operation.
    fn begin(&mut self) -> Result<()> {
        self.begun.push_back(Instant::now());
        self.talk.ask(&mut self.out)
    }

    /// Writes what can be written.
    fn flush(&mut self) -> Result<()> {
        while !self.out.is_empty() {
            match self.writer.write(&self.out) {
                Ok(written) => drop(self.out.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("a request"),
            }
        }
        Ok(())
    }

    /// Reads what has come, and goes on with operations that have a further request. How long those took that
    /// are over.
    fn hear(&mut self, chunk: &mut [u8], over: &mut Vec<Duration>) -> Result<()> {
        let read = match self.reader.read(chunk) {
            Ok(0) => bail!("the server hung up"),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("an answer"),
        };
        self.incoming.extend_from_slice(&chunk[..read]);
        let mut used = 0;
        while let Some((bytes, turn)) = self.talk.answer(&self.incoming[used..])? {
            used += bytes;
            match turn {
                Turn::Further => self.talk.ask(&mut self.out)?,
                Turn::Over => {
                    let begun = self.begun.pop_front().context("an answer to nothing")?;
                    over.push(begun.elapsed());
                }
            }
        }
        self.incoming.drain(..used);
        Ok(())
    }
}

/// Lets all clients work, each with at most so many operations under way. Returns when all of them are over.
///
/// # Errors
/// A client fails, no answer comes, or the program was told to end.
pub(super) fn drive(clients: &mut [Client], depth: usize, until: Until) -> Result<Done> {
    let began = Instant::now();
    let mut done = Done::default();
    let (mut asked, mut answered_at) = (0, began);
    let mut chunk = vec![0; CHUNK];
    let mut over = Vec::new();
    loop {
        let goes_on = |asked: usize| match until {
            Until::Time(time) => began.elapsed() < time,
            Until::Count(count) => asked < count,
        };
        for client in clients.iter_mut() {
            while client.begun.len() < depth && goes_on(asked) {
                client.begin()?;
                asked += 1;
            }
            client.flush()?;
        }
        if clients.iter().all(|client| client.begun.is_empty()) {
            break;
        }
        interrupt::check()?;
        for at in ready(clients)? {
            clients[at].hear(&mut chunk, &mut over)?;
        }
        if !over.is_empty() {
            answered_at = Instant::now();
        }
        ensure!(answered_at.elapsed() < PATIENCE, "no answer within {} s", PATIENCE.as_secs());
        if goes_on(0) {
            (done.operations, done.took) = (done.operations + over.len(), began.elapsed());
        }
        over.drain(..).for_each(|time| done.times.push(time));
    }
    Ok(done)
}

/// The clients that have something to read. Returns also when one can write that could not.
fn ready(clients: &[Client]) -> Result<Vec<usize>> {
    let mut fds: Vec<PollFd<'_>> =
        clients.iter().map(|client| PollFd::new(client.reader.as_fd(), PollFlags::POLLIN)).collect();
    let blocked = clients.iter().filter(|client| !client.out.is_empty());
    fds.extend(blocked.map(|client| PollFd::new(client.writer.as_fd(), PollFlags::POLLOUT)));
    match poll(&mut fds, PollTimeout::from(TICK_MS)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error).context("poll"),
    }
    let readers = fds.iter().take(clients.len()).enumerate();
    Ok(readers.filter(|(_, fd)| fd.any().unwrap_or(true)).map(|(at, _)| at).collect())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Asks with a byte, is answered with one, and needs two turns for each operation.
    #[derive(Default)]
    struct Twice(bool);

    impl Talk for Twice {
        fn ask(&mut self, to: &mut Vec<u8>) -> Result<()> {
            to.push(b'?');
            Ok(())
        }

        fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>> {
            let Some(answer) = from.first() else { return Ok(None) };
            ensure!(*answer == b'!', "no");
            self.0 = !self.0;
            Ok(Some((1, if self.0 { Turn::Further } else { Turn::Over })))
        }
    }

    /// Answers each byte; returns how many there were.
    fn server(mut socket: UnixStream, answer: u8) -> thread::JoinHandle<usize> {
        thread::spawn(move || {
            let (mut count, mut bytes) = (0, [0; 7]);
            while let Ok(read @ 1..) = socket.read(&mut bytes) {
                count += read;
                if socket.write_all(&vec![answer; read]).is_err() {
                    break;
                }
            }
            count
        })
    }

    #[test]
    fn each_operation_is_asked_once() {
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..3).map(|_| UnixStream::pair().unwrap()).unzip();
        let servers: Vec<_> = theirs.into_iter().map(|socket| server(socket, b'!')).collect();
        let mut clients: Vec<_> =
            ours.into_iter().map(|socket| Client::at(socket, Twice::default()).unwrap()).collect();
        let done = drive(&mut clients, 4, Until::Count(100)).unwrap();
        let timed = drive(&mut clients, 1, Until::Time(Duration::from_millis(1))).unwrap();
        drop(clients);
        let asked: usize = servers.into_iter().map(|server| server.join().unwrap()).sum();
        assert_eq!(done.times.len(), 100);
        assert_eq!(asked, 2 * (done.times.len() + timed.times.len()));
    }

    #[test]
    fn a_refusal_and_an_end_are_errors() {
        for answer in [Some(b'x'), None] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let server = answer.map(|answer| server(theirs, answer));
            let mut clients = [Client::at(ours, Twice::default()).unwrap()];
            assert!(drive(&mut clients, 1, Until::Count(1)).is_err());
            drop(clients);
            if let Some(server) = server {
                server.join().unwrap();
            }
        }
    }
}
