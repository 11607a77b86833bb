//! Start and stop of the daemon, in order: directories, the [`state_lock`], the configuration, the database
//! ([`open`], [`load`]), the engine, the context ([`setup`]), claims of before, the socket, the loops; then
//! [`shutdown`]. [`service`] talks to the service manager, [`maintenance`] works on the database without a
//! daemon.

mod load;
pub(crate) mod maintenance;
mod open;
mod options;
mod service;
mod setup;
mod shutdown;
mod state_lock;

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nix::sys::stat::{Mode, umask};
use pool::clock::Reading;
use pool::lock::LockTable;
use pool::{Pool, Volatile};
use protocol::paths::{Paths, prepare_dir};
use protocol::{ProcId, Refusal};
use store::Store;
use tokio::sync::{mpsc as mpsc_async, watch};
use tokio::time::timeout;

use crate::decide::{lock, worker};
use crate::engine::Turn;
use crate::engine::daemon::{Daemon, LoadedConfig};
use crate::engine::engine_handle::EngineHandle;
use crate::engine::publish::Publisher;
use crate::engine::thread::Engine;
use crate::engine::turn::Work;
use crate::host::error::DaemonError;
use crate::host::{archive, clock};
use crate::loops::{activity, adopt, deliver, leases, limits, reap, recover, retain, schedule};
use crate::net::accept;
use crate::net::listen::{self, SocketFile};
use crate::sense::{exits, hook_spool};

pub use crate::run::options::{Options, check_config, print_config};

/// Open files that the daemon asks for, for itself and for a tmux server that it starts: a few for each pane.
const OPEN_FILES: u64 = 65_536;

/// Time that reading spooled hook reports may delay the start.
const SPOOL_LIMIT: Duration = Duration::from_secs(5);

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// The reason why it did not start, or had to end.
pub fn run(options: Options) -> Result<(), DaemonError> {
    let users_umask = umask(Mode::from_bits_truncate(0o077));
    let limit = process::runtime::rlimit::raise_open_files(OPEN_FILES);
    tracing::debug!(?limit, "open files");
    let paths = options::paths(&options)?;
    for dir in [&paths.state, &paths.run, &paths.sessions] {
        prepare_dir(dir)?;
    }
    if let Some(dir) = paths.socket.parent() {
        prepare_dir(dir)?;
    }
    let lock = state_lock::lock(&paths.lock)?;
    let loaded = LoadedConfig::read(&paths, bits(users_umask.bits()))
        .map_err(|error| DaemonError::Config(error.to_string()))?;
    let (store, pool) = open::open_store(&paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| DaemonError::Other(format!("cannot start: {e}")))?;
    if let Err(error) = archive::sweep(&paths.archives()) {
        tracing::warn!(%error, "the remains of interrupted archives were not removed");
    }
    let result = runtime.block_on(serve(&options, paths, loaded, (store, pool)));
    // Threads that hang do not keep the process.
    runtime.shutdown_background();
    drop(lock);
    result
}

/// Returns the bits of a mode, whose width differs between systems.
fn bits(mode: impl Into<u32>) -> u32 {
    mode.into()
}

/// Runs the engine, and everything around it.
async fn serve(
    options: &Options,
    paths: Paths,
    loaded: LoadedConfig,
    (store, pool): (Store, Pool),
) -> Result<(), DaemonError> {
    let (jobs, inbox) = mpsc::channel::<Work>();
    // The reading on record: the first turn finds a step of the clock since then.
    let reading = Reading { wall: pool.clock().read_at, awake_ms: pool.clock().awake_ms };
    let started = Instant::now();
    let publish = Publisher::new();
    // Subscribed before the engine runs, so that no failure is missed.
    let mut failed = publish.failed.subscribe();
    let mut volatile = Volatile::new(LockTable::new(pool.epoch()), clock::now());
    load::being_parked(&pool).into_iter().for_each(|tag| volatile.reaping.guard(tag));
    let retention = loaded.journal_retention();
    let engine = Engine::new((pool, store, volatile), publish.clone(), retention, (reading, started));
    let thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || engine.run(&inbox))
        .map_err(|e| DaemonError::Other(format!("cannot start the engine: {e}")))?;
    let handle = EngineHandle::new(jobs, publish);
    let (holders, held) = mpsc_async::unbounded_channel();
    let daemon = Arc::new(setup::daemon(options, paths, loaded, (handle, holders, started))?);
    tokio::spawn(exits::watch_holders(Arc::clone(&daemon), held));
    let mut socket = None;
    let ended = tokio::select! {
        biased;
        why = store_failed(&mut failed) => Err(why),
        ended = work(&daemon, &mut socket) => ended,
    };
    service::stopping();
    if let Some(socket) = socket {
        socket.remove();
    }
    if ended.is_ok() {
        shutdown::stop(&daemon, thread).await;
    }
    // Also the result of the last turn.
    match failed.borrow().clone() {
        Some(why) => Err(DaemonError::Storage(why)),
        None => ended,
    }
}

