//! A connection of our own in tmux's socket protocol, without a tmux client: two pipes go to the
//! server, which then speaks control mode over them. It ends with this process, whatever it dies of.

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::imsg::{self, Form, Frame};
use super::wire::{Pipes, Tie, Wire};
use crate::device::Device;
use crate::error::TmuxError;

/// Kinds of messages (tmux-protocol.h).
mod kind {
    pub(super) const VERSION: u32 = 12;
    pub(super) const TERM: u32 = 101;
    pub(super) const TTY_NAME: u32 = 102;
    pub(super) const STDIN: u32 = 104;
    pub(super) const DONE: u32 = 106;
    pub(super) const CLIENT_PID: u32 = 107;
    pub(super) const CWD: u32 = 108;
    pub(super) const STDOUT: u32 = 110;
    pub(super) const LONG_FLAGS: u32 = 111;
    pub(super) const COMMAND: u32 = 200;
    /// Detach, exit and shutdown, in the ways there are of saying so.
    pub(super) const ENDS: [u32; 5] = [201, 202, 203, 204, 210];
}

/// `CLIENT_CONTROL | CLIENT_UTF8` (tmux.h).
const FLAGS: u64 = 0x2000 | 0x1_0000;

/// The server's socket, if something listens there.
pub(super) async fn reach(socket: &Path) -> Result<UnixStream, TmuxError> {
    UnixStream::connect(socket).await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => TmuxError::NoServer,
        _ => TmuxError::Connect(error),
    })
}

/// Connects, and has the server run `command`, if it is not empty.
///
/// # Errors
/// [`TmuxError::NoServer`], [`TmuxError::Connect`]; [`TmuxError::Closed`] where the server closed the
/// connection meanwhile, as it does to the other [`Form`].
pub(super) async fn connect(device: &Device, form: Form, command: &[OsString]) -> Result<Wire, TmuxError> {
    let stream = reach(&device.socket).await?;
    let (pipes, far) = Pipes::new().map_err(TmuxError::Connect)?;
    let packet = |messages: &[(u32, &[u8])], fd: Option<RawFd>| packet(&stream, form, messages, fd);
    packet(&[(kind::TERM, b"dumb\0"), (kind::TTY_NAME, b"\0"), (kind::CWD, b"/\0")], None)?;
    packet(&[(kind::STDIN, b"")], Some(far.commands.as_raw_fd()))?;
    packet(&[(kind::STDOUT, b"")], Some(far.replies.as_raw_fd()))?;
    let (pid, command) = (std::process::id().to_ne_bytes(), words(command));
    // One packet: before 3.7 anything that the server notices between the flag and the end of the
    // identification crashes it.
    let mut last: Vec<(u32, &[u8])> =
        vec![(kind::CLIENT_PID, &pid), (kind::LONG_FLAGS, FLAGS_BYTES), (kind::DONE, b"")];
    last.extend(command.as_deref().map(|words| (kind::COMMAND, words)));
    packet(&last, None)?;
    Ok(Wire::new(pipes, Tie::Socket(Socket { stream, form, buffer: Vec::new() }), device.output_cap))
}

const FLAGS_BYTES: &[u8] = &FLAGS.to_ne_bytes();

/// The data of [`kind::COMMAND`]: how many words, and each with a zero at its end.
fn words(command: &[OsString]) -> Option<Vec<u8>> {
    let count = i32::try_from(command.len()).ok().filter(|&count| count > 0)?;
    let mut data = count.to_ne_bytes().to_vec();
    for word in command {
        data.extend_from_slice(word.as_bytes());
        data.push(0);
    }
    Some(data)
}

/// Sends messages at once. The socket is new, its buffer holds all that is ever sent.
fn packet(
    stream: &UnixStream,
    form: Form,
    messages: &[(u32, &[u8])],
    fd: Option<RawFd>,
) -> Result<(), TmuxError> {
    let mut bytes = Vec::new();
    for &(kind, data) in messages {
        imsg::encode(form, Frame { kind, carries: fd.is_some(), data }, &mut bytes)?;
    }
    let fds: Vec<RawFd> = fd.into_iter().collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights };
    let data = [IoSlice::new(&bytes)];
    match sendmsg::<()>(stream.as_raw_fd(), &data, rights, MsgFlags::empty(), None) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) | Err(_) => Err(TmuxError::Closed),
    }
}

/// The connection itself. Once identified, only its end is of interest.
pub(super) struct Socket {
    stream: UnixStream,
    form: Form,
    buffer: Vec<u8>,
}

impl Socket {
    /// Returns when the server is gone or wants us gone. May be cancelled.
    pub(super) async fn over(&mut self) {
        while let Ok(1..) = self.stream.read_buf(&mut self.buffer).await {
            if self.ends() {
                return;
            }
        }
    }

    fn ends(&mut self) -> bool {
        loop {
            match imsg::decode(self.form, &self.buffer) {
                Ok(None) => return false,
                Ok(Some((frame, length))) => {
                    if frame.kind == kind::VERSION || kind::ENDS.contains(&frame.kind) {
                        return true;
                    }
                    self.buffer.drain(..length);
                }
                Err(_) => return true,
            }
        }
    }
}
