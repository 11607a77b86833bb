//! Processes of the panes as the kernel reports them: exits at once, foreground commands by sampling.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::time::Duration;

use process::bounded_reads::Unanswered;
use process::exits::{ExitStatus, ExitWatcher};
use process::inspect::program::{self, Foreground};
use protocol::tmux::TmuxPane;
use protocol::{PaneId, ProcId, Tag};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::model::Model;

/// Number of panes sampled in one go, in less than a millisecond.
const SLICE: usize = 32;
/// Divisor of a processor's time: sampling takes at most one part in this many (0.04 %).
const CPU_SHARE: u32 = 2500;
/// Shortest and longest time in which every pane is sampled once.
const ROUND: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Delay until a new pane's program is sure to run. Before that, the pane shows a child of the server, which becomes
/// the program.
const NEW_PANE_DELAY: Duration = Duration::from_millis(150);
/// Foreground commands of the pool's panes before their program starts and after it ends: the server's
/// child, and the init that it becomes.
const STARTUP_COMMANDS: [&[u8]; 3] = [b"tmux: server", b"reaper", process::init::NAME];

/// Watched processes of one server and its panes.
pub(crate) struct ProcessWatch {
    exits: AsyncFd<ExitWatcher>,
    panes: BTreeMap<PaneId, ProcId>,
    /// Panes whose exits could not be watched, for lack of descriptors for example.
    unwatched: BTreeSet<PaneId>,
    server: Option<ProcId>,
    /// Panes due for an extra sample soon, oldest first.
    new_panes: Vec<(Instant, PaneId)>,
    /// Last sampled pane, and the time of the next samples.
    last_sampled: Option<PaneId>,
    due: Instant,
    /// Average duration of one sample.
    cost: Duration,
    /// True once the warning about unwatchable processes was logged.
    warned: bool,
    /// True if waiting for exits failed.
    failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessExit {
    /// Exit of a pane's process, with its status if known exactly.
    Pane(PaneId, ProcId, Option<ExitStatus>),
    /// Exit of the server.
    Server(ProcId),
}

impl ProcessWatch {
    /// Creates an empty watch.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; `ExitWatcher` keeps its descriptor as long as it lives"
    )]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            exits: AsyncFd::with_interest(ExitWatcher::new()?, Interest::READABLE)?,
            panes: BTreeMap::new(),
            unwatched: BTreeSet::new(),
            server: None,
            new_panes: Vec::new(),
            last_sampled: None,
            due: Instant::now(),
            cost: Duration::ZERO,
            warned: false,
            failed: false,
        })
    }

    /// Waits for exits. Cancel-safe.
    pub(crate) async fn next_exits(&mut self) -> Vec<ProcessExit> {
        if self.failed {
            return std::future::pending().await;
        }
        let ended = self.take().await.unwrap_or_else(|error| {
            tracing::error!(%error, "cannot wait for exits of processes; they are learnt from tmux, later");
            self.failed = true;
            Vec::new()
        });
        ended.into_iter().filter_map(|(process, how)| self.owner_of(process, how)).collect()
    }

    async fn take(&mut self) -> io::Result<Vec<(ProcId, Option<ExitStatus>)>> {
        let mut ready = self.exits.readable_mut().await?;
        let ended = ready.get_inner_mut().take()?;
        if ended.is_empty() {
            ready.clear_ready();
        }
        Ok(ended)
    }

    fn owner_of(&mut self, process: ProcId, how: Option<ExitStatus>) -> Option<ProcessExit> {
        if self.server == Some(process) {
            self.server = None;
            return Some(ProcessExit::Server(process));
        }
        let pane = self.panes.iter().find(|(_, known)| **known == process).map(|(id, _)| *id)?;
        self.panes.remove(&pane);
        Some(ProcessExit::Pane(pane, process, how))
    }

    /// Watches this server, in place of any other. True if it has ended.
    pub(crate) fn watch_server(&mut self, server: Option<ProcId>) -> bool {
        if self.server == server {
            return false;
        }
        self.server.take().into_iter().for_each(|id| self.exits.get_mut().forget(id));
        let Some(id) = server else { return false };
        let added = self.add(id);
        self.server = server.filter(|_| added == Some(true));
        added == Some(false)
    }

    /// Watches the process of this pane, if there is one. True if it has ended.
    pub(crate) fn watch_pane(&mut self, id: PaneId, pane: Option<&TmuxPane>, now: Instant) -> bool {
        let process = pane.filter(|pane| !pane.exited).and_then(|pane| pane.process);
        let is_known = self.panes.get(&id).copied() == process;
        if is_known && !self.unwatched.contains(&id) {
            return false;
        }
        self.unwatched.remove(&id);
        self.panes.remove(&id).into_iter().for_each(|old| self.exits.get_mut().forget(old));
        let Some(process) = process else { return false };
        let added = self.add(process);
        // The program is sampled even if its exit cannot be watched; watching is tried again.
        if added.is_none() {
            self.unwatched.insert(id);
        }
        if added != Some(false) {
            self.panes.insert(id, process);
            self.new_panes.push((now + NEW_PANE_DELAY, id));
        }
        added == Some(false)
    }

    /// Watches a process. `Some(false)` if it has ended; `None` if it cannot be watched.
    fn add(&mut self, id: ProcId) -> Option<bool> {
        let added = self.exits.get_mut().watch(id);
        if let Err(error) = &added
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(%id, %error, "some processes cannot be watched; their exits are learnt from tmux only");
        }
        added.ok()
    }

    /// Time of the next samples.
    pub(crate) fn due(&self) -> Option<Instant> {
        let round = (!self.panes.is_empty()).then_some(self.due);
        round.into_iter().chain(self.new_panes.first().map(|(due, _)| *due)).min()
    }

    /// Samples the foreground commands of the panes that are due.
    pub(crate) fn sample_foreground(&mut self, model: &mut Model, now: Instant) {
        let new_panes = self.new_panes.iter().take_while(|(due, _)| *due <= now).take(SLICE).count();
        let new_panes: Vec<PaneId> = self.new_panes.drain(..new_panes).map(|(_, id)| id).collect();
        read_foreground(model, &new_panes);
        if now < self.due {
            return;
        }
        let slice = self.next_slice();
        let began = Instant::now();
        read_foreground(model, &slice);
        if let Ok(count) = u32::try_from(slice.len())
            && count > 0
        {
            let cost = began.elapsed() / count;
            self.cost = if self.cost.is_zero() { cost } else { (self.cost * 7 + cost) / 8 };
        }
        self.last_sampled = slice.last().copied().filter(|_| slice.len() == SLICE);
        self.due = now + pause(self.cost, self.panes.len());
    }

    /// The next panes of the round.
    fn next_slice(&self) -> Vec<PaneId> {
        let begin = self.last_sampled.map_or(Bound::Unbounded, Bound::Excluded);
        self.panes.range((begin, Bound::Unbounded)).take(SLICE).map(|(id, _)| *id).collect()
    }
}

