//! Checks that keep users from changing the session of a worker's host behind the worker's back.

use protocol::request::Remove;
use protocol::worker::WorkerSpec;
use protocol::{ErrorCode, Refusal, Session};

use crate::refusal::refuse;

/// Checks that a session is no worker's, before a change that only the worker's own commands make.
///
/// # Errors
/// Refused.
pub fn check_no_host(session: &Session) -> Result<(), Refusal> {
    session.worker.as_deref().map_or(Ok(()), belongs_to_worker)
}

/// Checks that a session is no worker's, or is removed as `worker rm` does it. One in the configuration is
/// removed there.
///
/// # Errors
/// Refused.
pub fn check_removable(session: &Session, asked: &Remove) -> Result<(), Refusal> {
    let Some(worker) = session.worker.as_deref().filter(|worker| !worker.removed) else { return Ok(()) };
    if worker.configured || asked.keep_tmux || !asked.purge { belongs_to_worker(worker) } else { Ok(()) }
}

fn belongs_to_worker(worker: &WorkerSpec) -> Result<(), Refusal> {
    let name = &worker.name;
    let removes = if worker.configured && !worker.removed {
        format!("[workers.{name}] is removed in the configuration, with `poolctl config reload`")
    } else {
        format!("`poolctl worker rm {name}` removes it")
    };
    let why = format!("it is the host of worker {name}: `poolctl worker stop {name}` ends it, {removes}");
    refuse(ErrorCode::Refused, why)
}
