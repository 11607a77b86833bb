//! The command that runs under the lock: in this one's process group, so that the terminal is its own too.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use protocol::reply::Locked;

use super::{Args, Event};
use crate::context::Context;
use crate::error::Error;

/// A command that was started.
pub(super) struct Running {
    /// None where it ended at once.
    handle: Option<Handle>,
}

/// What is started: this program, which becomes the command. So it gets TERM should this one be killed.
pub(super) fn of(context: &Context, this: PathBuf, args: &Args, locked: &Locked) -> Command {
    let mut command = Command::new(this);
    command.arg("become").arg("--ends-with").arg(std::process::id().to_string());
    command.args(context.style.json.then_some("--json")).arg("--").args(&args.command);
    command.env("POOL_LOCK_TOKEN", locked.token.to_string());
    command.env("POOL_LOCK_SESSION", locked.session.to_string());
    command.env("POOL_NAME", context.paths.pool.as_str()).env("POOL_SOCKET", &context.paths.socket);
    command
}

impl Running {
    /// Starts it, from the thread that lives as long as this process. Its end is an [`Event::Ended`].
    ///
    /// # Errors
    /// It cannot be started, or held.
    pub(super) fn start(mut command: Command, events: Sender<Event>) -> Result<Self, Error> {
        let cannot = |error: &dyn Display| Error::failed(format!("cannot start the command: {error}"));
        let mut child = command.spawn().map_err(|error| cannot(&error))?;
        let handle = hold(&child).map_err(|error| {
            // What cannot be told that the lock is lost must not run under it. That it has ended is as good.
            drop(child.kill().and_then(|()| child.wait()));
            cannot(&error)
        })?;
        thread::spawn(move || drop(events.send(Event::Ended(child.wait()))));
        Ok(Self { handle })
    }

    /// Sends it a signal. To one that has ended there is nothing to say.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), process::Error> {
        self.handle.as_ref().map_or(Ok(()), |handle| handle.signal(signal).map(drop))
    }
}

/// Holds a child that nobody has waited for yet, so that the number is its own.
fn hold(child: &Child) -> Result<Option<Handle>, process::Error> {
    let unknown = |source| process::Error::System { what: "identify the command", source };
    let id = identity::identify(child.id()).map_err(unknown)?;
    id.map_or(Ok(None), Handle::open)
}
