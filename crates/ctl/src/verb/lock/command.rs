//! The command that runs under the lock, in the process group of this one, so that it can use the terminal.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use protocol::reply::Locked;

use super::event::LockEvent;
use crate::{Context, Error, threads};

/// A started command.
pub(super) struct RunningCommand {
    /// `None` if it ended at once.
    handle: Option<Handle>,
}

/// The process to start: this program, which becomes the command. So the command gets TERM if this one is
/// killed.
pub(super) fn under_lock(
    context: &Context,
    this: PathBuf,
    command_line: &[OsString],
    locked: &Locked,
) -> Command {
    let mut command = Command::new(this);
    command.arg("become").arg("--ends-with").arg(std::process::id().to_string());
    command.args(context.style.json.then_some("--json")).arg("--").args(command_line);
    command.env("POOL_LOCK_TOKEN", locked.token.to_string());
    command.env("POOL_LOCK_SESSION", locked.session.to_string());
    context.set_environment(&mut command);
    command
}

impl RunningCommand {
    /// Starts it; called in the main thread, which lives as long as this process. Its end is a
    /// [`LockEvent::Ended`].
    pub(super) fn start(mut command: Command, events: Sender<LockEvent>) -> Result<Self, Error> {
        let cannot = |error: &dyn Display| Error::failed(format!("cannot start the command: {error}"));
        let wait = move |mut child: Child| drop(events.send(LockEvent::Ended(child.wait())));
        let (children, _) = threads::prepare(wait).map_err(|error| cannot(&error))?;
        let mut child = command.spawn().map_err(|error| cannot(&error))?;
        let handle = open(&child).map_err(|error| {
            // A command that cannot be signalled at the loss of the lock must not run; it may have ended
            // already.
            drop(child.kill().and_then(|()| child.wait()));
            cannot(&error)
        })?;
        drop(children.send(child));
        Ok(Self { handle })
    }

    /// Sends it a signal, which has no effect after its end.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), process::Error> {
        self.handle.as_ref().map_or(Ok(()), |handle| handle.signal(signal).map(drop))
    }
}

/// Opens a handle for a child that was not waited for yet, so that its process id cannot be that of another
/// process.
fn open(child: &Child) -> Result<Option<Handle>, process::Error> {
    let unknown = |source| process::Error::System { what: "identify the command", source };
    let id = identity::identify(child.id()).map_err(unknown)?;
    id.map_or(Ok(None), Handle::open)
}
