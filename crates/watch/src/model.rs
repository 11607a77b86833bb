//! Known state of tmux, and the reads needed to update it. Fed with answers and notifications; reads
//! neither the clock nor processes.
//!
//! An absence counts only if an answer proves it. A pane can leave its window and its session and live on
//! elsewhere, dead or alive, so their end proves nothing about the pane. A pane is gone only if the server
//! has none of its id, or does not list it among all.

use std::collections::BTreeMap;

use process::exits::ExitStatus;
use process::inspect::program::Foreground;
use protocol::tmux::{NoAnswer, Server, TmuxPane, TmuxSession, TmuxState};
use protocol::{PaneId, ProcId, ServerId, TmuxSessionId, WindowId};
use tmux::Listing;
use tmux::live::{Notice, Reading, Scope, SessionPart};

use crate::change_set::ChangeSet;
use crate::read_queue::ReadQueue;
use crate::stamp::stamp_process;

/// Known state of tmux.
#[derive(Debug, Default)]
pub(crate) struct Model {
    state: TmuxState,
    /// Server that the state belongs to, also while it does not answer; at first the one on record, if any.
    server: Option<ServerId>,
    changes: ChangeSet,
    queue: ReadQueue,
    /// Panes read or gone since the last [`Model::take_refreshed`].
    refreshed: Vec<PaneId>,
}

impl Model {
    pub(crate) fn state(&self) -> &TmuxState {
        &self.state
    }

