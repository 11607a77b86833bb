//! Load of the watching processes: processor time when idle and in a storm, and memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use protocol::{Event, ProcId};

use super::world::{self, World};
use crate::interrupt;
use crate::usage::{self, Memory};

/// The processes involved.
pub(super) const NAMES: [&str; 3] = ["tmux-watch", "poold", "tmux server"];
/// Number of sessions created one by one, each by a command of its own.
pub(super) const STORM: usize = 200;
/// Time for earlier work to settle.
const SETTLE: Duration = Duration::from_secs(3);

/// One value for each process, in the order of [`NAMES`].
pub(super) type Each<T> = [T; 3];

/// The processes involved.
pub(super) struct Parties(Each<ProcId>);

/// Load of the processes involved.
pub(super) struct Load {
    /// Share of a core when idle, from 0.
    pub(super) idle: Each<f64>,
    pub(super) memory: Each<Option<Memory>>,
    pub(super) storm: Storm,
}

/// Load of a storm of [`STORM`] creations.
pub(super) struct Storm {
    /// Processor time until all sessions were reported.
    pub(super) cpu: Each<Duration>,
    /// Time from the start of the first command to the end of the last.
    pub(super) took: Duration,
    /// Time from then until the event of the last session, zero if that came first. `None` if events were
    /// lost.
    pub(super) lag: Option<Duration>,
}

impl Parties {
    pub(super) fn new(ids: Each<ProcId>) -> Self {
        Self(ids)
    }

    pub(super) fn memory(&self) -> Each<Option<Memory>> {
        self.0.map(usage::memory)
    }

    fn cpu(&self) -> Result<Each<Duration>> {
        let [watcher, daemon, server] = self.0;
        Ok([usage::cpu(watcher)?, usage::cpu(daemon)?, usage::cpu(server)?])
    }

    fn cpu_since(&self, before: Each<Duration>) -> Result<Each<Duration>> {
        let now = self.cpu().context("a process was restarted")?;
        Ok([0, 1, 2].map(|at| now[at].saturating_sub(before[at])))
    }
}

/// Measures the share of a core that each process takes when idle, over this time.
pub(super) fn idle(parties: &Parties, time: Duration) -> Result<Each<f64>> {
    interrupt::sleep(SETTLE)?;
    let (before, began) = (parties.cpu()?, Instant::now());
    interrupt::sleep(time)?;
    let took = began.elapsed();
    Ok(parties.cpu_since(before)?.map(|cpu| cpu.as_secs_f64() / took.as_secs_f64()))
}

/// Creates [`STORM`] sessions in quick succession.
pub(super) fn storm(world: &World<'_>, parties: &Parties) -> Result<Storm> {
    let mut missing = world::names(STORM);
    let (before, began) = (parties.cpu()?, Instant::now());
    for name in &missing {
        interrupt::check()?;
        world.make(name)?;
    }
    let ended = Instant::now();
    let last = world.subscriber.wait(|event| {
        if let Event::ForeignSeen { name, .. } = event {
            missing.remove(name);
        }
        missing.is_empty()
    })?;
    let lag = last.map(|seen| seen.at.saturating_duration_since(ended));
    Ok(Storm { cpu: parties.cpu_since(before)?, took: ended - began, lag })
}
