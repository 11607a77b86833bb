//! The shell of `reaper`: ends the candidates that `poold` names, under a lease, and proves that they are
//! gone. It never selects a candidate by itself.
//!
//! The modules, in the order of a candidate's way. `dispatcher` requests candidates over a `link` and
//! starts a job for each, with a connection of its own, so that one candidate's grace delays no other;
//! `retry_backoff` holds back those that failed. `reap_job` is the work under a lease: `operator_command`
//! runs the configured command before, `ownership` checks that the processes are this pool's, `processes`
//! ends them, `pane` removes the pane, and `operator_command` runs the command after. `list` prints the
//! candidates instead.

mod dispatcher;
mod error;
mod link;
mod list;
mod operator_command;
mod ownership;
mod pane;
mod processes;
mod reap_job;
mod retry_backoff;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dispatcher::Dispatcher;
use error::Error;
use protocol::Backoff;

pub use list::list;

/// Time for jobs to finish after the reaper is told to stop: a usual grace period. A job that is cut off
/// loses its lease, and whoever gets the next lease starts over.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// First and longest pause between two attempts to connect to `poold`; they double.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Life of a connection after which it counts as stable, and its loss restarts the back-off.
const STABLE: Duration = Duration::from_secs(2);

/// Parameters of a reaper.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of `poold`'s socket.
    pub socket: PathBuf,
    /// Expected pool; empty for any.
    pub pool: String,
    /// This program's name and version, shown to people.
    pub build: String,
    /// The tmux binary to use instead of the one that `poold` names.
    pub tmux: Option<PathBuf>,
}

/// Serves `poold` until `shutdown`, then lets jobs finish for a moment. Without a `poold` it retries for
/// ever.
///
/// # Errors
/// Only if this program and `poold` are incompatible: another version, or another pool.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    process::runtime::malloc::use_single_arena();
    let mut dispatcher = Dispatcher::new(options);
    tokio::select! {
        () = shutdown => {}
        error = serve(&mut dispatcher) => return Err(error.into()),
    }
    if tokio::time::timeout(STOP_LIMIT, dispatcher.finish()).await.is_err() {
        tracing::warn!("stopped before every job was done");
    }
    Ok(())
}

/// Reaps each present candidate once.
///
/// # Errors
/// Something is left; or there is no `poold`, or it was lost.
pub async fn once(options: Options) -> anyhow::Result<()> {
    let all_gone = Dispatcher::new(options).once().await?;
    anyhow::ensure!(all_gone, "some candidates are not gone");
    Ok(())
}

async fn serve(dispatcher: &mut Dispatcher) -> Error {
    let (mut backoff, mut warned) = (Backoff::new(BACKOFF.0, BACKOFF.1), false);
    loop {
        let start = Instant::now();
        let Err(error) = dispatcher.serve().await;
        if error.is_final() {
            return error;
        }
        if start.elapsed() > STABLE {
            backoff.reset();
            warned = false;
        }
        let pause = backoff.pause();
        if warned {
            tracing::debug!(%error, ?pause, "poold still unavailable");
        } else {
            tracing::warn!(%error, "poold unavailable; retrying");
        }
        warned = true;
        tokio::time::sleep(pause).await;
    }
}