/// The panes whose program in the foreground does not answer, by their processes.
static UNANSWERED: Unanswered = Unanswered::new();

/// Reads the foreground commands of these panes into the model.
pub(crate) fn read_foreground(model: &mut Model, ids: &[PaneId]) {
    let read = |id: &PaneId| {
        let pane = model.state().panes.get(id).filter(|pane| pane.process.is_some() && !pane.is_over())?;
        Some((pane.pid, (*id, pane.tag)))
    };
    let panes: BTreeMap<u32, (PaneId, Option<Tag>)> = ids.iter().filter_map(read).collect();
    let pids: Vec<u32> = panes.keys().copied().collect();
    UNANSWERED.read_each(&pids, program::foreground, |pid, front| {
        let (Some(Ok(front)), Some((id, tag))) = (front, panes.get(&pid)) else { return };
        let is_its_own = |front: &Foreground| !STARTUP_COMMANDS.contains(&front.command.0.as_slice());
        model.set_foreground(*id, front.filter(|front| tag.is_none() || is_its_own(front)));
    });
}

/// Returns the time between two slices of a round over so many panes, if one sample takes `cost`.
fn pause(cost: Duration, panes: usize) -> Duration {
    let count = u32::try_from(panes.max(1)).unwrap_or(u32::MAX);
    let round = cost.saturating_mul(count).saturating_mul(CPU_SHARE).clamp(ROUND.0, ROUND.1);
    round / u32::try_from(panes.div_ceil(SLICE).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_round_begins_with_the_first_pane_and_goes_on_behind_the_last_one() {
        let mut watch = ProcessWatch::new().unwrap();
        watch.panes.extend((0..40).map(|n| (PaneId(n), ProcId { pid: n + 2, start: 1 })));
        let ids = |from: u32, to: u32| (from..to).map(PaneId).collect::<Vec<_>>();
        assert_eq!(watch.next_slice(), ids(0, 32));
        watch.last_sampled = Some(PaneId(31));
        assert_eq!(watch.next_slice(), ids(32, 40));
    }

    #[test]
    fn looking_takes_little_and_a_round_at_most_half_a_minute() {
        let micros = Duration::from_micros;
        assert_eq!(pause(micros(10), 1), ROUND.0);
        assert_eq!(pause(micros(10), 32), ROUND.0);
        assert_eq!(pause(micros(10), 320), Duration::from_millis(800));
        assert_eq!(pause(micros(100), 3200), ROUND.1 / 100);
        assert_eq!(pause(Duration::ZERO, 0), ROUND.0);
    }
}
