//! Load generator: one thread drives any number of clients, each of which sends its next request as soon as
//! it is answered. It drives every subject with a socket or a pipe, so that the client's side costs the
//! same for all.

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

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum delay until an interrupt is noticed while waiting, in milliseconds.
const TICK_MS: u8 = 200;
/// Size of one read, in bytes.
const CHUNK: usize = 64 * 1024;

/// Meaning of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The operation needs another request.
    Further,
    /// The operation is complete.
    Over,
}

/// Protocol of one client.
pub(super) trait Talk {
    /// Appends the next request.
    fn ask(&mut self, to: &mut Vec<u8>) -> Result<()>;

    /// Parses the first answer of the received bytes; returns its length and its meaning, or `None` while
    /// it is incomplete.
    fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>>;
}

/// A connected client.
pub(super) struct Client {
    talk: Box<dyn Talk>,
    /// The server, if the client has one of its own; it ends with its input.
    _server: Option<Spawned>,
    writer: File,
    reader: File,
    out: Vec<u8>,
    incoming: Vec<u8>,
    /// Start times of the operations in progress, oldest first.
    begun: VecDeque<Instant>,
}

/// End of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// After this time.
    Time(Duration),
    /// After this total number of operations.
    Count(usize),
}

/// Result of a run over all clients.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Duration of each operation.
    pub(super) times: Times,
    /// Number of operations completed in time.
    pub(super) operations: usize,
    /// Duration of the run.
    pub(super) took: Duration,
}

impl Client {
    /// Creates a client of a socket without pending answers.
    pub(super) fn at(socket: UnixStream, talk: impl Talk + 'static) -> Result<Self> {
        let reader = OwnedFd::from(socket.try_clone()?);
        Self::new(None, (reader, socket.into()), talk)
    }

    /// Creates a client of a process that reads requests and writes answers.
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

    /// Starts an operation.
    fn begin(&mut self) -> Result<()> {
        self.begun.push_back(Instant::now());
        self.talk.ask(&mut self.out)
    }

    /// Writes as much as possible.
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

    /// Reads the received bytes, and continues operations that need another request. Appends the durations
    /// of the completed ones to `over`.
    fn hear(&mut self, chunk: &mut [u8], over: &mut Vec<Duration>) -> Result<()> {
        let read = match self.reader.read(chunk) {
            Ok(0) => bail!("the server closed the connection"),
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
                    let begun = self.begun.pop_front().context("an unexpected answer")?;
                    over.push(begun.elapsed());
                }
            }
        }
        self.incoming.drain(..used);
        Ok(())
    }
}

/// Runs all clients, each with at most `depth` operations in progress, until all operations are complete.
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

/// Returns the clients that can be read; returns early if a blocked one can be written.
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

    /// Test protocol: one byte each way, two turns for each operation.
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

    /// Answers each byte; returns their number.
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
