//! Cost of the idle daemons: processor time and memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use protocol::ProcId;

use super::SETTLE;
use crate::floors::Client;
use crate::interrupt;
use crate::pool::Pool;
use crate::usage::{self, Memory};

/// Cost of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Taken {
    /// Share of a core, from 0.
    pub(super) cpu: f64,
    pub(super) memory: Memory,
    /// Memory shared with no other process, in bytes.
    pub(super) own: Option<u64>,
}

/// Cost of the two daemons involved in reaping.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Idle {
    pub(super) reaper: Taken,
    pub(super) daemon: Taken,
    /// Duration of the measurement.
    pub(super) time: Duration,
}

/// Measures them for this time.
pub(super) fn measure(pool: &Pool, time: Duration) -> Result<Idle> {
    let parties = parties(pool)?;
    interrupt::sleep(SETTLE)?;
    let cpu = || -> Result<_> { Ok([usage::cpu(parties[0])?, usage::cpu(parties[1])?]) };
    let (before, began) = (cpu()?, Instant::now());
    interrupt::sleep(time)?;
    let (after, took) = (cpu()?, began.elapsed());
    let [reaper, daemon] = [0, 1].map(|at| Taken {
        cpu: after[at].saturating_sub(before[at]).as_secs_f64() / took.as_secs_f64(),
        memory: usage::memory(parties[at]).unwrap_or_default(),
        own: usage::own_memory(parties[at]),
    });
    Ok(Idle { reaper, daemon, time: took })
}

/// Returns the reaper's memory now; `None` where the system does not tell.
pub(super) fn reaper_memory(pool: &Pool) -> Result<Option<Memory>> {
    Ok(usage::memory(parties(pool)?[0]))
}

/// Returns the reaper and the daemon.
fn parties(pool: &Pool) -> Result<[ProcId; 2]> {
    let status = Client::connect(pool)?.status()?;
    let reaper = status.components.iter().find(|component| component.name == "reaper");
    let pid = reaper.and_then(|reaper| reaper.pid).context("no reaper runs")?;
    let reaper = process::identity::identify(pid)?.context("the reaper has ended")?;
    Ok([reaper, status.process])
}
