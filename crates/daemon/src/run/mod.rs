//! Start and stop.

pub(crate) mod load;
pub(crate) mod maintenance;
pub(crate) mod open;
pub(crate) mod service;

use crate::decide::{lock, worker};
use crate::engine::publish::Publish;
use crate::engine::thread::Engine;
use crate::engine::turn::{Job, Retention, Turn};
use crate::host::disk_room::DiskRoom;
use crate::loops::adopt;
use crate::loops::reap;
use crate::sense::exits;
use pool::Volatile;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pool::Pool;
use pool::clock::Reading;
use pool::locks::LockTable;
use protocol::paths::{Env, Paths, prepare_dir};
use protocol::{ProcId, Refusal, Seq};
use store::Store;
use tmux::Device;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc as mpsc_async, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::config::file::Config;

use crate::engine::context::{Daemon, Loaded};
use crate::engine::handle::Handle;
use crate::host::fatal::Fatal;
use crate::host::{archive, clock, files, programs, timeline};
use crate::loops::{activity, deliver, leases, limits, recover, retain, schedule};
use crate::net::listen::Socket;
use crate::net::{connection, listen};
use crate::sense::hook_spool;
use crate::verb::read;

/// Open files that the daemon asks for, and with it a tmux server that it starts: some for each pane.
const OPEN_FILES: u64 = 65_536;

/// Sessions that are created in tmux at a time.
const LAUNCHES: usize = 4;

/// How long what hooks left may hold up the start.
const SPOOL_LIMIT: Duration = Duration::from_secs(5);

/// How long what is under way may take at the end.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// How the daemon is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The variables that decide on paths, with what the command line says put in.
    pub env: Env,
    /// The configuration file, where it is not the usual one.
    pub config: Option<PathBuf>,
    /// Whether it may start a tmux server. Not under a service manager, where the server must not
    /// live in this service's control group.
    pub start_server: bool,
}

/// Runs until it is told to end.
///
/// # Errors
/// Why it did not start, or had to end.
pub fn run(options: Options) -> Result<(), Fatal> {
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let limit = process::runtime::rlimit::raise_open_files(OPEN_FILES);
    tracing::debug!(?limit, "open files");
    let paths = paths(&options)?;
    for dir in [&paths.state, &paths.run, &paths.sessions] {
        prepare_dir(dir)?;
    }
    if let Some(dir) = paths.socket.parent() {
        prepare_dir(dir)?;
    }
    let lock = listen::lock(&paths.lock)?;
    let loaded = load_config(&paths, bits(umask.bits()))?;
    let (store, pool) = open::open_store(&paths)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Fatal::Other(format!("cannot start: {e}")))?;
    if let Err(error) = archive::sweep(&paths.archives()) {
        tracing::warn!(%error, "what is left of cut-off archives stays");
    }
    let result = runtime.block_on(serve(&options, paths, loaded, (store, pool)));
    // What still hangs does not keep the process.
    runtime.shutdown_background();
    drop(lock);
    result
}

/// Of another width on another system.
fn bits(mode: impl Into<u32>) -> u32 {
    mode.into()
}

pub(crate) fn paths(options: &Options) -> Result<Paths, Fatal> {
    let mut paths = Paths::new(&options.env)?;
    if let Some(config) = &options.config {
        paths.config.clone_from(config);
    }
    Ok(paths)
}

fn load_config(paths: &Paths, umask: u32) -> Result<Loaded, Fatal> {
    let wrong = |e: crate::config::values::ConfigError| Fatal::Config(e.to_string());
    let config = Config::read(&paths.config).map_err(wrong)?;
    let settings = config.settings(&paths.sessions, umask).map_err(wrong)?;
    let min_free_disk = config.min_free_disk().map_err(wrong)?;
    let life = config.life().map_err(wrong)?;
    Ok(Loaded { config, settings, min_free_disk, life })
}

