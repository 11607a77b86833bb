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
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nix::sys::stat::{Mode, umask};
use pool::Volatile;
use pool::clock::Reading;
use pool::lock::LockTable;
use protocol::paths::prepare_dir;
use protocol::{ProcId, Refusal};
use tokio::sync::{mpsc as mpsc_async, oneshot, watch};
use tokio::time::{Instant, timeout};
use world::World;
use world::signals::Signals;

use crate::decide::{lock, worker};
use crate::engine::work_queue::WorkQueue;
use crate::engine::{Daemon, Engine, EngineEnd, EngineHandle, LoadedConfig, Publisher, Turn, Work};
use crate::host::error::DaemonError;
use crate::host::{archive, configured};
use crate::loops::{
    activity, adopt, deliver, lease_deadlines, limits, queue_health, reap, recover, retain, schedule,
    unattended_size, workers,
};
use crate::net::accept;
use crate::net::listen::{self, SocketFile};
use crate::sense::{hook_spool, past_output, process_exits};

pub use crate::run::open::open_database;
pub use crate::run::options::{Options, check_config, print_config};
pub use crate::run::setup::{EngineMode, Host, Site, Socket};

/// Open files that the daemon asks for, for itself and for a tmux server that it starts: a few for each pane.
const OPEN_FILES: u64 = 65_536;

/// Time that reading spooled hook reports may delay the start.
const SPOOL_LIMIT: Duration = Duration::from_secs(5);

/// Time that reading the times of logs may delay the start.
const LOGS_LIMIT: Duration = Duration::from_secs(1);

