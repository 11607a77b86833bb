//! What watching costs: processor time while nothing happens and in a storm, and memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use protocol::{Event, ProcId};

use super::world::{self, World};
use crate::interrupt;
use crate::usage::{self, Memory};

/// The processes that take part.
pub(super) const NAMES: [&str; 3] = ["tmux-watch", "poold", "tmux server"];
/// Sessions that are made one by one, each by a command of its own.
pub(super) const STORM: usize = 200;
/// Until the remains of what was done before are settled.
const SETTLE: Duration = Duration::from_secs(3);

/// Something of each of the processes that take part, in the order of [`NAMES`].
pub(super) type Each<T> = [T; 3];

/// The processes that take part.
pub(super) struct Parties(Each<ProcId>);

/// What watching costs.
pub(super) struct Load {
    /// Share of a core, from 0, while nothing happens.
    pub(super) idle: Each<f64>,
    pub(super) memory: Each<Option<Memory>>,
    pub(super) storm: Storm,
}

/// What a storm of [`STORM`] creations took.
pub(super) struct Storm {
    /// Processor time until all were seen.
    pub(super) cpu: Each<Duration>,
    /// From the start of the first command to the end of the last.
    pub(super) took: Duration,
    /// From there until the event of the last one; none where that was first. `None` where events are lost.
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
        let now = self.cpu().context("a component was restarted")?;
        Ok([0, 1, 2].map(|at| now[at].saturating_sub(before[at])))
    }
}

/// The share of a core that each takes while nothing happens for so long.
///
/// # Errors
/// One of them ends.
pub(super) fn idle(parties: &Parties, time: Duration) -> Result<Each<f64>> {
    interrupt::sleep(SETTLE)?;
    let (before, began) = (parties.cpu()?, Instant::now());
    interrupt::sleep(time)?;
    let took = began.elapsed();
    Ok(parties.cpu_since(before)?.map(|cpu| cpu.as_secs_f64() / took.as_secs_f64()))
}

/// Makes [`STORM`] sessions, one right after the other.
///
/// # Errors
/// One is not made, or one of the parties ends.
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