async fn serve(
    options: &Options,
    paths: Paths,
    loaded: Loaded,
    (store, pool): (Store, Pool),
) -> Result<(), Fatal> {
    let (jobs, inbox) = mpsc::channel::<Job>();
    // From the readings on record: a step since then is seen by the first turn.
    let reading = Reading { wall: pool.clock().read_at, awake_ms: pool.clock().awake_ms };
    let started = std::time::Instant::now();
    let publish = Publish::new();
    // From before the engine runs: whatever fails is seen.
    let mut failed = publish.failed.subscribe();
    let mut volatile = Volatile::new(LockTable::new(pool.epoch()), clock::now());
    load::half_parked(&pool).into_iter().for_each(|tag| volatile.reaping.guard(tag));
    let retention = Retention {
        events: loaded.config.events.keep,
        age: loaded.config.keep_events_for().unwrap_or(Duration::MAX),
    };
    let engine = Engine::new((pool, store, volatile), publish.clone(), retention, (reading, started));
    let thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || engine.run(&inbox))
        .map_err(|e| Fatal::Other(format!("cannot start the engine: {e}")))?;
    let handle = Handle::new(jobs, publish);
    let (holders, held) = mpsc_async::unbounded_channel();
    let daemon = Arc::new(daemon(options, paths, loaded, (handle, holders, started))?);
    tokio::spawn(exits::watch_holders(Arc::clone(&daemon), held));
    let mut own = None;
    let ended = tokio::select! {
        biased;
        why = store_failed(&mut failed) => Err(why),
        ended = work(&daemon, &mut own) => ended,
    };
    service::stopping();
    Socket::remove(own);
    if ended.is_ok() {
        stop(&daemon, thread).await;
    }
    // Also what the last turn came to.
    match failed.borrow().clone() {
        Some(why) => Err(Fatal::Storage(why)),
        None => ended,
    }
}

/// Once the store failed, whenever that was since the engine began.
async fn store_failed(failed: &mut watch::Receiver<Option<String>>) -> Fatal {
    let why = failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
    Fatal::Storage(why.unwrap_or_else(|| "the engine ended".to_owned()))
}

/// Takes up what there was, then listens, until it is told to end. `own` becomes the socket that it made.
async fn work(daemon: &Arc<Daemon>, own: &mut Option<listen::Own>) -> Result<(), Fatal> {
    resume_claims(daemon).await?;
    // What was said while nobody listened comes before what is said now.
    match timeout(SPOOL_LIMIT, hook_spool::read(daemon)).await {
        Ok(true) => {}
        Ok(false) => return Err(Fatal::Storage("it failed while what hooks left was read".to_owned())),
        Err(_) => tracing::warn!("what hooks left takes long to read; the rest is read later"),
    }
    let (listener, made) = listen::socket(&daemon.paths.socket)?.into_parts();
    *own = made;
    tokio::spawn(connection::accept(Arc::clone(daemon), listener));
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
        ended = until_told(daemon) => ended,
        why = listen::removed(&daemon.paths.lock) => Err(why),
    }
}

/// Claims of before, each with its whole lease before it, and their holders watched.
async fn resume_claims(daemon: &Arc<Daemon>) -> Result<(), Fatal> {
    let failed = |refusal: Refusal| Fatal::Storage(refusal.to_string());
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
        // Its other end is in a task of the daemon's own.
        daemon.holders.send(process).ok();
    }
    Ok(())
}

fn daemon(
    options: &Options,
    paths: Paths,
    loaded: Loaded,
    (engine, holders, started): (Handle, mpsc_async::UnboundedSender<ProcId>, std::time::Instant),
) -> Result<Daemon, Fatal> {
    let mut device = device(options, &paths, &loaded.config)?;
    let process =
        process::identity::me().map_err(|e| Fatal::Other(format!("cannot read the process table: {e}")))?;
    device.mark = process::tree::marker_scan::client_marker(process, &paths.socket);
    Ok(Daemon {
        engine,
        tmux: Arc::new(device.clone()),
        device,
        init: init_binary()?,
        process,
        started_at: clock::now(),
        started,
        first_config: loaded.config.clone(),
        config: watch::channel(Arc::new(loaded)).0,
        holders,
        snapshots: watch::channel(0).0,
        watched: watch::channel(None).0,
        looking: tokio::sync::Mutex::new(()),
        cgroups: Default::default(),
        disk: DiskRoom::new(paths.state.clone()),
        capacity: watch::channel(Default::default()).0,
        ears: Default::default(),
        launching: tokio::sync::Semaphore::new(LAUNCHES),
        paths,
    })
}

