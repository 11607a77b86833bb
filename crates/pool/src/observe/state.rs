//! The observed state of tmux, and the watcher. Lost when `poold` ends.

use std::collections::{BTreeMap, BTreeSet};

use protocol::diff::Change;
use protocol::tmux::{Server, TmuxPane, TmuxState, TmuxTransport};
use protocol::{Event, Incarnation, PaneId, ServerId, SessionId, Tag, Timestamp};

use crate::clock::Moment;
use crate::deadlines::Mono;
use crate::observe::foreign::ForeignSessions;
use crate::observe::reconcile::DiffScope;
use crate::observe::{foreign, reconcile};
use crate::pool::Pool;

/// A connected component: the watcher, or a reaper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Number of its connection.
    pub connection: u64,
    /// The build, as it introduced itself.
    pub build: String,
    /// The process id, if the system tells.
    pub pid: Option<u32>,
}

/// The contents of a report of the watcher.
#[derive(Debug, Clone)]
pub enum Report {
    /// The whole state of tmux.
    Snapshot(TmuxState),
    /// Changes since the last report.
    Diff(Vec<Change>),
    /// No change since the last report.
    Unchanged,
    /// A sign of life; tmux was not looked at.
    Alive,
}

/// The observer of tmux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observer {
    /// The watcher of this connection. Its reports are in order.
    Watcher(u64),
    /// `poold` itself, for a request.
    Daemon,
}

/// The beginning of an observation: later changes may be missing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// On the clock by which records are compared.
    pub moment: Moment,
    /// On the clock by which observations are ordered.
    pub mono: Mono,
}

/// The effect of a report on the observed state.
#[derive(Debug, Clone)]
pub struct Update {
    /// True if the state of tmux changed.
    pub differs: bool,
    /// True if the report covers the whole server.
    pub complete: bool,
    /// The part that the report covers, if not the whole server.
    pub only: Option<DiffScope>,
    /// Beginning of the observation.
    pub began: Beginning,
}

/// The observed state of tmux, and the watcher.
#[derive(Debug)]
pub struct Observed {
    state: TmuxState,
    seen_at: Option<Timestamp>,
    listed_from: Option<Moment>,
    /// The last observer, and the beginning of the latest observation that the state includes.
    state_from: Option<(Observer, Mono)>,
    looked_at: Option<Timestamp>,
    resync: bool,
    transport: Option<TmuxTransport>,
    foreign: Option<ForeignSessions>,
    adopting: BTreeSet<PaneId>,
    renamed_at: BTreeMap<SessionId, Moment>,
    unattended: BTreeSet<SessionId>,
    first: bool,
    watcher: Option<Peer>,
    watcher_since: Timestamp,
    snapshots_requested: u64,
    snapshots_received: u64,
    trouble: Option<(Timestamp, String)>,
    answers_since: Timestamp,
}

