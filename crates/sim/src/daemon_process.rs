//! The simulated process of the daemon: the real daemon, on a life of its own.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use daemon::{EngineMode, Host, LoadedConfig, Site, Socket};
use protocol::ProcId;
use store::Store;
use tmux::Device;
use tokio::sync::Notify;
use world::random::Random;
use world::signals::{Signal, Signals};
use world::tasks::Tasks;
use world::{BoxFuture, World};

use crate::land::Land;
use crate::rng::Rng;
use crate::world::disk::{Fault, Faults};
use crate::world::life::Life;
use crate::world::machine::{Kind, View};

/// A running daemon.
pub(crate) struct DaemonProcess {
    pub(crate) life: Life,
    pub(crate) faults: Faults,
    process: ProcId,
    stop: Arc<Notify>,
    /// The result, once it has ended by itself.
    ended: Arc<Mutex<Option<Result<(), String>>>>,
}

impl DaemonProcess {
    /// Starts the daemon. A fault of its disk may come as early as its recovery.
    pub(crate) fn start(land: &Land, fault: Option<Fault>) -> Self {
        let n = land.unique();
        let life = Life::new(land.rng(&format!("daemon {n}")), land.climate.jitter, land.trace.clone());
        let disk = land.medium.open(life.clone());
        let faults = disk.faults();
        fault.into_iter().for_each(|fault| faults.plan(fault));
        let process = land.machine.start(Kind::Daemon, None, false);
        let (stop, ended) = (Arc::new(Notify::new()), Arc::new(Mutex::new(None)));
        let world = World {
            clock: land.clock.clone(),
            random: Arc::new(Stream(Mutex::new(land.rng(&format!("random {n}"))))),
            tasks: Arc::new(life.clone()),
            processes: Arc::new(View {
                machine: land.machine.clone(),
                me: process,
                socket: land.paths.socket.clone().into(),
            }),
        };
        let (context, signals, result, own) =
            (land.clone(), Requests(Arc::clone(&stop)), Arc::clone(&ended), life.clone());
        let run = async move {
            let outcome = serve(&context, world, signals, (disk, own)).await;
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        };
        life.spawn("daemon", Box::pin(run));
        land.trace.tell(|| format!("poold starts as {}", process.pid));
        Self { life, faults, process, stop, ended }
    }

    /// Asks it to end.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Returns its result, once it has ended by itself.
    pub(crate) fn result(&self) -> Option<Result<(), String>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Kills it, whatever it does, and returns once nothing of it is left.
    pub(crate) async fn kill(self, land: &Land) {
        if let Some(task) = self.life.panicked() {
            land.judge.violated(format!("a task of poold panicked: {task}"));
        }
        let failed = self.result().and_then(Result::err);
        if let Some(why) = failed.filter(|_| !self.faults.is_planned()) {
            land.judge.violated(format!("poold ended by itself: {why}"));
        }
        self.life.kill().await;
        land.machine.end(self.process);
        land.trace.tell(|| "poold is gone".to_owned());
    }
}

async fn serve(
    land: &Land,
    world: World,
    signals: Requests,
    (disk, life): (crate::world::disk::Disk, Life),
) -> Result<(), String> {
    let database = Store::with_backend(disk).map_err(|error| error.to_string())?;
    let config = LoadedConfig::read(&land.paths, 0o022).map_err(|error| error.to_string())?;
    let mut device = Device::new("tmux", &land.paths.tmux_socket);
    (device.own, device.start_server) = (true, true);
    let site = Site {
        paths: land.paths.clone(),
        config,
        world,
        tmux: Arc::new(land.tmux.clone()),
        device,
        reaper_program: land.paths.state.join("reaper"),
        polls_dirs: true,
    };
    let socket = Socket::Given(Box::new(land.net.listen(life)));
    let host = Host { site, engine: EngineMode::Task, database, socket, signals: Box::new(signals) };
    daemon::serve(host).await.map_err(|error| error.to_string())
}

/// Random bytes of the seed.
struct Stream(Mutex<Rng>);

impl Random for Stream {
    fn fill(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            let random = rng.next().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
        Ok(())
    }
}

/// Requests to end.
struct Requests(Arc<Notify>);

impl Signals for Requests {
    fn listen(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn next(&mut self) -> BoxFuture<'_, Signal> {
        Box::pin(async move {
            self.0.notified().await;
            Signal::End
        })
    }
}
