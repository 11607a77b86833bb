//! A connection of our own in tmux's socket protocol, without a tmux client: two pipes go to the
//! server, which then speaks control mode over them. It ends with this process, whatever it dies of.

use std::ffi::OsString;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::wire::{Pipes, Tie, Wire};
use crate::device::Device;
use crate::error::TmuxError;
use crate::imsg::{self, Form, Frame, kind};
use crate::owner;

/// `CLIENT_CONTROL` (tmux.h) and UTF-8.
const FLAGS: u64 = 0x2000 | imsg::UTF8;

/// Connects, and has the server run `command`, if it is not empty.
///
/// # Errors
/// [`TmuxError::NoServer`], [`TmuxError::Connect`]; [`TmuxError::Closed`] where the server closed the
/// connection meanwhile, as it does to the other [`Form`].
pub(super) async fn connect(device: &Device, form: Form, command: &[OsString]) -> Result<Wire, TmuxError> {
    let stream = owner::connect(&device.socket).await?;
    let (pipes, far) = Pipes::new().map_err(TmuxError::Connect)?;
    let packet = |messages: &[(u32, &[u8])], fd: Option<RawFd>| packet(&stream, form, messages, fd);
    packet(&[(kind::TERM, b"dumb\0"), (kind::TTY_NAME, b"\0"), (kind::CWD, b"/\0")], None)?;
    packet(&[(kind::STDIN, b"")], Some(far.commands.as_raw_fd()))?;
    packet(&[(kind::STDOUT, b"")], Some(far.replies.as_raw_fd()))?;
    let (pid, data) = (std::process::id().to_ne_bytes(), imsg::words(command));
    // One packet: before 3.7 anything that the server notices between the flag and the end of the
    // identification crashes it.
    let mut last: Vec<(u32, &[u8])> =
        vec![(kind::CLIENT_PID, &pid), (kind::LONG_FLAGS, FLAGS_BYTES), (kind::DONE, b"")];
    if !command.is_empty() {
        last.push((kind::COMMAND, &data));
    }
    packet(&last, None)?;
    Ok(Wire::new(pipes, Tie::Socket(Socket { stream, form, buffer: Vec::new() }), device.output_cap))
}

const FLAGS_BYTES: &[u8] = &FLAGS.to_ne_bytes();

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
