//! A bare log with group commit, in a process of its own: it reads bodies from a Unix socket, appends all
//! that have arrived at once, and answers them after one fdatasync. No durable queue behind a socket can be
//! much faster.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Name of the subcommand.
pub(super) const WORD: &str = "bare-log";
/// The answer to each body.
pub(super) const STORED: u8 = b'+';
/// Size of the length in front of each body, in bytes.
const PREFIX: usize = 4;
/// Size of one read, in bytes.
const CHUNK: usize = 64 * 1024;

/// A connection.
struct Peer {
    socket: UnixStream,
    incoming: Vec<u8>,
    /// Number of bodies to answer.
    waiting: usize,
    gone: bool,
}

/// Runs the server if the command line asks for it; returns its result.
pub(crate) fn requested(mut arguments: impl Iterator<Item = OsString>) -> Option<Result<()>> {
    arguments.next().filter(|word| word == WORD)?;
    let (socket, file) = arguments.next().zip(arguments.next())?;
    let serve = || serve_until(UnixListener::bind(socket)?, File::create(file)?, usize::MAX);
    Some(serve())
}

/// Serves until this many clients have connected and all have left.
pub(super) fn serve_until(listener: UnixListener, mut log: File, clients: usize) -> Result<()> {
    let (mut peers, mut come): (Vec<Peer>, usize) = (Vec::new(), 0);
    let (mut chunk, mut batch) = (vec![0; CHUNK], Vec::new());
    listener.set_nonblocking(true)?;
    while come < clients || !peers.is_empty() {
        for at in ready(&listener, &peers)? {
            match peers.get_mut(at) {
                Some(peer) => peer.read(&mut chunk, &mut batch),
                None => come += accept(&listener, &mut peers)?,
            }
        }
        if !batch.is_empty() {
            log.write_all(&batch)?;
            log.sync_data()?;
            batch.clear();
        }
        peers.iter_mut().filter(|peer| peer.waiting > 0).for_each(Peer::answer);
        peers.retain(|peer| !peer.gone);
    }
    Ok(())
}

/// Returns the indices of the readable peers; the listener's index is after the last.
fn ready(listener: &UnixListener, peers: &[Peer]) -> Result<Vec<usize>> {
    let sockets = peers.iter().map(|peer| peer.socket.as_fd()).chain([listener.as_fd()]);
    let mut fds: Vec<PollFd<'_>> = sockets.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error).context("poll"),
    }
    let fds = fds.iter().enumerate();
    Ok(fds.filter(|(_, fd)| fd.any().unwrap_or(true)).map(|(at, _)| at).collect())
}

/// Accepts the waiting connections; returns their number.
fn accept(listener: &UnixListener, peers: &mut Vec<Peer>) -> Result<usize> {
    let before = peers.len();
    loop {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(true)?;
                peers.push(Peer { socket, incoming: Vec::new(), waiting: 0, gone: false });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(peers.len() - before),
            Err(error) => return Err(error).context("accept"),
        }
    }
}

impl Peer {
    /// Reads the available bytes, and moves complete bodies into the batch.
    fn read(&mut self, chunk: &mut [u8], batch: &mut Vec<u8>) {
        match self.socket.read(chunk) {
            Ok(0) => self.gone = true,
            Ok(read) => self.incoming.extend_from_slice(&chunk[..read]),
            Err(error) => self.gone |= error.kind() != io::ErrorKind::WouldBlock,
        }
        let mut used = 0;
        while let Some(whole) = whole(&self.incoming[used..]) {
            used += whole;
            self.waiting += 1;
        }
        batch.extend(self.incoming.drain(..used));
    }

    /// Answers all bodies of the batch. The answers are small; a client that leaves them all unread is
    /// dropped.
    fn answer(&mut self) {
        let answers = vec![STORED; self.waiting];
        self.gone |= self.socket.write_all(&answers).is_err();
        self.waiting = 0;
    }
}

/// Returns the size of the first body with its length, if it is complete.
fn whole(bytes: &[u8]) -> Option<usize> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>()?;
    let length = usize::try_from(u32::from_le_bytes(*prefix)).ok()?;
    (rest.len() >= length).then_some(PREFIX + length)
}
