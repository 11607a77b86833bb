//! A connection in tmux's socket protocol, without a tmux client: the server gets two pipes and speaks
//! control mode over them. The connection ends with this process, however it dies.

use std::ffi::OsString;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::net::UnixStream;

use super::channel::{Channel, Peer, Pipes, Socket};
use crate::device::Device;
use crate::error::TmuxError;
use crate::imsg::{self, Form, Frame, kind};
use crate::trust;

/// `CLIENT_CONTROL` (tmux.h) and UTF-8.
const FLAGS: u64 = 0x2000 | imsg::UTF8;

/// Connects, and makes the server run `command`, unless it is empty.
///
/// # Errors
/// [`TmuxError::NoServer`], [`TmuxError::Connect`]; [`TmuxError::Closed`] if the server closed the
/// connection meanwhile, as it does on the wrong [`Form`].
pub(super) async fn connect(device: &Device, form: Form, command: &[OsString]) -> Result<Channel, TmuxError> {
    let stream = trust::connect(&device.socket).await?;
    let (pipes, far) = Pipes::new().map_err(TmuxError::Connect)?;
    let packet = |messages: &[(u32, &[u8])], fd: Option<RawFd>| packet(&stream, form, messages, fd);
    packet(&[(kind::TERM, b"dumb\0"), (kind::TTY_NAME, b"\0"), (kind::CWD, b"/\0")], None)?;
    packet(&[(kind::STDIN, b"")], Some(far.commands.as_raw_fd()))?;
    packet(&[(kind::STDOUT, b"")], Some(far.replies.as_raw_fd()))?;
    let (pid, data) = (std::process::id().to_ne_bytes(), imsg::words(command));
    // One packet: before 3.7 a notification between the flag and the end of the identification crashes the
    // server.
    let mut last: Vec<(u32, &[u8])> =
        vec![(kind::CLIENT_PID, &pid), (kind::LONG_FLAGS, FLAGS_BYTES), (kind::DONE, b"")];
    if !command.is_empty() {
        last.push((kind::COMMAND, &data));
    }
    packet(&last, None)?;
    Ok(Channel::new(pipes, Peer::Socket(Socket::new(stream, form)), device.output_cap))
}

const FLAGS_BYTES: &[u8] = &FLAGS.to_ne_bytes();

/// Sends frames in one packet. The socket is new, and its buffer holds everything that is ever sent.
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