/// Runs the daemon until a signal ends it.
///
/// # Errors
/// The reason why it did not start, or had to end.
pub fn run(options: Options) -> Result<(), DaemonError> {
    let users_umask = umask(Mode::from_bits_truncate(0o077));
    let limit = process::runtime::rlimit::raise_open_files(OPEN_FILES);
    tracing::debug!(?limit, "open files");
    let paths = options::paths_with_config(&options)?;
    for dir in [&paths.state, &paths.run, &paths.sessions] {
        prepare_dir(dir)?;
    }
    if let Some(dir) = paths.socket.parent() {
        prepare_dir(dir)?;
    }
    let lock = state_lock::lock(&paths.lock)?;
    let config = LoadedConfig::read(&paths, bits(users_umask.bits()))
        .map_err(|error| DaemonError::Config(error.to_string()))?;
    configured::note(&paths.state, &paths.config, config.says_anything());
    let database = open::open_database(&paths)?;
    let runtime = world::tasks::runtime().map_err(|e| DaemonError::Other(format!("cannot start: {e}")))?;
    if let Err(error) = archive::sweep(&paths.archives()) {
        tracing::warn!(%error, "the remains of interrupted archives were not removed");
    }
    let result = runtime.block_on(async { serve(setup::host(&options, paths, config, database)?).await });
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
///
/// # Errors
/// The reason why it did not start, or had to end.
pub async fn serve(host: Host) -> Result<(), DaemonError> {
    let Host { site, engine: mode, database, socket, signals } = host;
    let open::Begun { store, pool, last, database_was_missing, timeline } =
        open::begin(&site.paths, &site.world, database)?;
    // The reading on record: the first turn finds a step of the clock since then.
    let reading = Reading { wall: pool.clock().read_at, awake_ms: pool.clock().awake_ms };
    let (clock, started) = (Arc::clone(&site.world.clock), Instant::now());
    let publish = Publisher::new();
    // Subscribed before the engine runs, so that no failure is missed.
    let mut failed = publish.failed.subscribe();
    let mut volatile = Volatile::new(LockTable::new(pool.epoch()), clock.now());
    pool::agent::keep_bells_answered(&pool, &mut volatile, (last, clock.now()));
    volatile.prompts.keep_attended(&pool);
    load::being_parked(&pool).into_iter().for_each(|tag| volatile.reaping.guard(tag));
    let retention = site.config.journal_retention();
    let engine = Engine::new((pool, store, volatile), publish.clone(), retention, (clock, reading, started));
    let (queue, engine_end) = start_engine(engine, mode, &site.world)?;
    let handle = EngineHandle::new(queue, publish);
    let (holders, held) = mpsc_async::unbounded_channel();
    let parts = setup::Parts { engine: handle, holders, started, database_was_missing, timeline };
    let daemon = Arc::new(setup::daemon(site, parts)?);
    daemon.world.spawn("holders", process_exits::watch_holders(Arc::clone(&daemon), held));
    let mut created = None;
    let ended = tokio::select! {
        biased;
        why = store_failed(&mut failed) => Err(why),
        ended = recover_and_serve(&daemon, (socket, &mut created), signals) => ended,
    };
    service::stopping();
    let deadline = shutdown::deadline();
    if let Some(socket) = created {
        shutdown::within_file_limit(&daemon, move || socket.remove()).await;
    }
    if ended.is_ok() {
        shutdown::stop(&daemon, engine_end, deadline).await;
    }
    // Also the result of the last turn.
    match failed.borrow().clone() {
        Some(why) => Err(DaemonError::Storage(why)),
        None => ended,
    }
}

/// Starts the engine, on a thread of its own or as a task. Returns its queue, and its end.
fn start_engine(
    engine: Engine,
    mode: EngineMode,
    world: &World,
) -> Result<(Arc<dyn WorkQueue>, EngineEnd), DaemonError> {
    let (end, ended) = oneshot::channel();
    match mode {
        EngineMode::Thread => {
            let (sender, queue) = mpsc::channel::<Work>();
            std::thread::Builder::new()
                .name("engine".to_owned())
                .spawn(move || {
                    // The receiver may be gone.
                    end.send(engine.run(&queue)).ok();
                })
                .map_err(|e| DaemonError::Other(format!("cannot start the engine: {e}")))?;
            Ok((Arc::new(sender), ended))
        }
        EngineMode::Task => {
            let (sender, queue) = mpsc_async::unbounded_channel();
            world.spawn("engine", async move {
                end.send(engine.run_as_task(queue).await).ok();
            });
            Ok((Arc::new(sender), ended))
        }
    }
}

/// Returns once the store has failed, even before the call.
async fn store_failed(failed: &mut watch::Receiver<Option<String>>) -> DaemonError {
    let why = failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    DaemonError::Storage(why.unwrap_or_else(|| "the engine ended".to_owned()))
}

/// Recovers claims, spooled hook reports and times of output from before the start, then serves connections until a
/// signal ends the daemon. Sets `created` to the file of the socket that it creates.
async fn recover_and_serve(
    daemon: &Arc<Daemon>,
    (socket, created): (Socket, &mut Option<SocketFile>),
    mut signals: Box<dyn Signals>,
) -> Result<(), DaemonError> {
    daemon.refresh_disk(0).await;
    resume_claims(daemon).await?;
    // Reports spooled while no daemon ran come before new ones.
    match timeout(SPOOL_LIMIT, hook_spool::read(daemon)).await {
        Ok(true) => {}
        Ok(false) => {
            return Err(DaemonError::Storage("it failed while spooled hook reports were read".to_owned()));
        }
        Err(_) => tracing::warn!("reading spooled hook reports takes long; the rest is read later"),
    }
    // If this takes longer than the limit, it continues in the background.
    let noted = daemon.world.detach("past_output", past_output::note(Arc::clone(daemon)));
    if timeout(LOGS_LIMIT, noted).await.is_err() {
        tracing::warn!("the logs of sessions do not answer; their last output is not known yet");
    }
    let listener = match socket {
        Socket::Path => {
            let (listener, file) = listen::listen(&daemon.paths.socket, &daemon.blocking)?;
            *created = file;
            listener
        }
        Socket::Given(listener) => listener,
    };
    crate::crash::point("listening");
    daemon.world.spawn("accept", accept::accept(Arc::clone(daemon), listener));
    service::ready();
    tracing::info!(socket = %daemon.paths.socket.display(), "ready");
    daemon.world.spawn("watchdog", service::watchdog(Arc::clone(daemon)));
    daemon.world.spawn("recover", recover::run(Arc::clone(daemon)));
    daemon.world.spawn("deliver", deliver::run(Arc::clone(daemon)));
    daemon.world.spawn("hook_spool", hook_spool::run(Arc::clone(daemon)));
    daemon.world.spawn("activity", activity::run(Arc::clone(daemon)));
    daemon.world.spawn("adopt", adopt::run(Arc::clone(daemon)));
    daemon.world.spawn("retain", retain::run(Arc::clone(daemon)));
    daemon.world.spawn("disk_space", retain::keep_disk_space(Arc::clone(daemon)));
    daemon.world.spawn("leases", lease_deadlines::run(Arc::clone(daemon)));
    daemon.world.spawn("schedule", schedule::run(Arc::clone(daemon)));
    daemon.world.spawn("workers", workers::run(Arc::clone(daemon)));
    daemon.world.spawn("limits", limits::run(Arc::clone(daemon)));
    daemon.world.spawn("queue_health", queue_health::run(Arc::clone(daemon)));
    daemon.world.spawn("sizes", unattended_size::run(Arc::clone(daemon)));
    daemon.world.spawn("reap", reap::run(Arc::clone(daemon)));
    signals.listen().map_err(|e| DaemonError::Other(format!("cannot listen for signals: {e}")))?;
    tokio::select! {
        biased;
        () = shutdown::wait_for_signal(daemon, &mut *signals) => Ok(()),
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
    let dead = process_exits::sample(daemon, daemon.engine.turn(holders).await.map_err(failed)?).await;
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
