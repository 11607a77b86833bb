//! The shell of `tmux-watch`: observes tmux and the processes in it, and reports every change to `poold` at
//! once. It decides nothing and changes no session; the only process that it may signal is the verified
//! tmux server, as a workaround for missed events.
//!
//! The modules, in the order in which a change travels. `connection` reaches tmux, by the `transport`
//! chosen with the intervals of `timing`. The `model` turns notifications into reads (`read_queue`) and
//! answers into the known state, with processes identified by `stamp` and followed by `process_watch`; it
//! collects what changed in a `change_set`. `source` drives these, diagnoses a silent server
//! (`server_probe`) and makes up for what a server missed (`workarounds`). `stream` reports the changes and
//! answers `snapshot_requests`, in pieces of the size of a frame, over the `link` to `poold` or by `print`.

mod change_set;
mod connection;
mod error;
mod link;
mod model;
mod print;
mod process_watch;
mod read_queue;
mod server_probe;
mod snapshot_requests;
mod source;
mod stamp;
mod stream;
mod timing;
mod transport;
mod workarounds;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use error::Error;
use link::Link;
use protocol::Role;
use protocol::tmux::TmuxTransport;
use source::{Plan, Source};
use stream::Stream;
use timing::{STABLE, backoff, pause_after};
use tmux::Device;

pub use print::print;

/// Lower limit of the heartbeat, in milliseconds: below it the watcher would do nothing but observe.
const SHORTEST_BEAT_MS: u64 = 20;

/// Parameters of a watcher.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of `poold`'s socket.
    pub socket: PathBuf,
    /// Expected pool; empty for any.
    pub pool: String,
    /// This program's name and version, shown to people.
    pub build: String,
    /// True to replace a connected watcher, once.
    pub take_over: bool,
    /// Transport to use instead of the one that `poold` configures.
    pub transport: Option<TmuxTransport>,
}

/// Watches for `poold` until `shutdown`. Without a `poold` it retries for ever; each connection begins with
/// a whole snapshot.
///
/// # Errors
/// Only if this program and `poold` are incompatible: another version, or another pool.
pub async fn run(options: Options, shutdown: impl Future<Output = ()>) -> anyhow::Result<()> {
    tokio::select! {
        () = shutdown => Ok(()),
        failed = watch(&options) => Ok(failed.map(|never| match never {})?),
    }
}

async fn watch(options: &Options) -> Result<Infallible, Error> {
    let mut source = None;
    let mut backoff = backoff();
    let mut role = if options.take_over { Role::NextWatcher } else { Role::Watcher };
    let mut warned = false;
    loop {
        let start = Instant::now();
        let Err(error) = serve(options, &mut source, &mut role).await;
        if error.is_final() {
            return Err(error);
        }
        if start.elapsed() > STABLE {
            backoff.reset();
            warned = false;
        }
        let pause = pause_after(&mut backoff, &error);
        if warned {
            tracing::debug!(%error, ?pause, "poold still unavailable");
        } else {
            tracing::warn!(%error, "poold unavailable; retrying");
        }
        warned = true;
        while_watching(&mut source, tokio::time::sleep(pause)).await;
    }
}

/// Serves one connection until it is lost. The `source` outlives it.
async fn serve(options: &Options, source: &mut Option<Source>, role: &mut Role) -> Result<Infallible, Error> {
    let (link, setup) = while_watching(source, Link::open(options, *role)).await?;
    *role = Role::Watcher;
    let mark =
        process::identity::me().map(|me| process::tree::marker_scan::client_marker(me, &options.socket));
    let device = Device {
        own: setup.own,
        mark: mark.unwrap_or_default(),
        ..Device::new(setup.binary.as_path(), setup.socket.as_path())
    };
    tracing::info!(tmux = %device.socket.display(), own = device.own, "watching");
    let plan = plan(options.transport.or(setup.means), setup.sweep_ms, setup.heartbeat_ms);
    let kept = source.take().filter(|source| source.matches(&device, &plan));
    let source = source.insert(match kept {
        Some(kept) => kept,
        None => Source::new(device, plan).map_err(Error::Start)?,
    });
    source.suppose(setup.server);
    Stream::new(link, source, heartbeat(setup.heartbeat_ms)).run().await
}

/// Keeps watching while `what` is awaited, so that notifications are read and no exit is missed.
async fn while_watching<T>(source: &mut Option<Source>, what: impl Future<Output = T>) -> T {
    let watching = async {
        match source {
            Some(source) => loop {
                source.next().await;
                drop(source.take_changes());
            },
            None => std::future::pending::<Infallible>().await,
        }
    };
    tokio::select! {
        done = what => done,
        never = watching => match never {},
    }
}

fn plan(transport: Option<TmuxTransport>, sweep_ms: Option<u64>, heartbeat_ms: u64) -> Plan {
    // Short enough that a late frame still arrives within the heartbeat.
    let patience = heartbeat(heartbeat_ms) * 3 / 4;
    Plan { transport, sweep: sweep_ms.map(Duration::from_millis), patience }
}

fn heartbeat(ms: u64) -> Duration {
    Duration::from_millis(ms.max(SHORTEST_BEAT_MS))
}
