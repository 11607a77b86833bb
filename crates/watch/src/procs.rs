//! The processes in the panes, as the kernel tells: their ends at once, and now and then what runs in
//! the foreground.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use process::exits::{Ended, Exits};
use process::place::{self, Front};
use protocol::tmux::TmuxPane;
use protocol::{PaneId, ProcId};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::model::Model;

/// Panes that are looked at in one go: less than a millisecond.
const SLICE: usize = 32;
/// Looking takes at most one in so many of a processor's time: 0.04 %.
const SHARE: u32 = 2500;
/// The shortest and the longest time in which every pane is looked at once.
const ROUND: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// By then a new pane's program runs: before, the server's own child does, which becomes it.
const YOUNG: Duration = Duration::from_millis(150);
/// What is in the foreground of the pool's panes while their own programs do not run yet, or do no more: the server's own
/// child, and the init that it becomes.
const OTHERS: [&[u8]; 3] = [b"tmux: server", b"reaper", process::init::NAME];

/// The processes of one server and of its panes.
pub(crate) struct Procs {
    exits: AsyncFd<Exits>,
    panes: BTreeMap<PaneId, ProcId>,
    server: Option<ProcId>,
    /// Panes that are looked at once more, soon, oldest first.
    young: Vec<(Instant, PaneId)>,
    /// The last pane that was looked at, and when the next ones are due.
    looked: PaneId,
    due: Instant,
    /// How long a look at one pane takes.
    cost: Duration,
    /// Whether it was said that some cannot be held.
    warned: bool,
    /// Whether ends cannot be waited for.
    broken: bool,
}

/// A process that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// That of a pane, in this way where it is known exactly.
    Pane(PaneId, ProcId, Option<Ended>),
    /// The server.
    Server(ProcId),
}

impl Procs {
    /// # Errors
    /// Where the operating system has no descriptor left.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; `Exits` keeps its descriptor as long as it lives"
    )]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            exits: AsyncFd::with_interest(Exits::new()?, Interest::READABLE)?,
            panes: BTreeMap::new(),
            server: None,
            young: Vec::new(),
            looked: PaneId(0),
            due: Instant::now(),
            cost: Duration::ZERO,
            warned: false,
            broken: false,
        })
    }

    /// Waits for ends. May be cancelled.
    pub(crate) async fn ends(&mut self) -> Vec<End> {
        if self.broken {
            return std::future::pending().await;
        }
        let ended = self.take().await.unwrap_or_else(|error| {
            tracing::error!(%error, "ends of processes are known later, from tmux");
            self.broken = true;
            Vec::new()
        });
        ended.into_iter().filter_map(|(process, how)| self.whose(process, how)).collect()
    }

    async fn take(&mut self) -> io::Result<Vec<(ProcId, Option<Ended>)>> {
        let mut ready = self.exits.readable_mut().await?;
        let ended = ready.get_inner_mut().take()?;
        if ended.is_empty() {
            ready.clear_ready();
        }
        Ok(ended)
    }

    fn whose(&mut self, process: ProcId, how: Option<Ended>) -> Option<End> {
        if self.server == Some(process) {
            self.server = None;
            return Some(End::Server(process));
        }
        let pane = self.panes.iter().find(|(_, known)| **known == process).map(|(id, _)| *id)?;
        self.panes.remove(&pane);
        Some(End::Pane(pane, process, how))
    }

    /// Holds this server. `true`: it has ended.
    pub(crate) fn follow_server(&mut self, server: Option<ProcId>) -> bool {
        if self.server == server {
            return false;
        }
        self.server.take().into_iter().for_each(|id| self.exits.get_mut().forget(id));
        let Some(id) = server else { return false };
        let watched = self.watch(id);
        self.server = server.filter(|_| watched == Some(true));
        watched == Some(false)
    }

    /// Holds the process of this pane, if there is one. `true`: it has ended.
    pub(crate) fn follow(&mut self, id: PaneId, pane: Option<&TmuxPane>, now: Instant) -> bool {
        let process = pane.filter(|pane| !pane.exited).and_then(|pane| pane.process);
        if self.panes.get(&id).copied() == process {
            return false;
        }
        self.panes.remove(&id).into_iter().for_each(|old| self.exits.get_mut().forget(old));
        let Some(process) = process else { return false };
        let watched = self.watch(process);
        if watched == Some(true) {
            self.panes.insert(id, process);
            self.young.push((now + YOUNG, id));
        }
        watched == Some(false)
    }

    /// `Some(false)`: it has ended. `None`: it cannot be held.
    fn watch(&mut self, id: ProcId) -> Option<bool> {
        let watched = self.exits.get_mut().watch(id);
        if let Err(error) = &watched
            && !std::mem::replace(&mut self.warned, true)
        {
            tracing::warn!(%id, %error, "not every process can be held; some ends are known from tmux only");
        }
        watched.ok()
    }

    /// When some panes are due for a look.
    pub(crate) fn due(&self) -> Option<Instant> {
        let round = (!self.panes.is_empty()).then_some(self.due);
        round.into_iter().chain(self.young.first().map(|(due, _)| *due)).min()
    }

    /// Looks what runs in those panes that are due.
    pub(crate) fn look(&mut self, model: &mut Model, now: Instant) {
        let young = self.young.iter().take_while(|(due, _)| *due <= now).take(SLICE).count();
        self.young.drain(..young).for_each(|(_, id)| front(model, id));
        if now < self.due {
            return;
        }
        let next = self.panes.range(PaneId(self.looked.0.saturating_add(1))..).take(SLICE).map(|(id, _)| *id);
        let slice: Vec<PaneId> = next.collect();
        let began = Instant::now();
        slice.iter().for_each(|id| front(model, *id));
        if let Ok(count) = u32::try_from(slice.len())
            && count > 0
        {
            let cost = began.elapsed() / count;
            self.cost = if self.cost.is_zero() { cost } else { (self.cost * 7 + cost) / 8 };
        }
        self.looked = slice.last().copied().filter(|_| slice.len() == SLICE).unwrap_or_default();
        self.due = now + pause(self.cost, self.panes.len());
    }
}

/// Looks what runs in the foreground of this pane.
pub(crate) fn front(model: &mut Model, id: PaneId) {
    let pane = model.state().panes.get(&id).filter(|pane| pane.process.is_some() && !pane.is_over());
    let Some((pid, tag)) = pane.map(|pane| (pane.pid, pane.tag)) else { return };
    if let Ok(front) = place::front(pid) {
        let is_its_own = |front: &Front| !OTHERS.contains(&front.command.0.as_slice());
        model.front(id, front.filter(|front| tag.is_none() || is_its_own(front)));
    }
}

/// The time between two slices of so many panes, where a look at one takes `cost`.
fn pause(cost: Duration, panes: usize) -> Duration {
    let count = u32::try_from(panes.max(1)).unwrap_or(u32::MAX);
    let round = cost.saturating_mul(count).saturating_mul(SHARE).clamp(ROUND.0, ROUND.1);
    round / u32::try_from(panes.div_ceil(SLICE).max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

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
