//! Where observations come from: one tmux server, and the processes in it.

use std::time::{Duration, Instant};

use process::{foreground, identity};
use protocol::reply::WatchSetup;
use protocol::tmux::TmuxState;
use tmux::{Device, Listing, TmuxError};

use crate::cure::Cure;
use crate::stamp::Stamps;

/// One tmux server as it is watched.
pub(crate) struct Source {
    device: Device,
    stamps: Stamps,
    cure: Cure,
    cost: Duration,
}

impl Source {
    /// Watches what `poold` says.
    pub(crate) fn new(setup: &WatchSetup) -> Self {
        Self::of(Device::new(setup.binary.as_path(), setup.socket.as_path()))
    }

    /// Watches this server, and never starts one.
    pub(crate) fn of(device: Device) -> Self {
        Self { device, stamps: Stamps::default(), cure: Cure::default(), cost: Duration::ZERO }
    }

    /// Whether it is the server that `poold` means.
    pub(crate) fn watches(&self, setup: &WatchSetup) -> bool {
        self.device.binary == setup.binary.as_path() && self.device.socket == setup.socket.as_path()
    }

    /// A call for a listing that begins now; its answer is for [`Source::read`].
    pub(crate) fn ask(&self) -> impl Future<Output = Look> + use<> {
        let device = self.device.clone();
        async move {
            let began = Instant::now();
            Look { began, observed: device.observe().await }
        }
    }

    /// What a listing says, with its processes.
    pub(crate) fn read(&mut self, look: Look) -> TmuxState {
        let mut state = self.stamps.state(look.observed, |pid| identity::read(pid).ok().flatten());
        for pane in state.panes.values_mut().filter(|pane| !pane.dead && pane.process.is_some()) {
            pane.current_command = foreground::foreground_command(pane.pid).ok().flatten();
        }
        self.cure.tend(&state, self.stamps.server(), &self.device.socket);
        self.cost = look.began.elapsed();
        state
    }

    /// How long the last look took in all.
    pub(crate) fn cost(&self) -> Duration {
        self.cost
    }
}

/// The outcome of one call.
pub(crate) struct Look {
    began: Instant,
    observed: Result<Listing, TmuxError>,
}
