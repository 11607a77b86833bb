//! A `tmux -C` client in between. Before tmux 3.7 its attaching can crash the server, if that has
//! something to tell at that very moment: it is for where the native connection does not work.

use std::ffi::OsString;
use std::process::Stdio;

use super::wire::{Pipes, Tie, Wire};
use crate::device::Device;
use crate::error::TmuxError;
use crate::owner;

/// Starts a client that runs `command`. It ends with us.
pub(super) fn spawn(device: &Device, command: &[OsString]) -> Result<Wire, TmuxError> {
    owner::before_client(&device.socket)?;
    let (pipes, far) = Pipes::new().map_err(TmuxError::Spawn)?;
    let mut client = device.command(false);
    client.arg("-C").args(command);
    client.stdin(Stdio::from(far.commands)).stdout(Stdio::from(far.replies)).stderr(Stdio::null());
    let child = client.spawn().map_err(|error| device.not_run(error))?;
    Ok(Wire::new(pipes, Tie::Client(child), device.output_cap))
}
