//! The shell of `reaper`: ends what `poold` names, under a lease, and proves that it is gone. It
//! never picks a victim by itself.
//!
//! In the order of a victim's way: `desk` asks for candidates and hands them out, each to a job
//! with a connection of its own, so that one victim's grace keeps no other waiting; `cycle` is what
//! a job does under its lease: `tree` ends the processes, then `pane` removes the pane.

mod cycle;
mod desk;
mod error;
mod hook;
mod link;
mod list;
mod memory;
mod ours;
mod pane;
mod tree;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use desk::Desk;
use error::Error;

pub use list::list;

/// How long jobs may take to finish what they are at when the reaper is told to end: a usual grace.
/// A job that is cut off loses its lease, and is begun anew by whoever gets the next one.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// The first and the longest pause between two tries for `poold`; they double.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// A connection that lasted this long worked; the next loss starts the waiting anew.
const SETTLED: Duration = Duration::from_secs(2);

/// Whom to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where `poold` listens.
    pub socket: PathBuf,
    /// The pool that is meant; empty for whichever listens there.
    pub pool: String,
    /// This program's name and version, for people.
    pub build: String,
    /// The tmux program, where it is not the one that `poold` names.
    pub tmux: Option<PathBuf>,
}

/// Serves `poold` until `shutdown`, then lets jobs finish for a moment. Without a `poold` it tries
/// again for ever.
///
/// # Errors
/// Only that this program and `poold` do not fit together: another version, or another pool.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    process::arenas::share_one();
    let mut desk = Desk::new(options);
    tokio::select! {
        () = shutdown => {}
        error = serve(&mut desk) => return Err(error.into()),
    }
    if tokio::time::timeout(STOP_LIMIT, desk.finish()).await.is_err() {
        tracing::warn!("ended before every job was done");
    }
    Ok(())
}

/// Works what there is now, each once.
///
/// # Errors
/// Not all of it is gone; or there is no `poold`, or it was lost.
pub async fn once(options: Options) -> anyhow::Result<()> {
    let all_gone = Desk::new(options).once().await?;
    anyhow::ensure!(all_gone, "not all of it is gone");
    Ok(())
}

async fn serve(desk: &mut Desk) -> Error {
    let (mut pause, mut known) = (BACKOFF.0, false);
    loop {
        let start = Instant::now();
        let Err(error) = desk.serve().await;
        if error.is_final() {
            return error;
        }
        if start.elapsed() > SETTLED {
            (pause, known) = (BACKOFF.0, false);
        }
        if known {
            tracing::debug!(%error, ?pause, "still without poold");
        } else {
            tracing::warn!(%error, "without poold; trying again until there is one");
        }
        known = true;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}
