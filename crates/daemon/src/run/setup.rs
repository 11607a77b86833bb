//! The context that all parts of the daemon share, from the options and the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use protocol::ProcId;
use protocol::paths::Paths;
use tmux::Device;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, Semaphore, watch};

use crate::config::file::Config;
use crate::engine::daemon::{Daemon, LoadedConfig};
use crate::engine::engine_handle::EngineHandle;
use crate::host::error::DaemonError;
use crate::host::free_disk::FreeDisk;
use crate::host::{clock, files, program_path};
use crate::run::options::Options;

/// Maximum number of sessions being created in tmux at the same time.
const LAUNCHES: usize = 4;

/// Creates the context.
pub(super) fn daemon(
    options: &Options,
    paths: Paths,
    loaded: LoadedConfig,
    (engine, holders, started): (EngineHandle, UnboundedSender<ProcId>, Instant),
) -> Result<Daemon, DaemonError> {
    let mut device = device(options, &paths, &loaded.config)?;
    let process = process::identity::me()
        .map_err(|e| DaemonError::Other(format!("cannot read the process table: {e}")))?;
    device.mark = process::tree::marker_scan::client_marker(process, &paths.socket);
    Ok(Daemon {
        engine,
        tmux: Arc::new(device.clone()),
        device,
        reaper_program: reaper_program()?,
        process,
        started_at: clock::now(),
        started,
        startup_config: loaded.config.clone(),
        config: watch::channel(Arc::new(loaded)).0,
        holders_to_watch: holders,
        snapshots: watch::channel(0).0,
        watcher_connection: watch::channel(None).0,
        listing: Mutex::new(()),
        cgroups: Default::default(),
        disk: FreeDisk::new(paths.state.clone()),
        machine: watch::channel(Default::default()).0,
        dir_watcher: Default::default(),
        launch_permits: Semaphore::new(LAUNCHES),
        paths,
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
    let dir = std::env::var_os("POOL_BIN_DIR").map(PathBuf::from).or(beside);
    let reaper = dir.map(|dir| dir.join("reaper")).filter(|file| file.is_file());
    let reaper = reaper.unwrap_or_else(|| program_path::find("reaper"));
    if reaper.is_absolute() {
        return Ok(reaper);
    }
    Err(DaemonError::Other(
        "the program `reaper` is not beside poold, nor in PATH; set POOL_BIN_DIR".to_owned(),
    ))
}
