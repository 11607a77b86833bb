//! tmux as last seen, and the watcher that sees it. Gone when `poold` ends.

use std::collections::{BTreeMap, BTreeSet};

use protocol::diff::Change;
use protocol::tmux::{Server, TmuxState, TmuxTransport};
use protocol::{Event, PaneId, SessionId, Timestamp};

use crate::foreign::{self, Foreign};
use crate::pool::Pool;
use crate::reconcile::{self, Touched};

/// A connected component: the watcher, or a reaper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Number of its connection.
    pub connection: u64,
    /// Its build, as it introduced itself.
    pub build: String,
    /// Its process id, where the system tells.
    pub pid: Option<u32>,
}

/// The contents of an observation.
#[derive(Debug, Clone)]
pub enum Sight {
    /// The whole state of tmux.
    Whole(TmuxState),
    /// Changes since the observation before.
    Changes(Vec<Change>),
    /// No change since the observation before.
    Same,
    /// A sign of life of the watcher; tmux was not looked at.
    Alive,
}

/// The effect of an observation on the known state.
#[derive(Debug, Clone)]
pub struct Update {
    /// True if the state of tmux differs from the one before.
    pub differs: bool,
    /// True if the whole server was looked at.
    pub complete: bool,
    /// What was looked at, where that is not the whole server.
    pub only: Option<Touched>,
    /// When the look began: what happened later may be missing in it.
    pub began: Timestamp,
}

/// tmux as last seen, and the watcher.
#[derive(Debug)]
pub struct Observed {
    state: TmuxState,
    seen_at: Option<Timestamp>,
    listed_from: Option<Timestamp>,
    looked_at: Option<Timestamp>,
    resync: bool,
    transport: Option<TmuxTransport>,
    foreign: Option<Foreign>,
    adopting: BTreeSet<PaneId>,
    renamed_at: BTreeMap<SessionId, Timestamp>,
    first: bool,
    watcher: Option<Peer>,
    watcher_since: Timestamp,
    snapshots_requested: u64,
    snapshots_received: u64,
}

