//! Control mode by a `tmux -C` client. Before tmux 3.7 its attaching can crash a server that sends a
//! notification at that very moment, so this is the fallback for the native connection.

use std::ffi::OsString;
use std::process::Stdio;

use super::channel::{Channel, Peer, Pipes};
use crate::device::Device;
use crate::error::TmuxError;
use crate::trust;

/// Starts a client that runs `command` and ends with this process.
pub(super) fn spawn(device: &Device, command: &[OsString]) -> Result<Channel, TmuxError> {
    trust::before_client(&device.socket)?;
    let (pipes, far) = Pipes::new().map_err(TmuxError::Spawn)?;
    let mut client = device.command(false);
    client.arg("-C").args(command);
    client.stdin(Stdio::from(far.commands)).stdout(Stdio::from(far.replies)).stderr(Stdio::null());
    let child = client.spawn().map_err(|error| device.spawn_error(error))?;
    Ok(Channel::new(pipes, Peer::Client(child), device.output_cap))
}