/// Returns once the store has failed, even before the call.
async fn store_failed(failed: &mut watch::Receiver<Option<String>>) -> DaemonError {
    let why = failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    DaemonError::Storage(why.unwrap_or_else(|| "the engine ended".to_owned()))
}

/// Recovers the claims and the hook reports of before, then serves connections until a signal ends the
/// daemon. Sets `socket` to the socket's file that it creates.
async fn work(daemon: &Arc<Daemon>, socket: &mut Option<SocketFile>) -> Result<(), DaemonError> {
    daemon.disk.refresh(0).await;
    resume_claims(daemon).await?;
    // Reports spooled while no daemon ran come before new ones.
    match timeout(SPOOL_LIMIT, hook_spool::read(daemon)).await {
        Ok(true) => {}
        Ok(false) => {
            return Err(DaemonError::Storage("it failed while spooled hook reports were read".to_owned()));
        }
        Err(_) => tracing::warn!("reading spooled hook reports takes long; the rest is read later"),
    }
    let (listener, created) = listen::listen(&daemon.paths.socket)?;
    *socket = created;
    tokio::spawn(accept::accept(Arc::clone(daemon), listener));
    service::ready();
    tracing::info!(socket = %daemon.paths.socket.display(), "ready");
    tokio::spawn(service::watchdog(Arc::clone(daemon)));
    tokio::spawn(recover::run(Arc::clone(daemon)));
    tokio::spawn(deliver::run(Arc::clone(daemon)));
    tokio::spawn(hook_spool::run(Arc::clone(daemon)));
    tokio::spawn(activity::run(Arc::clone(daemon)));
    tokio::spawn(adopt::run(Arc::clone(daemon)));
    tokio::spawn(retain::run(Arc::clone(daemon)));
    tokio::spawn(leases::run(Arc::clone(daemon)));
    tokio::spawn(schedule::run(Arc::clone(daemon)));
    tokio::spawn(limits::run(Arc::clone(daemon)));
    tokio::spawn(reap::run(Arc::clone(daemon)));
    tokio::select! {
        ended = shutdown::wait_for_signal(daemon) => ended,
        why = state_lock::removed(&daemon.paths.lock) => Err(why),
    }
}

/// Recovers claims and users' locks, each with its whole lease again, and watches their holders.
async fn resume_claims(daemon: &Arc<Daemon>) -> Result<(), DaemonError> {
    let failed = |refusal: Refusal| DaemonError::Storage(refusal.to_string());
    let holders = |turn: &mut Turn<'_>| {
        let locks = turn.pool().sessions().filter_map(|session| session.lock.as_ref()?.holder);
        let claims = turn.pool().held_messages().filter_map(|open| open.holder?.process);
        locks.chain(claims).collect::<BTreeSet<ProcId>>()
    };
    let dead = exits::sample(daemon.engine.turn(holders).await.map_err(failed)?).await;
    let context = Arc::clone(daemon);
    let recover = move |turn: &mut Turn<'_>| {
        turn.volatile.reaping.note_exited(dead.iter().copied());
        let mut holders = worker::recover(turn, &context.settings(), &dead);
        holders.extend(lock::recover(turn, &dead, || context.engine.ticket()));
        holders
    };
    let holders = daemon.engine.turn(recover).await;
    for process in holders.map_err(failed)? {
        // The receiver lives as long as the daemon.
        daemon.holders_to_watch.send(process).ok();
    }
    Ok(())
}
