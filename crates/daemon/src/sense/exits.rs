//! Exits of processes: sampled on demand, and reported by the kernel for those that hold messages or locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use process::exits::ExitWatcher;
use protocol::ProcId;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::decide::worker;
use crate::engine::daemon::Daemon;
use crate::host::blocking_pool::{self, Purpose};

/// Returns which of the processes are proved to have ended. A process that cannot be examined is not.
pub(crate) async fn sample(processes: BTreeSet<ProcId>) -> BTreeSet<ProcId> {
    if processes.is_empty() {
        return processes;
    }
    let look = move || processes.into_iter().filter(|process| has_exited(*process)).collect();
    blocking_pool::with_timeout(Purpose::Processes, look).await.unwrap_or_default()
}

/// True if a process is proved to have ended. Reads the process table.
pub(crate) fn has_exited(process: ProcId) -> bool {
    process::identity::exited(process).unwrap_or(false)
}

/// Watches the processes received, until the daemon ends: what they hold is freed as soon as the kernel
/// reports their end.
#[expect(
    deprecated,
    reason = "its successor is unsafe; `ExitWatcher` keeps its descriptor as long as it lives"
)]
pub(crate) async fn watch_holders(daemon: Arc<Daemon>, mut processes: mpsc::UnboundedReceiver<ProcId>) {
    let exits = ExitWatcher::new().and_then(|exits| AsyncFd::with_interest(exits, Interest::READABLE));
    let Ok(mut exits) = exits.inspect_err(|error| tracing::warn!(%error, "exits of workers are not noticed"))
    else {
        return;
    };
    loop {
        tokio::select! {
            biased;
            ready = exits.readable_mut() => {
                let Ok(mut ready) = ready else { return };
                let ended = ready.get_inner_mut().take().unwrap_or_default();
                if ended.is_empty() {
                    ready.clear_ready();
                }
                ended.into_iter().for_each(|(process, _)| note(&daemon, process));
            }
            process = processes.recv() => match process {
                Some(process) => watch(&daemon, exits.get_mut(), process),
                None => return,
            },
        }
    }
}

fn watch(daemon: &Arc<Daemon>, exits: &mut ExitWatcher, process: ProcId) {
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