    /// The server seen last, or on record, unless it is proved dead.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.server
    }

    /// Takes the server on record for the one seen last, unless one was seen. The state does not show it before it
    /// answers.
    pub(crate) fn suppose(&mut self, server: Option<ServerId>) {
        self.server = self.server.or(server);
    }

    /// Takes the parts that may have changed since the last call.
    pub(crate) fn take_changes(&mut self) -> ChangeSet {
        std::mem::take(&mut self.changes)
    }

    /// Takes the panes that were read or are gone since the last call.
    pub(crate) fn take_refreshed(&mut self) -> Vec<PaneId> {
        std::mem::take(&mut self.refreshed)
    }

    /// Queues the reads that a notification calls for.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Sessions | Notice::Clients => self.queue.sessions(),
            Notice::Session(id) => self.queue.session(id),
            Notice::Window(id) => self.queue_window(id, TmuxPane::is_over),
            // The panes of a closed window are read at once, so that one answer tells which of them have ended.
            Notice::Closed(id) => self.queue_window(id, |_| true),
            Notice::Pane(id) => self.queue_pane(id),
        }
    }

    /// Queues a read of this pane.
    pub(crate) fn queue_pane(&mut self, id: PaneId) {
        self.queue.pane(id);
    }

    /// Queues reads of this window, and of those of its panes that `suspect` selects.
    fn queue_window(&mut self, id: WindowId, suspect: impl Fn(&TmuxPane) -> bool) {
        let panes = self.state.panes.iter().filter(|(_, pane)| pane.window == id);
        for (pane, known) in panes {
            self.queue.session(known.session);
            if suspect(known) {
                self.queue.pane(*pane);
            }
        }
        self.queue.window(id);
    }

    /// True if reads are queued; a read of the whole server counts only if `allowed`.
    pub(crate) fn has_reads(&self, allowed: bool) -> bool {
        self.queue.has_reads(allowed)
    }

    /// Queues a read of the whole server.
    pub(crate) fn queue_whole(&mut self) {
        self.queue.whole = true;
    }

    /// Clears the queue after a listing outside of it.
    pub(crate) fn clear_queue(&mut self) {
        self.queue = ReadQueue::default();
    }

    /// Takes the next reads; a read of the whole server only if `allowed`.
    pub(crate) fn next_batch(&mut self, allowed: bool) -> Vec<Scope> {
        self.queue.next_batch(allowed)
    }

    /// Resets the queue for a new connection: earlier requests will not be answered.
    pub(crate) fn connected(&mut self) {
        self.queue = ReadQueue::default();
        self.queue.whole = true;
    }

    /// Applies an answer.
    pub(crate) fn put_reading(
        &mut self,
        scope: Scope,
        read: Reading,
        server: ServerId,
        stamp: impl Fn(u32) -> Option<ProcId>,
    ) {
        match (scope, read) {
            (_, Reading::Alive) => {}
            (_, Reading::All(listing)) => self.put_listing(listing, server, stamp),
            (_, Reading::Sessions(sessions)) => self.put_sessions(sessions),
            (Scope::Window(id), Reading::Part(part)) => {
                self.put_part(part, |pane, _| pane.window == id, stamp);
            }
            (Scope::Pane(id), Reading::Part(None)) => self.remove_pane(id),
            (Scope::Pane(_), Reading::Part(part)) => self.put_part(part, |_, _| false, stamp),
            (Scope::Session(id), Reading::Part(None)) => self.remove_session(id),
            (_, Reading::Part(part)) => self.put_part(part, |pane, part| Some(pane.session) == part, stamp),
            (_, Reading::Shared) => self.queue.whole = true,
        }
    }

    /// Applies a whole listing.
    pub(crate) fn put_listing(
        &mut self,
        listing: Listing,
        server: ServerId,
        stamp: impl Fn(u32) -> Option<ProcId>,
    ) {
        let same = self.server.replace(server) == Some(server);
        let before = std::mem::take(&mut self.state.panes);
        let earlier = |id: &PaneId| before.get(id).filter(|_| same);
        let panes = listing.panes.into_iter();
        let panes: BTreeMap<_, _> =
            panes.map(|(id, pane)| (id, stamp_process(pane, earlier(&id), &stamp))).collect();
        self.refreshed.extend(before.keys().filter(|id| !panes.contains_key(id)));
        self.refreshed.extend(panes.keys());
        self.state = TmuxState { server: Server::Up(server), sessions: listing.sessions, panes };
        self.changes.all();
    }

    fn put_sessions(&mut self, sessions: BTreeMap<TmuxSessionId, TmuxSession>) {
        let gone: Vec<_> =
            self.state.sessions.keys().filter(|id| !sessions.contains_key(id)).copied().collect();
        gone.into_iter().for_each(|id| self.remove_session(id));
        for (id, session) in sessions {
            if !self.state.sessions.contains_key(&id) {
                self.queue.session(id);
            }
            self.put_session(id, session);
        }
    }

    fn put_session(&mut self, id: TmuxSessionId, session: TmuxSession) {
        if self.state.sessions.get(&id) != Some(&session) {
            self.state.sessions.insert(id, session);
            self.changes.session(id);
        }
    }

    fn remove_session(&mut self, id: TmuxSessionId) {
        self.state.sessions.remove(&id);
        self.changes.session(id);
        self.queue_panes(|_, pane| pane.session == id);
    }

    /// Applies a session or a part of it. Known panes that `belong` there but are missing are queued.
    fn put_part(
        &mut self,
        part: Option<SessionPart>,
        belong: impl Fn(&TmuxPane, Option<TmuxSessionId>) -> bool,
        stamp: impl Fn(u32) -> Option<ProcId>,
    ) {
        let session = part.as_ref().map(|part| part.id);
        let panes = part.map_or_else(BTreeMap::new, |part| {
            self.put_session(part.id, part.session);
            part.panes
        });
        self.queue_panes(|id, pane| belong(pane, session) && !panes.contains_key(&id));
        self.refreshed.extend(panes.keys());
        for (id, pane) in panes {
            let earlier = self.state.panes.get(&id);
            let stamped = stamp_process(pane, earlier, &stamp);
            if earlier != Some(&stamped) {
                self.state.panes.insert(id, stamped);
                self.changes.pane(id);
            }
        }
    }

    /// Queues reads of the matching panes.
    fn queue_panes(&mut self, matches: impl Fn(PaneId, &TmuxPane) -> bool) {
        let matching = self.state.panes.iter().filter(|(id, pane)| matches(**id, pane));
        matching.for_each(|(id, _)| self.queue.pane(*id));
    }

    fn remove_pane(&mut self, id: PaneId) {
        self.state.panes.remove(&id);
        self.changes.pane(id);
        self.refreshed.push(id);
    }

    /// Records the exit of a pane's process, with its status if known exactly.
    pub(crate) fn process_ended(&mut self, id: PaneId, process: ProcId, how: Option<ExitStatus>) {
        let pane = self.state.panes.get_mut(&id).filter(|pane| pane.process == Some(process));
        let Some(pane) = pane else { return };
        pane.exited = true;
        (pane.current_command, pane.current_dir) = (None, None);
        if let Some(how) = how.filter(|_| !pane.has_exit_status()) {
            (pane.exit_status, pane.exit_signal) = (how.code, how.signal);
        }
        self.changes.pane(id);
    }

    /// Records the foreground command of a pane.
    pub(crate) fn set_foreground(&mut self, id: PaneId, front: Option<Foreground>) {
        let pane = self.state.panes.get_mut(&id).filter(|pane| !pane.is_over());
        let Some(pane) = pane else { return };
        let (command, dir) = front.map_or((None, None), |front| (Some(front.command), front.dir));
        if pane.current_command != command || pane.current_dir != dir {
            (pane.current_command, pane.current_dir) = (command, dir);
            self.changes.pane(id);
        }
    }

    /// Records that the server does not answer. The rest of the state is kept.
    pub(crate) fn set_unknown(&mut self, no_answer: NoAnswer) {
        self.queue.whole = true;
        self.state.server = Server::Unknown(no_answer);
        self.changes.server();
    }

    /// Records that no server runs, and that the known one is proved dead.
    pub(crate) fn set_absent(&mut self) {
        if self.state != TmuxState::default() {
            self.refreshed.extend(self.state.panes.keys());
            self.state = TmuxState::default();
            self.changes.all();
        }
        self.server = None;
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
