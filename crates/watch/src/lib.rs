//! The shell of `tmux-watch`: looks at tmux and at the processes in it, and tells `poold` what
//! changed, at once. It decides nothing and changes no session; the one process it may signal is the
//! verified tmux server, to make it notice what it missed.
//!
//! In the order in which a change travels: `wire` is the connection to tmux (`ladder` says by which
//! means), whose notices the `model` turns into questions (`dirty`) and whose answers into what is known, with the
//! processes that `settle` stamps and `procs` holds; `source` drives them, and looks at the `server`
//! and after it (`cure`). `stream` tells what is new, cut to the size of frames, over the
//! `link` to `poold` or in `print`.

mod cure;
mod dirty;
mod error;
mod ladder;
mod link;
mod model;
mod pace;
mod print;
mod procs;
mod server;
mod settle;
mod source;
mod stream;
mod touched;
mod wanted;
mod wire;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use error::Error;
use link::Link;
use pace::{Backoff, SETTLED};
use protocol::Role;
use protocol::tmux::Means;
use source::{Plan, Source};
use stream::Stream;
use tmux::Device;

pub use print::print;

/// The shortest heartbeat that is kept, in milliseconds: below it looking would be all that is done.
const SHORTEST_BEAT_MS: u64 = 20;

/// Whom to tell.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where `poold` listens.
    pub socket: PathBuf,
    /// The pool that is meant; empty for whichever listens there.
    pub pool: String,
    /// This program's name and version, for people.
    pub build: String,
    /// Whether to take the place of a watcher that is there, once.
    pub take_over: bool,
    /// How to learn of changes, whatever `poold` says.
    pub means: Option<Means>,
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
    let mut role = if options.take_over { Role::NextWatcher } else { Role::Watcher };
    let mut known = false;
    loop {
        let start = Instant::now();
        let Err(error) = serve(options, &mut source, &mut role).await;
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
        meanwhile(&mut source, tokio::time::sleep(pause)).await;
    }
}

/// One connection, until it is lost. What is known of tmux outlives it.
async fn serve(options: &Options, source: &mut Option<Source>, role: &mut Role) -> Result<Infallible, Error> {
    let (link, setup) = meanwhile(source, Link::open(options, *role)).await?;
    *role = Role::Watcher;
    let mark = process::identity::me().map(|me| process::census::client_mark(me, &options.socket));
    let device = Device {
        own: setup.own,
        mark: mark.unwrap_or_default(),
        ..Device::new(setup.binary.as_path(), setup.socket.as_path())
    };
    tracing::info!(tmux = %device.socket.display(), own = device.own, "watching");
    let plan = plan(options.means.or(setup.means), setup.sweep_ms, setup.heartbeat_ms);
    let kept = source.take().filter(|source| source.is(&device, &plan));
    let source = source.insert(match kept {
        Some(kept) => kept,
        None => Source::new(device, plan).map_err(Error::Start)?,
    });
    Stream::new(link, source, heartbeat(setup.heartbeat_ms)).run().await
}

/// Goes on watching while something else is waited for: tmux must be heard, and no end be missed.
async fn meanwhile<T>(source: &mut Option<Source>, what: impl Future<Output = T>) -> T {
    let watching = async {
        match source {
            Some(source) => loop {
                source.next().await;
                drop(source.take_touched());
            },
            None => std::future::pending::<Infallible>().await,
        }
    };
    tokio::select! {
        done = what => done,
        never = watching => match never {},
    }
}

fn plan(means: Option<Means>, sweep_ms: Option<u64>, heartbeat_ms: u64) -> Plan {
    // By then a late frame is still in time.
    let patience = heartbeat(heartbeat_ms) * 3 / 4;
    Plan { means, sweep: sweep_ms.map(Duration::from_millis), patience }
}

fn heartbeat(ms: u64) -> Duration {
    Duration::from_millis(ms.max(SHORTEST_BEAT_MS))
}
