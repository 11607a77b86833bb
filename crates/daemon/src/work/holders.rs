//! The processes that hold messages: when the kernel says that one has ended, what it held is free at
//! once.

use std::sync::Arc;

use process::exits::Exits;
use protocol::ProcId;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::leases;
use crate::context::Daemon;

/// Watches the processes that come, for ever.
#[expect(deprecated, reason = "its successor is unsafe; `Exits` keeps its descriptor as long as it lives")]
pub(crate) async fn run(daemon: Arc<Daemon>, mut comes: mpsc::UnboundedReceiver<ProcId>) {
    let exits = Exits::new().and_then(|exits| AsyncFd::with_interest(exits, Interest::READABLE));
    let Ok(mut exits) = exits.inspect_err(|error| tracing::warn!(%error, "ends of workers are not seen"))
    else {
        return;
    };
    loop {
        tokio::select! {
            process = comes.recv() => match process {
                Some(process) => watch(&daemon, exits.get_mut(), process),
                None => return,
            },
            ready = exits.readable_mut() => {
                let Ok(mut ready) = ready else { return };
                let ended = ready.get_inner_mut().take().unwrap_or_default();
                if ended.is_empty() {
                    ready.clear_ready();
                }
                ended.into_iter().for_each(|(process, _)| tell(&daemon, process));
            }
        }
    }
}

fn watch(daemon: &Arc<Daemon>, exits: &mut Exits, process: ProcId) {
    match exits.watch(process) {
        Ok(true) => {}
        Ok(false) => tell(daemon, process),
        // Its lease ends all the same.
        Err(error) => tracing::warn!(%process, %error, "the end of a worker will not be seen"),
    }
}

fn tell(daemon: &Arc<Daemon>, process: ProcId) {
    let context = Arc::clone(daemon);
    daemon.engine.post(move |turn| leases::died(turn, &context, process));
}
