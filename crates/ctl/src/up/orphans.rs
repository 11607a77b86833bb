//! Daemons that nobody keeps any more: those of a supervisor that was killed, and those that a
//! supervisor found running and left alone.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::identify;
use protocol::ProcId;
use protocol::reply::Status;

use crate::error::Error;

/// How long they may take to end before they are killed, and how long that may take.
const LIMIT: Duration = Duration::from_secs(10);
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// Ends these daemons.
///
/// # Errors
/// One cannot be looked at, signalled or waited for.
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

/// `poold` and those that are connected to it; `poold` last, as the others work for it.
///
/// # Errors
/// One cannot be looked at.
pub(crate) fn daemons(found: &Status) -> Result<Vec<ProcId>, Error> {
    let mut ids = Vec::new();
    let connected = found.components.iter().filter(|component| component.connected);
    for pid in connected.filter_map(|component| component.pid) {
        let id =
            identify(pid).map_err(|error| Error::failed(format!("cannot look at pid {pid}: {error}")))?;
        ids.extend(id);
    }
    ids.push(found.process);
    Ok(ids)
}
