//! The context that all parts of the daemon share, from the options and the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{Paths, ProcId};
use store::{Loaded, Store};
use tmux::{Device, Driver};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::Instant;
use world::World;
use world::signals::{Signals, SystemSignals};
use world::transport::Listener;

use crate::config::file::Config;
use crate::engine::{Daemon, EngineHandle, LoadedConfig, SampleRequests};
use crate::host::blocking_pool::BlockingPool;
use crate::host::dir_watcher::DirWatcher;
use crate::host::error::DaemonError;
use crate::host::free_disk::FreeDisk;
use crate::host::timeline::TimelineFile;
use crate::host::{files, program_path};
use crate::run::options::Options;

/// Maximum number of sessions being created in tmux at the same time.
const LAUNCHES: usize = 4;

/// The surroundings of a daemon: the operating system, or a simulation of it.
pub struct Host {
    /// Files, programs and the outside world.
    pub site: Site,
    /// The place where the engine runs: a thread or a task.
    pub engine: EngineMode,
    /// The database, opened.
    pub database: (Store, Loaded),
    /// The socket at which clients connect.
    pub socket: Socket,
    /// Requests to end, or to read the configuration again.
    pub signals: Box<dyn Signals>,
}

/// Files, programs and the outside world of a daemon.
pub struct Site {
    /// The paths of the pool's files.
    pub paths: Paths,
    pub config: LoadedConfig,
    /// Clocks, randomness, tasks, processes.
    pub world: World,
    /// The tmux server.
    pub tmux: Arc<dyn Driver>,
    /// The same server as data, for command lines that others run.
    pub device: Device,
    /// The program `reaper`, the init of each pane.
    pub reaper_program: PathBuf,
    /// True to poll directories instead of watching them.
    pub polls_dirs: bool,
}

/// The place where the engine runs: a thread or a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineMode {
    /// On a thread of its own.
    Thread,
    /// As a task beside the others.
    Task,
}

/// The socket at which clients connect.
pub enum Socket {
    /// The socket that a service manager handed over, or else a new one at the path of the pool's socket.
    Path,
    /// This listener, which is open already.
    Given(Box<dyn Listener>),
}

/// The parts of the context that the start makes.
pub(super) struct Parts {
    pub(super) engine: EngineHandle,
    pub(super) holders: UnboundedSender<ProcId>,
    /// The start on the monotonic clock.
    pub(super) started: Instant,
    pub(super) database_was_missing: bool,
    pub(super) timeline: TimelineFile,
}

/// Returns the operating system as site.
pub(super) fn host(
    options: &Options,
    paths: Paths,
    config: LoadedConfig,
    database: (Store, Loaded),
) -> Result<Host, DaemonError> {
    let world = World::system();
    let mut device = device(options, &paths, &config.config)?;
    let process = own_process(&world)?;
    device.mark = process::tree::marker_scan::client_marker(process, &paths.socket);
    Ok(Host {
        site: Site {
            tmux: Arc::new(device.clone()),
            device,
            reaper_program: reaper_program()?,
            polls_dirs: false,
            paths,
            config,
            world,
        },
        engine: EngineMode::Thread,
        database,
        socket: Socket::Path,
        signals: Box::new(SystemSignals::default()),
    })
}

fn own_process(world: &World) -> Result<ProcId, DaemonError> {
    let me = world.processes.me();
    me.map_err(|e| DaemonError::Other(format!("cannot read the process table: {e}")))
}

/// Creates the context.
pub(super) fn daemon(site: Site, parts: Parts) -> Result<Daemon, DaemonError> {
    let process = own_process(&site.world)?;
    Ok(Daemon {
        engine: parts.engine,
        tmux: site.tmux,
        device: site.device,
        reaper_program: site.reaper_program,
        process,
        started_at: site.world.clock.now(),
        started: parts.started,
        database_was_missing: parts.database_was_missing,
        timeline: parts.timeline,
        startup_config: site.config.config.clone(),
        config: watch::channel(Arc::new(site.config)).0,
        holders_to_watch: parts.holders,
        sample_requests: SampleRequests::default(),
        snapshots: watch::channel(0).0,
        watcher_connection: watch::channel(None).0,
        listing: Mutex::new(()),
        compaction: Mutex::new(()),
        shutdown: Default::default(),
        cgroups: Default::default(),
        disk: FreeDisk::new(site.paths.state.clone()),
        removals: Arc::default(),
        machine: watch::channel(Default::default()).0,
        dir_watcher: if site.polls_dirs { DirWatcher::polling() } else { DirWatcher::default() },
        launch_permits: Semaphore::new(LAUNCHES),
        displayed: Default::default(),
        paths: site.paths,
        blocking: BlockingPool::new(site.world.clone()),
        world: site.world,
    })
}

/// Returns the tmux server of the pool. Writes the configuration that a server of its own is started with.
fn device(options: &Options, paths: &Paths, config: &Config) -> Result<Device, DaemonError> {
    let socket = config.tmux_socket(&paths.tmux_socket).map_err(|e| DaemonError::Config(e.to_string()))?;
    let own = socket == paths.tmux_socket;
    let mut device = Device::new(program_path::find(&config.tmux.binary), socket);
    device.own = own;
    device.start_server = options.start_server && own;
    if config.tmux.config.is_empty() {
        let text = tmux::server_config::text(config.tmux.history_limit);
        // An unchanged file is not written again, so that a start on a full disk succeeds.
        if std::fs::read(&paths.tmux_conf).ok().as_deref() != Some(text.as_bytes()) {
            files::write_atomic(&paths.tmux_conf, text.as_bytes())
                .map_err(|e| DaemonError::io(&paths.tmux_conf, e))?;
        }
        device.config = Some(paths.tmux_conf.clone());
    } else {
        device.config = Some(PathBuf::from(&config.tmux.config));
    }
    Ok(device)
}

/// Finds the program `reaper`, which is the init of every pane: beside this program, or in `PATH`.
fn reaper_program() -> Result<PathBuf, DaemonError> {
    let beside = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let dir = std::env::var_os("POOL_BIN_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from).or(beside);
    let reaper = dir.map(|dir| dir.join("reaper")).filter(|file| file.is_file());
    let reaper = reaper.unwrap_or_else(|| program_path::find("reaper"));
    if reaper.is_absolute() {
        return Ok(reaper);
    }
    Err(DaemonError::Other(
        "the program `reaper` is not beside poold, nor in PATH; set POOL_BIN_DIR".to_owned(),
    ))
}
