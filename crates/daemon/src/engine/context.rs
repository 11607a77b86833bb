//! What every part of the daemon works with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pool::Settings;
use protocol::paths::Paths;
use protocol::session::Size;
use protocol::{Incarnation, OsBytes, ProcId, Refusal, SessionId, Timestamp};
use tmux::{Device, Driver, LogOptions, PaneRef};
use tokio::sync::{Mutex, Semaphore, mpsc, watch};

use crate::config::Life;
use crate::config::file::Config;
use crate::engine::cgroups::Cgroups;
use crate::engine::handle::Handle;
use crate::host::capacity::Capacity;
use crate::host::dir_watcher::Ears;
use crate::host::disk_room::DiskRoom;

/// What every part of the daemon works with.
pub(crate) struct Daemon {
    pub(crate) paths: Paths,
    pub(crate) engine: Handle,
    pub(crate) tmux: Arc<dyn Driver>,
    /// The same server as data, for command lines that others run.
    pub(crate) device: Device,
    /// The init and log writer of each pane.
    pub(crate) init: PathBuf,
    pub(crate) process: ProcId,
    pub(crate) started_at: Timestamp,
    /// The same on the monotonic clock.
    pub(crate) started: std::time::Instant,
    pub(crate) config: watch::Sender<Arc<Loaded>>,
    /// The configuration at the start. Its settings that need a restart are still in force.
    pub(crate) first_config: Config,
    /// Processes that hold messages, to be watched.
    pub(crate) holders: mpsc::UnboundedSender<ProcId>,
    /// Asks the watcher for the snapshot with this number.
    pub(crate) snapshots: watch::Sender<u64>,
    /// The connection of the watcher that there is.
    pub(crate) watched: watch::Sender<Option<u64>>,
    /// Held by whoever looks at tmux in the watcher's place.
    pub(crate) looking: Mutex<()>,
    pub(crate) cgroups: Cgroups,
    /// Free space where the database is.
    pub(crate) disk: DiskRoom,
    /// The last sample of the machine.
    pub(crate) capacity: watch::Sender<Capacity>,
    /// Hears of what sessions write.
    pub(crate) ears: Ears,
    /// Places for those who create in tmux.
    pub(crate) launching: Semaphore,
}

/// The configuration in force.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    pub(crate) settings: Settings,
    /// Below so many free bytes no message is taken.
    pub(crate) min_free_disk: u64,
    pub(crate) life: Life,
}

/// This build, as peers and people see it.
pub(crate) const BUILD: &str = concat!("poold ", env!("CARGO_PKG_VERSION"));

impl Daemon {
    /// The incarnation of a session now; none where there is none, or the engine has stopped.
    pub(crate) async fn incarnation(&self, session: SessionId) -> Option<Incarnation> {
        self.engine.turn(move |turn| turn.pool().session(session)?.incarnation.clone()).await.ok().flatten()
    }

    /// The time since then, without steps of the wall clock and the machine's sleep.
    pub(crate) async fn age(&self, at: Timestamp) -> Result<Duration, Refusal> {
        self.engine.turn(move |turn| turn.age(at)).await
    }

    pub(crate) fn settings(&self) -> Settings {
        self.config.borrow().settings.clone()
    }

    pub(crate) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.config.borrow())
    }

    pub(crate) fn history_limit(&self) -> Option<u32> {
        let own = self.device.socket == self.paths.tmux_socket;
        own.then(|| self.config.borrow().config.tmux.history_limit)
    }

    /// Where a session's output goes, and how much of it is kept.
    pub(crate) fn log_options(&self, session: SessionId) -> LogOptions {
        let loaded = self.config.borrow();
        let logs = &loaded.config.logs;
        LogOptions {
            dir: self.paths.session(session).join("logs"),
            max_size: loaded.life.log_size,
            keep: logs.keep,
            compress: logs.compress,
        }
    }

    pub(crate) fn tmux_socket(&self) -> OsBytes {
        self.device.socket.clone().into()
    }
}

/// The pane of an incarnation, once its server and pane are known.
pub(crate) fn pane_of(run: &Incarnation) -> Option<PaneRef> {
    Some(PaneRef { server: run.server?.into(), pane: run.pane?, tag: run.tag })
}

pub(crate) fn tmux_size(size: Size) -> tmux::Size {
    tmux::Size { width: size.cols, height: size.rows }
}