impl Observed {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: unknown("not looked at yet"),
            seen_at: None,
            listed_from: None,
            looked_at: None,
            resync: false,
            transport: None,
            foreign: None,
            adopting: BTreeSet::new(),
            renamed_at: BTreeMap::new(),
            first: true,
            watcher: None,
            watcher_since: now,
            snapshots_requested: 0,
            snapshots_received: 0,
        }
    }

    /// tmux as last seen.
    #[must_use]
    pub fn state(&self) -> &TmuxState {
        &self.state
    }

    /// When a complete listing was last taken.
    #[must_use]
    pub fn seen_at(&self) -> Option<Timestamp> {
        self.seen_at
    }

    /// When the last complete listing of a server that answered began.
    #[must_use]
    pub fn listed_from(&self) -> Option<Timestamp> {
        self.listed_from
    }

    /// True until the first complete observation after the start of `poold`.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// The watcher's way of noticing changes.
    #[must_use]
    pub fn transport(&self) -> Option<TmuxTransport> {
        self.transport
    }

    /// Notes the watcher's way of noticing changes.
    pub fn set_transport(&mut self, transport: TmuxTransport) {
        self.transport = Some(transport);
    }

    /// tmux sessions that are not the pool's; none before the first observation.
    #[must_use]
    pub fn foreign(&self) -> Option<&Foreign> {
        self.foreign.as_ref()
    }

    /// The process of the tmux server: of the one seen, else of the one on record.
    #[must_use]
    pub fn server_pid(&self, pool: &Pool) -> Option<u32> {
        match self.state.server {
            Server::Up(server) => Some(server.process.pid),
            _ => pool.server().map(|server| server.process.pid),
        }
    }

    /// The connected watcher.
    #[must_use]
    pub fn watcher(&self) -> Option<&Peer> {
        self.watcher.as_ref()
    }

    /// Start of the present situation: a watcher is connected, or none is.
    #[must_use]
    pub fn watcher_since(&self) -> Timestamp {
        self.watcher_since
    }

    /// A watcher connects, in place of any other. The state that another one saw says nothing about now.
    pub fn watcher_connected(&mut self, watcher: Peer, now: Timestamp) {
        (self.watcher, self.watcher_since) = (Some(watcher), now);
        (self.transport, self.resync) = (None, false);
        self.state = unknown("tmux-watch has only just connected");
    }

    /// A connection ends. Returns true if it was the watcher's.
    pub fn connection_ended(&mut self, connection: u64, now: Timestamp) -> bool {
        let is_its = self.watcher.as_ref().is_some_and(|watcher| watcher.connection == connection);
        if is_its {
            (self.watcher, self.transport, self.watcher_since) = (None, None, now);
        }
        is_its
    }

    /// True if nobody watches and nobody has looked for `limit`.
    #[must_use]
    pub fn is_outdated(&self, pool: &Pool, now: Timestamp, limit: std::time::Duration) -> bool {
        let recent = |at: Timestamp| pool.age(now, at) < limit;
        self.watcher.is_none() && !self.looked_at.is_some_and(recent)
    }

    /// Requires a snapshot of the watcher: its changes do not follow from the state.
    pub fn request_resync(&mut self) {
        self.resync = true;
    }

    /// Returns true if the watcher has to send a snapshot, once per [`Self::request_resync`].
    pub fn take_resync(&mut self) -> bool {
        std::mem::take(&mut self.resync)
    }

    /// The number of a new snapshot to ask the watcher for; none without a watcher.
    pub fn request_snapshot(&mut self) -> Option<u64> {
        self.watcher.as_ref()?;
        self.snapshots_requested += 1;
        Some(self.snapshots_requested)
    }

    /// Notes that the snapshot of this number, and all before it, have come. Returns true if that is news.
    pub fn snapshot_received(&mut self, number: u64) -> bool {
        let is_new = number <= self.snapshots_requested && number > self.snapshots_received;
        if is_new {
            self.snapshots_received = number;
        }
        is_new
    }

    /// True if the snapshot of this number has come.
    #[must_use]
    pub fn has_snapshot(&self, number: u64) -> bool {
        self.snapshots_received >= number
    }

    /// Begins the adoption of a pane. Returns false while another one is under way.
    pub fn begin_adoption(&mut self, pane: PaneId) -> bool {
        self.adopting.insert(pane)
    }

    /// The adoption of a pane is over.
    pub fn end_adoption(&mut self, pane: PaneId) {
        self.adopting.remove(&pane);
    }

    /// Notes that the pool itself renamed a session.
    pub fn renamed(&mut self, session: SessionId, now: Timestamp) {
        self.renamed_at.insert(session, now);
    }

    /// When the pool itself last renamed a session.
    #[must_use]
    pub fn renamed_at(&self, session: SessionId) -> Option<Timestamp> {
        self.renamed_at.get(&session).copied()
    }

    /// Removes a pane that the reaper saw go, ahead of the watcher.
    pub fn remove_pane(&mut self, pane: PaneId) {
        self.state.panes.remove(&pane);
    }

    /// Forgets sessions that are no more.
    pub fn retain(&mut self, pool: &Pool) {
        self.renamed_at.retain(|session, _| pool.session(*session).is_some());
    }

    /// Takes the contents of an observation over.
    pub fn update(&mut self, pool: &Pool, sight: Sight, complete: bool, began: Timestamp) -> Update {
        let complete = complete && !matches!(sight, Sight::Alive);
        let only = match &sight {
            _ if complete => None,
            Sight::Changes(changes) => reconcile::touched(pool, &self.state, changes),
            // Only a listing proves anything.
            Sight::Alive | Sight::Same | Sight::Whole(_) => Some(Touched::default()),
        };
        Update { differs: self.replace(sight), complete, only, began }
    }

    /// Returns true if the state differs from the one before.
    fn replace(&mut self, sight: Sight) -> bool {
        match sight {
            Sight::Whole(whole) => {
                let differs = self.state != whole;
                self.state = whole;
                differs
            }
            Sight::Changes(changes) => {
                let differs = !changes.is_empty();
                changes.into_iter().for_each(|change| self.state.apply(change));
                differs
            }
            Sight::Same | Sight::Alive => false,
        }
    }

    /// Notes that an observation was taken in, and returns the news of foreign tmux sessions. Those found by the first
    /// observation are no news.
    pub(super) fn taken_in(&mut self, pool: &Pool, update: &Update, now: Timestamp) -> Vec<Event> {
        let known = !matches!(self.state.server, Server::Unknown(_));
        if update.complete && known {
            self.first = false;
            self.seen_at = Some(now);
            self.listed_from = Some(update.began);
        }
        self.looked_at = Some(now);
        if !known || !(update.differs || update.complete || self.foreign.is_none()) {
            return Vec::new();
        }
        let found = foreign::foreign(pool, &self.state);
        match self.foreign.replace(found.clone()) {
            Some(before) if before != found => foreign::changes(&before, &found),
            _ => Vec::new(),
        }
    }
}

fn unknown(why: &str) -> TmuxState {
    TmuxState { server: Server::unknown(why), ..TmuxState::default() }
}