impl Observed {
    /// Nothing is known yet.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: unknown_state("not looked at yet"),
            seen_at: None,
            listed_from: None,
            state_from: None,
            looked_at: None,
            resync: false,
            transport: None,
            foreign: None,
            adopting: BTreeSet::new(),
            renamed_at: BTreeMap::new(),
            unattended: BTreeSet::new(),
            first: true,
            watcher: None,
            watcher_since: now,
            snapshots_requested: 0,
            snapshots_received: 0,
            trouble: None,
            answers_since: now,
        }
    }

    /// The observed state of tmux.
    pub fn state(&self) -> &TmuxState {
        &self.state
    }

    /// The pane of an incarnation, if it is observed: another server numbers its panes anew.
    pub fn pane_of(&self, run: &Incarnation) -> Option<&TmuxPane> {
        self.state.panes.get(&run.pane?).filter(|pane| pane.tag == Some(run.tag))
    }

    /// Names of the sessions in tmux, as last observed.
    pub fn names(&self) -> Vec<String> {
        self.state.sessions.values().map(|session| session.name.clone()).collect()
    }

    /// Time of the last complete listing.
    pub fn seen_at(&self) -> Option<Timestamp> {
        self.seen_at
    }

    /// Beginning of the last complete listing of a server that answered.
    pub fn listed_from(&self) -> Option<Moment> {
        self.listed_from
    }

    /// The last trouble with observing the tmux server, which may be over, and its time.
    pub fn trouble(&self) -> Option<&(Timestamp, String)> {
        self.trouble.as_ref()
    }

    /// Time since which the tmux server has answered: that of the last observation to which it gave no answer, or else
    /// the start of `poold`.
    pub(crate) fn answers_since(&self) -> Timestamp {
        self.answers_since
    }

    /// True until the first complete observation after the start of `poold`.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// The watcher's way of noticing changes.
    pub fn transport(&self) -> Option<TmuxTransport> {
        self.transport
    }

    /// Sets the watcher's way of noticing changes.
    pub fn set_transport(&mut self, transport: TmuxTransport) {
        self.transport = Some(transport);
    }

    /// tmux sessions that are not the pool's; none before the first observation.
    pub fn foreign(&self) -> Option<&ForeignSessions> {
        self.foreign.as_ref()
    }

    /// The process of the tmux server: the observed one, else the one on record.
    pub fn server_pid(&self, pool: &Pool) -> Option<u32> {
        match self.state.server {
            Server::Up(server) => Some(server.process.pid),
            _ => pool.server().map(|server| server.process.pid),
        }
    }

    /// The connected watcher.
    pub fn watcher(&self) -> Option<&Peer> {
        self.watcher.as_ref()
    }

    /// Time since which a watcher, or none, is connected.
    pub fn watcher_since(&self) -> Timestamp {
        self.watcher_since
    }

    /// Connects a watcher, in place of any other, and forgets the state that the other one reported.
    pub fn watcher_connected(&mut self, watcher: Peer, now: Timestamp) {
        (self.watcher, self.watcher_since) = (Some(watcher), now);
        (self.transport, self.resync) = (None, false);
        self.state = unknown_state("tmux-watch has only just connected");
    }

    /// Ends a connection. Returns true if it was the watcher's.
    pub fn connection_ended(&mut self, connection: u64, now: Timestamp) -> bool {
        let is_its = self.watcher.as_ref().is_some_and(|watcher| watcher.connection == connection);
        if is_its {
            self.trouble = Some((now, "tmux-watch disconnected".to_owned()));
            (self.watcher, self.transport, self.watcher_since) = (None, None, now);
        }
        is_its
    }

    /// True if no watcher is connected and nothing was observed for `limit`.
    pub fn is_outdated(&self, pool: &Pool, now: Timestamp, limit: std::time::Duration) -> bool {
        self.watcher.is_none() && self.is_silent(pool, now, limit)
    }

    /// True if nothing was heard or observed for `limit`.
    pub fn is_silent(&self, pool: &Pool, now: Timestamp, limit: std::time::Duration) -> bool {
        self.looked_at.is_none_or(|at| pool.age(now, at) >= limit)
    }

    /// Returns true if the watcher has to send a snapshot: `poold` itself has observed tmux, and the watcher's changes
    /// are not relative to that observation. True once for each such observation.
    pub fn take_resync(&mut self) -> bool {
        std::mem::take(&mut self.resync)
    }

    /// The number of a new snapshot to request from the watcher; none without a watcher.
    pub fn request_snapshot(&mut self) -> Option<u64> {
        self.watcher.as_ref()?;
        self.snapshots_requested += 1;
        Some(self.snapshots_requested)
    }

    /// Stores that the snapshot of this number, and all before it, arrived. Returns true if that is news.
    pub fn snapshot_received(&mut self, number: u64) -> bool {
        let is_new = number <= self.snapshots_requested && number > self.snapshots_received;
        if is_new {
            self.snapshots_received = number;
        }
        is_new
    }

    /// True if the snapshot of this number arrived.
    pub fn has_snapshot(&self, number: u64) -> bool {
        self.snapshots_received >= number
    }

    /// Begins to adopt a pane. Returns false if its adoption is under way already.
    pub fn begin_adoption(&mut self, pane: PaneId) -> bool {
        self.adopting.insert(pane)
    }

    pub fn end_adoption(&mut self, pane: PaneId) {
        self.adopting.remove(&pane);
    }

    /// Stores that the last client has left a session.
    pub(super) fn note_unattended(&mut self, session: SessionId) {
        self.unattended.insert(session);
    }

    /// Returns the sessions that the last client has left, once each.
    pub fn take_unattended(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.unattended)
    }

    /// Stores that the pool itself renamed a session.
    pub fn renamed(&mut self, session: SessionId, now: Moment) {
        self.renamed_at.insert(session, now);
    }

    /// Time at which the pool itself last renamed a session.
    pub(crate) fn renamed_at(&self, session: SessionId) -> Option<Moment> {
        self.renamed_at.get(&session).copied()
    }

    /// Removes a pane whose end the reaper saw, ahead of the watcher. Another server numbers its panes anew.
    pub fn remove_pane(&mut self, server: ServerId, pane: PaneId, tag: Tag) {
        let is_its = self.state.panes.get(&pane).is_some_and(|found| found.tag == Some(tag));
        if self.state.server == Server::Up(server) && is_its {
            self.state.panes.remove(&pane);
        }
    }

    /// Forgets sessions that were deleted.
    pub fn retain(&mut self, pool: &Pool) {
        self.renamed_at.retain(|session, _| pool.session(*session).is_some());
    }

    /// True if this listing began before an observation by another observer that the state already includes. Applied
    /// now, the listing would undo newer findings.
    pub fn is_overtaken(&self, report: &Report, by: Observer, began: Beginning) -> bool {
        let newer = self.state_from.is_some_and(|(other, from)| other != by && began.mono < from);
        matches!(report, Report::Snapshot(_)) && newer
    }

    /// Applies a report, which is not overtaken, to the observed state.
    pub fn update(
        &mut self,
        pool: &Pool,
        (report, complete): (Report, bool),
        (by, began): (Observer, Beginning),
    ) -> Update {
        if !matches!(report, Report::Alive) {
            let latest = self.state_from.map_or(began.mono, |(_, from)| from.max(began.mono));
            self.state_from = Some((by, latest));
        }
        if by == Observer::Daemon {
            // A watcher's changes are not relative to this state.
            self.resync = true;
        }
        let complete = complete && !matches!(report, Report::Alive);
        let only = match &report {
            _ if complete => None,
            Report::Diff(changes) => reconcile::diff_scope(pool, &self.state, changes),
            // An incomplete report proves no absence: only a listing does.
            Report::Alive | Report::Unchanged | Report::Snapshot(_) => Some(DiffScope::default()),
        };
        Update { differs: self.replace(report), complete, only, began }
    }

    /// Returns true if the state changed.
    fn replace(&mut self, report: Report) -> bool {
        match report {
            Report::Snapshot(whole) => {
                let differs = self.state != whole;
                self.state = whole;
                differs
            }
            Report::Diff(changes) => {
                let differs = !changes.is_empty();
                changes.into_iter().for_each(|change| self.state.apply(change));
                differs
            }
            Report::Unchanged | Report::Alive => false,
        }
    }

    /// Stores that a report was handled. Returns the changes of foreign tmux sessions; those in the first
    /// observation are no news.
    pub(super) fn taken_in(&mut self, pool: &Pool, update: &Update, now: Timestamp) -> Vec<Event> {
        let known = !matches!(self.state.server, Server::Unknown(_));
        if update.complete && known {
            self.first = false;
            self.seen_at = Some(now);
            self.listed_from = self.listed_from.max(Some(update.began.moment));
        }
        self.looked_at = Some(now);
        if let Server::Unknown(silence) = &self.state.server {
            (self.trouble, self.answers_since) = (Some((now, silence.detail.clone())), now);
        }
        if !known || !(update.differs || update.complete || self.foreign.is_none()) {
            return Vec::new();
        }
        let found = foreign::foreign_sessions(pool, &self.state);
        match self.foreign.replace(found.clone()) {
            Some(before) if before != found => foreign::foreign_changes(&before, &found),
            _ => Vec::new(),
        }
    }
}

fn unknown_state(why: &str) -> TmuxState {
    TmuxState { server: Server::unknown(why), ..TmuxState::default() }
}
