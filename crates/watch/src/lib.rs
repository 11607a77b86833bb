//! The shell of `tmux-watch`: looks at tmux and at the processes in it, and tells `poold` what
//! changed. It decides nothing and changes no session; the one process it may signal is the verified
//! tmux server, to make it notice what it missed.
//!
//! In the order in which an observation travels: `source` takes a listing, `stamp` says which
//! processes are in it, `cure` mends what the server missed, `stream` finds what is new, `parts`
//! cuts it to the size of frames, `link` sends it.

mod cure;
mod error;
mod link;
mod pace;
mod parts;
mod print;
mod source;
mod stamp;
mod stream;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Instant;

use error::Error;
use link::Link;
use pace::{Backoff, SETTLED};
use source::Source;
use stream::Stream;

pub use print::print;

/// Whom to tell.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where `poold` listens.
    pub socket: PathBuf,
    /// The pool that is meant; empty for whichever listens there.
    pub pool: String,
    /// This program's name and version, for people.
    pub build: String,
}

/// Watches for `poold` until `shutdown`. Without a `poold` it tries again for ever, and starts
/// over with a whole snapshot when there is one.
///
/// # Errors
/// Only that this program and `poold` do not fit together: another version, or another pool.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    tokio::select! {
        () = shutdown => Ok(()),
        failed = watch(&options) => Ok(failed.map(|never| match never {})?),
    }
}

async fn watch(options: &Options) -> Result<Infallible, Error> {
    let mut source = None;
    let mut backoff = Backoff::default();
    let mut known = false;
    loop {
        let start = Instant::now();
        let Err(error) = serve(options, &mut source).await;
        if error.is_final() {
            return Err(error);
        }
        if start.elapsed() > SETTLED {
            (backoff, known) = (Backoff::default(), false);
        }
        let pause = backoff.after(&error);
        if known {
            tracing::debug!(%error, ?pause, "still without poold");
        } else {
            tracing::warn!(%error, "without poold; trying again until there is one");
        }
        known = true;
        tokio::time::sleep(pause).await;
    }
}

/// One connection, until it is lost. What is known of processes outlives it.
async fn serve(options: &Options, source: &mut Option<Source>) -> Result<Infallible, Error> {
    let (link, setup) = Link::open(options).await?;
    let socket = setup.socket.as_path();
    tracing::info!(tmux = %socket.display(), "watching");
    let mut kept = source.take().filter(|source| source.watches(&setup));
    let source = source.insert(kept.take().unwrap_or_else(|| Source::new(&setup)));
    Stream::new(link, source, setup.heartbeat_ms).run().await
}
