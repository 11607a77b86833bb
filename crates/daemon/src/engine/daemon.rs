//! The state that all parts of the daemon share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pool::Settings;
use protocol::{Incarnation, OsBytes, Paths, ProcId, Refusal, SessionId, Size, Timestamp};
use tmux::{Device, Driver, LogOptions, PaneRef};
use tokio::sync::{Mutex, Semaphore, mpsc, watch};
use tokio::time::Instant;
use world::World;
use world::processes::Processes;

use crate::config::{Config, ConfigError, DaemonSettings};
use crate::engine::cgroups::Cgroups;
use crate::engine::engine_handle::EngineHandle;
use crate::engine::sample_requests::SampleRequests;
use crate::engine::turn::JournalRetention;
use crate::host::blocking_pool::BlockingPool;
use crate::host::dir_watcher::DirWatcher;
use crate::host::display_cache::DisplayCache;
use crate::host::free_disk::FreeDisk;
use crate::host::machine_sample::MachineSample;
use crate::host::removals::Removals;
use crate::host::shutdown_progress::ShutdownProgress;
use crate::host::timeline::TimelineFile;

/// The state that all parts of the daemon share.
pub(crate) struct Daemon {
    pub(crate) paths: Paths,
    pub(crate) engine: EngineHandle,
    /// Clocks, randomness, tasks, processes.
    pub(crate) world: World,
    /// Runs blocking work.
    pub(crate) blocking: BlockingPool,
    pub(crate) tmux: Arc<dyn Driver>,
    /// The same server as data, for command lines that others run.
    pub(crate) device: Device,
    /// The program `reaper`, which runs as init and log writer of each pane.
    pub(crate) reaper_program: PathBuf,
    /// The daemon's own process.
    pub(crate) process: ProcId,
    pub(crate) started_at: Timestamp,
    /// The start on the monotonic clock.
    pub(crate) started: Instant,
    /// True if the database was missing at the start, and a new one was begun.
    pub(crate) database_was_missing: bool,
    /// The timeline file, as the start has written it.
    pub(crate) timeline: TimelineFile,
    /// The configuration in force.
    pub(crate) config: watch::Sender<Arc<LoadedConfig>>,
    /// The configuration at the start. Its settings that need a restart are still in force.
    pub(crate) startup_config: Config,
    /// Receives processes that hold messages or locks, to be watched for their end.
    pub(crate) holders_to_watch: mpsc::UnboundedSender<ProcId>,
    /// Sessions whose activity is to be sampled at once.
    pub(crate) sample_requests: SampleRequests,
    /// The number of the snapshot that the watcher is asked for.
    pub(crate) snapshots: watch::Sender<u64>,
    /// The connection of the current watcher.
    pub(crate) watcher_connection: watch::Sender<Option<u64>>,
    /// Held while the daemon lists tmux itself, without a watcher.
    pub(crate) listing: Mutex<()>,
    /// Held while the database is compacted.
    pub(crate) compaction: Mutex<()>,
    /// Progress of the daemon's end.
    pub(crate) shutdown: ShutdownProgress,
    pub(crate) cgroups: Cgroups,
    /// Free space on the file system of the database.
    pub(crate) disk: FreeDisk,
    /// Directories that are being removed.
    pub(crate) removals: Arc<Removals>,
    /// The last sample of the machine's resources.
    pub(crate) machine: watch::Sender<MachineSample>,
    /// Watches the directories of sessions' logs.
    pub(crate) dir_watcher: DirWatcher,
    /// Permits for launches in tmux at the same time.
    pub(crate) launch_permits: Semaphore,
    /// The last readings of files that are shown.
    pub(crate) displayed: Arc<DisplayCache>,
}

/// The configuration file, and the settings that it gives.
#[derive(Clone)]
pub struct LoadedConfig {
    pub(crate) config: Config,
    /// The settings of the core.
    pub(crate) settings: Arc<Settings>,
    /// The settings of the daemon itself.
    pub(crate) daemon: DaemonSettings,
}

impl LoadedConfig {
    /// Reads and checks the configuration file.
    pub fn read(paths: &Paths, umask: u32) -> Result<Self, ConfigError> {
        let config = Config::read(&paths.config)?;
        let (settings, daemon) = (config.settings(&paths.sessions, umask)?, config.daemon_settings()?);
        Ok(Self { config, settings: Arc::new(settings), daemon })
    }

    /// True if the file says anything but the defaults.
    pub(crate) fn says_anything(&self) -> bool {
        self.config != Config::default()
    }

    /// Returns the bounds of the journal.
    pub(crate) fn journal_retention(&self) -> JournalRetention {
        JournalRetention { events: self.daemon.keep_events, age: self.daemon.keep_events_for }
    }
}

/// Name and version of this build, for peers and people.
pub(crate) const BUILD: &str = concat!("poold ", env!("CARGO_PKG_VERSION"));

impl Daemon {
    /// Returns the process table and the machine, for blocking work.
    pub(crate) fn processes(&self) -> Arc<dyn Processes> {
        Arc::clone(&self.world.processes)
    }

    /// Returns the path of `poolctl`, which is beside the other programs.
    pub(crate) fn poolctl(&self) -> PathBuf {
        self.reaper_program.with_file_name("poolctl")
    }

    /// Samples the free space of the disk, if queueing `more` bytes needs it.
    pub(crate) async fn refresh_disk(&self, more: u64) {
        self.disk.refresh(&self.blocking, self.processes(), more).await;
    }

    /// Returns the current incarnation of a session; `None` if it has none, or the engine has stopped.
    pub(crate) async fn incarnation(&self, session: SessionId) -> Option<Incarnation> {
        self.engine.turn(move |turn| turn.pool().session(session)?.incarnation.clone()).await.ok().flatten()
    }

    /// Returns the age of a time, without steps of the wall clock and time asleep.
    pub(crate) async fn age(&self, at: Timestamp) -> Result<Duration, Refusal> {
        self.engine.turn(move |turn| turn.age(at)).await
    }

    /// Returns the core's settings in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.config.borrow().settings)
    }

    /// Returns the configuration in force.
    pub(crate) fn loaded(&self) -> Arc<LoadedConfig> {
        Arc::clone(&self.config.borrow())
    }

    /// Returns the lines of scrollback of new panes; `None` on a server that is not the pool's own.
    pub(crate) fn history_limit(&self) -> Option<u32> {
        let own = self.device.socket == self.paths.tmux_socket;
        own.then(|| self.config.borrow().config.tmux.history_limit)
    }

    /// Returns where a session's output is logged, and how much of it is kept.
    pub(crate) fn log_options(&self, session: SessionId) -> LogOptions {
        let loaded = self.config.borrow();
        let logs = &loaded.config.logs;
        LogOptions {
            dir: self.paths.logs_of(session),
            max_size: loaded.daemon.log_size,
            keep: logs.keep,
            compress: logs.compress,
        }
    }

    pub(crate) fn tmux_socket(&self) -> OsBytes {
        self.device.socket.clone().into()
    }
}

/// Returns the pane of an incarnation, once its server and pane are known.
pub(crate) fn pane_of(run: &Incarnation) -> Option<PaneRef> {
    Some(PaneRef { server: run.server?.into(), pane: run.pane?, tag: run.tag })
}

/// Returns the process of an incarnation's program, or else of its init.
pub(crate) fn process_of(run: &Incarnation) -> Option<ProcId> {
    run.agent.or(run.init)
}

pub(crate) fn tmux_size(size: Size) -> tmux::Size {
    tmux::Size { width: size.cols, height: size.rows }
}
