//! Daemons without a supervisor, and how they are ended: those whose supervisor was killed, and those that a
//! supervisor found running and left alone.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::identify;
use protocol::ProcId;
use protocol::reply::Status;

use crate::up::started;
use crate::{Context, Error, supervisor_lock};

/// Time limit for the daemons to end before they are killed, and for the end after that.
const LIMIT: Duration = Duration::from_secs(10);
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// True if a supervisor was killed, and daemons that it had started run on.
pub(crate) fn are_left(context: &Context) -> Result<bool, Error> {
    let is_killed = supervisor_lock::is_orphaned(&context.paths.up_lock);
    Ok(is_killed && !started::alive(&context.paths)?.is_empty())
}

/// Ends these daemons.
pub(crate) fn end(daemons: Vec<ProcId>) -> Result<(), Error> {
    let failed = |error: process::Error| Error::failed(format!("cannot stop the daemons: {error}"));
    let mut handles = Vec::new();
    for id in daemons {
        handles.extend(Handle::open(id).map_err(failed)?);
    }
    for handle in &handles {
        handle.signal(Signal::SIGTERM).map_err(failed)?;
    }
    let deadline = Instant::now() + LIMIT;
    for handle in &handles {
        if !handle.wait(deadline.saturating_duration_since(Instant::now())).map_err(failed)? {
            handle.signal(Signal::SIGKILL).map_err(failed)?;
            handle.wait(KILL_LIMIT).map_err(failed)?;
        }
    }
    Ok(())
}

/// The daemons that are connected to `poold`, and `poold` last, as the others work for it.
pub(crate) fn daemons(status: &Status) -> Result<Vec<ProcId>, Error> {
    let mut ids = Vec::new();
    let connected = status.components.iter().filter(|component| component.connected);
    for pid in connected.filter_map(|component| component.pid) {
        let id =
            identify(pid).map_err(|error| Error::failed(format!("cannot examine pid {pid}: {error}")))?;
        ids.extend(id);
    }
    ids.push(status.process);
    Ok(ids)
}
