//! Exits of processes: sampled on demand, and reported by the kernel for those that hold messages or locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::ProcId;
use tokio::sync::mpsc;
use world::processes::Exits;

use crate::decide::worker;
use crate::engine::Daemon;
use crate::host::blocking_pool::Purpose;

/// Returns which of the processes are proved to have ended. A process that cannot be examined is not.
pub(crate) async fn sample(daemon: &Daemon, suspects: BTreeSet<ProcId>) -> BTreeSet<ProcId> {
    if suspects.is_empty() {
        return suspects;
    }
    let processes = daemon.processes();
    let look = move || suspects.into_iter().filter(|process| processes.has_exited(*process)).collect();
    daemon.blocking.with_timeout(Purpose::Processes, look).await.unwrap_or_default()
}

/// Watches the processes received, until the daemon ends: what they hold is freed as soon as the kernel
/// reports their end.
pub(crate) async fn watch_holders(daemon: Arc<Daemon>, mut processes: mpsc::UnboundedReceiver<ProcId>) {
    // The leases of these processes end nevertheless.
    let unnoticed = |error| tracing::warn!(%error, "the exits of workers are noticed no longer");
    let Ok(mut exits) = daemon.world.processes.watch_exits().map_err(unnoticed) else { return };
    loop {
        tokio::select! {
            biased;
            ended = exits.next() => match ended {
                Ok(ended) => ended.into_iter().for_each(|process| note(&daemon, process)),
                Err(error) => return unnoticed(error),
            },
            process = processes.recv() => match process {
                Some(process) => watch(&daemon, &mut *exits, process),
                None => return,
            },
        }
    }
}

fn watch(daemon: &Arc<Daemon>, exits: &mut dyn Exits, process: ProcId) {
    match exits.watch(process) {
        Ok(true) => {}
        Ok(false) => note(daemon, process),
        // Its lease ends nevertheless.
        Err(error) => tracing::warn!(%process, %error, "the exit of a worker will not be noticed"),
    }
}

fn note(daemon: &Arc<Daemon>, process: ProcId) {
    let context = Arc::clone(daemon);
    daemon.engine.post(move |turn| {
        turn.volatile.reaping.note_exited([process]);
        worker::holder_died(turn, &context.loaded().settings, process);
    });
}