/// The tmux server of this pool, and the configuration that it is started with.
fn device(options: &Options, paths: &Paths, config: &Config) -> Result<Device, Fatal> {
    let socket = config.tmux_socket(&paths.tmux_socket).map_err(|e| Fatal::Config(e.to_string()))?;
    let own = socket == paths.tmux_socket;
    let mut device = Device::new(programs::in_path(&config.tmux.binary), socket);
    device.own = own;
    device.start_server = options.start_server && own;
    if config.tmux.config.is_empty() {
        let text = tmux::server_config::text(config.tmux.history_limit);
        // A start on a full disk has the one of before.
        if std::fs::read(&paths.tmux_conf).ok().as_deref() != Some(text.as_bytes()) {
            files::replace(&paths.tmux_conf, text.as_bytes()).map_err(|e| Fatal::io(&paths.tmux_conf, e))?;
        }
        device.config = Some(paths.tmux_conf.clone());
    } else {
        device.config = Some(PathBuf::from(&config.tmux.config));
    }
    Ok(device)
}

/// The `reaper` beside this program, which is the init of every pane.
fn init_binary() -> Result<PathBuf, Fatal> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let dir = std::env::var_os("POOL_BIN_DIR").map(PathBuf::from).or(beside);
    let reaper = dir.map(|dir| dir.join("reaper")).filter(|file| file.is_file());
    let reaper = reaper.unwrap_or_else(|| programs::in_path("reaper"));
    if reaper.is_absolute() {
        return Ok(reaper);
    }
    Err(Fatal::Other("the program `reaper` is not beside poold, nor in PATH; set POOL_BIN_DIR".to_owned()))
}

/// Until a signal asks for the end.
async fn until_told(daemon: &Arc<Daemon>) -> Result<(), Fatal> {
    let signals = |e: std::io::Error| Fatal::Other(format!("cannot listen for signals: {e}"));
    let mut term = signal(SignalKind::terminate()).map_err(signals)?;
    let mut int = signal(SignalKind::interrupt()).map_err(signals)?;
    let mut hup = signal(SignalKind::hangup()).map_err(signals)?;
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
            _ = hup.recv() => match read::reload(daemon) {
                Ok(said) => tracing::info!(?said, "configuration read again"),
                Err(refusal) => tracing::error!(%refusal, "configuration not read again"),
            },
        }
    }
}

/// What is being typed is finished, then the engine finishes what waits and closes the store.
async fn stop(daemon: &Arc<Daemon>, thread: std::thread::JoinHandle<Option<Seq>>) {
    daemon.engine.post(|turn| turn.volatile.stop());
    let typed = |turn: &mut Turn<'_>| (!turn.volatile.prompts.is_pasting()).then_some(());
    if daemon.engine.wait_for(Some(STOP_LIMIT), typed).await.is_err() {
        tracing::warn!("ended while a message was typed");
    }
    end_empty_server(daemon).await;
    daemon.engine.post(|turn| turn.stop_engine());
    let deadline = Instant::now() + STOP_LIMIT;
    while !thread.is_finished() && Instant::now() < deadline {
        sleep(Duration::from_millis(5)).await;
    }
    if thread.is_finished()
        && let Ok(Some(last)) = thread.join()
    {
        timeline::ended(&daemon.paths, last.0);
    }
}

/// Leaves no tmux server behind that has nothing to keep. It is started again with the next session.
async fn end_empty_server(daemon: &Arc<Daemon>) {
    let has_none =
        |turn: &mut Turn<'_>| !turn.pool().sessions().any(|session| session.lifecycle.holds_slot());
    let has_none = timeout(STOP_LIMIT, daemon.engine.turn(has_none)).await;
    if !daemon.device.start_server || !matches!(has_none, Ok(Ok(true))) {
        return;
    }
    if let Err(error) = daemon.device.end_if_empty().await
        && !matches!(error, tmux::TmuxError::NoServer)
    {
        tracing::warn!(%error, "the empty tmux server is left");
    }
}

/// Checks the configuration file. The answer is for people.
///
/// # Errors
/// What is wrong with it.
pub fn check_config(options: &Options) -> Result<String, String> {
    let path = paths(options).map_err(|e| e.to_string())?.config;
    let there = path.exists();
    Config::read(&path).map_err(|e| e.to_string())?;
    let what = if there { "is in order" } else { "is not there: every key has its default" };
    Ok(format!("{} {what}", path.display()))
}

/// The configuration that a daemon started now would have, as TOML.
///
/// # Errors
/// What is wrong with it.
pub fn print_config(options: &Options) -> Result<String, String> {
    let paths = paths(options).map_err(|e| e.to_string())?;
    Config::read(&paths.config).and_then(|config| config.to_toml()).map_err(|e| e.to_string())
}
