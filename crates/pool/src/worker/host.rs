//! The hosts of the pool's workers: whether one holds a message, and checks that keep users from changing its session
//! behind the worker's back.

use protocol::request::Remove;
use protocol::worker::WorkerSpec;
use protocol::{ErrorCode, Holder, Refusal, Session, Tag};

use crate::pool::Pool;
use crate::refusal::refuse;

/// True if the holder of a message is the host of a worker of the pool, and is not proved gone yet. Once it is proved
/// gone, [`crate::worker::demand`] frees the message.
pub(crate) fn is_hosted(pool: &Pool, holder: Option<&Holder>) -> bool {
    holder.and_then(|holder| holder.host).is_some_and(|host| !is_over(pool, host))
}

/// True if a worker's host with this tag is proved gone.
pub(crate) fn is_over(pool: &Pool, host: Tag) -> bool {
    pool.tagged(host).is_none_or(|session| !session.lifecycle.holds_slot())
}

/// Checks that a session is not the host of a worker, before a change that for hosts only `poolctl worker` makes.
pub fn check_no_host(session: &Session) -> Result<(), Refusal> {
    session.worker.as_deref().map_or(Ok(()), belongs_to_worker)
}

/// Checks that a session is not the host of a worker, or is removed in the way of `worker rm`. A worker of the
/// configuration is removed there.
pub fn check_removable(session: &Session, asked: &Remove) -> Result<(), Refusal> {
    let Some(worker) = session.worker.as_deref().filter(|worker| !worker.removed) else { return Ok(()) };
    if worker.configured || asked.keep_tmux || !asked.purge { belongs_to_worker(worker) } else { Ok(()) }
}

fn belongs_to_worker(worker: &WorkerSpec) -> Result<(), Refusal> {
    let name = &worker.name;
    let removes = if worker.configured && !worker.removed {
        format!(
            "to remove it, delete [workers.{name}] from the configuration and run `poolctl config reload`"
        )
    } else {
        format!("`poolctl worker rm {name}` removes it")
    };
    let why = format!("it is the host of worker {name}: `poolctl worker stop {name}` ends it, {removes}");
    refuse(ErrorCode::Refused, why)
}
