//! tmux as far as it is known, and what of it is to be read next. Answers and notices go in; it has
//! no clock, and looks at no process itself.
//!
//! That something is gone is believed only where an answer proves it. A pane may leave its window
//! and its session and live on elsewhere, dead or alive; so their end proves nothing of it. It is gone
//! where the server, asked for this very pane, has none, or does not list it with all the others.

use std::collections::BTreeMap;

use process::exits::Ended;
use process::place::Front;
use protocol::tmux::{Server, Silence, TmuxPane, TmuxSession, TmuxState};
use protocol::{PaneId, ProcId, ServerId, TmuxSessionId, WindowId};
use tmux::Listing;
use tmux::live::{Ask, Notice, Part, Read};

use crate::dirty::Dirty;
use crate::settle::settle;
use crate::touched::Touched;

/// tmux as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Model {
    state: TmuxState,
    /// The server that the state is of, also while it is silent.
    server: Option<ServerId>,
    touched: Touched,
    dirty: Dirty,
    /// Panes that were read, or are gone, since this was last asked.
    read: Vec<PaneId>,
}

impl Model {
    pub(crate) fn state(&self) -> &TmuxState {
        &self.state
    }

    /// The server that was seen last, unless it is proved dead.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.server
    }

    /// What may have changed since this was last asked.
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// The panes that were read or are gone since this was last asked.
    pub(crate) fn take_read(&mut self) -> Vec<PaneId> {
        std::mem::take(&mut self.read)
    }

    /// Something may have changed.
    pub(crate) fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Sessions | Notice::Clients => self.dirty.sessions(),
            Notice::Session(id) => self.dirty.session(id),
            Notice::Window(id) => self.window_is_dirty(id, TmuxPane::is_over),
            // Its panes are asked for at once, so that what ended with it is known with one answer.
            Notice::Closed(id) => self.window_is_dirty(id, |_| true),
            Notice::Pane(id) => self.reread(id),
        }
    }

    /// What is known of this pane may be wrong.
    pub(crate) fn reread(&mut self, id: PaneId) {
        self.dirty.pane(id);
    }

    /// This window may be other than known, and those of its panes that are `suspect`.
    fn window_is_dirty(&mut self, id: WindowId, suspect: impl Fn(&TmuxPane) -> bool) {
        let panes = self.state.panes.iter().filter(|(_, pane)| pane.window == id);
        for (pane, known) in panes {
            self.dirty.session(known.session);
            if suspect(known) {
                self.dirty.pane(*pane);
            }
        }
        self.dirty.window(id);
    }

    /// Whether something is to be read; everything only where that is `allowed`.
    pub(crate) fn asks(&self, allowed: bool) -> bool {
        self.dirty.asks(allowed)
    }

    /// Everything is to be read.
    pub(crate) fn doubt_all(&mut self) {
        self.dirty.all = true;
    }

    /// Everything was read, by other means than questions.
    pub(crate) fn clean(&mut self) {
        self.dirty = Dirty::default();
    }

    /// What to ask now; everything only where that is `allowed`.
    pub(crate) fn batch(&mut self, allowed: bool) -> Vec<Ask> {
        self.dirty.take(allowed)
    }

    /// Another server is asked, or the same one anew: what was asked before is not answered any more.
    pub(crate) fn connected(&mut self) {
        self.dirty = Dirty::default();
        self.dirty.all = true;
    }

    /// Takes an answer in.
    pub(crate) fn read(
        &mut self,
        ask: Ask,
        read: Read,
        server: ServerId,
        stamp: impl Fn(u32) -> Option<ProcId>,
    ) {
        match (ask, read) {
            (_, Read::Alive) => {}
            (_, Read::All(listing)) => self.all(listing, server, stamp),
            (_, Read::Sessions(sessions)) => self.sessions(sessions),
            (Ask::Window(id), Read::Part(part)) => {
                self.part(part, |pane, _| pane.window == id, stamp);
            }
            (Ask::Pane(id), Read::Part(None)) => self.pane_is_gone(id),
            (Ask::Pane(_), Read::Part(part)) => self.part(part, |_, _| false, stamp),
            (Ask::Session(id), Read::Part(None)) => self.session_is_gone(id),
            (_, Read::Part(part)) => self.part(part, |pane, part| Some(pane.session) == part, stamp),
            (_, Read::Shared) => self.dirty.all = true,
        }
    }

    /// Takes a whole listing in.
    pub(crate) fn all(&mut self, listing: Listing, server: ServerId, stamp: impl Fn(u32) -> Option<ProcId>) {
        let same = self.server.replace(server) == Some(server);
        let before = std::mem::take(&mut self.state.panes);
        let earlier = |id: &PaneId| before.get(id).filter(|_| same);
        let panes = listing.panes.into_iter();
        let panes: BTreeMap<_, _> =
            panes.map(|(id, pane)| (id, settle(pane, earlier(&id), &stamp))).collect();
        self.read.extend(before.keys().filter(|id| !panes.contains_key(id)));
        self.read.extend(panes.keys());
        self.state = TmuxState { server: Server::Up(server), sessions: listing.sessions, panes };
        self.touched.all();
    }

    fn sessions(&mut self, sessions: BTreeMap<TmuxSessionId, TmuxSession>) {
        let gone: Vec<_> =
            self.state.sessions.keys().filter(|id| !sessions.contains_key(id)).copied().collect();
        gone.into_iter().for_each(|id| self.session_is_gone(id));
        for (id, session) in sessions {
            if !self.state.sessions.contains_key(&id) {
                self.dirty.session(id);
            }
            self.session_is(id, session);
        }
    }

    fn session_is(&mut self, id: TmuxSessionId, session: TmuxSession) {
        if self.state.sessions.get(&id) != Some(&session) {
            self.state.sessions.insert(id, session);
            self.touched.session(id);
        }
    }

    fn session_is_gone(&mut self, id: TmuxSessionId) {
        self.state.sessions.remove(&id);
        self.touched.session(id);
        self.doubt_panes(|_, pane| pane.session == id);
    }

    /// Takes a session in, or a part of it. Of the panes that `belong` there and are not in it, each is
    /// asked for.
    fn part(
        &mut self,
        part: Option<Part>,
        belong: impl Fn(&TmuxPane, Option<TmuxSessionId>) -> bool,
        stamp: impl Fn(u32) -> Option<ProcId>,
    ) {
        let session = part.as_ref().map(|part| part.id);
        let panes = part.map_or_else(BTreeMap::new, |part| {
            self.session_is(part.id, part.session);
            part.panes
        });
        self.doubt_panes(|id, pane| belong(pane, session) && !panes.contains_key(&id));
        self.read.extend(panes.keys());
        for (id, pane) in panes {
            let earlier = self.state.panes.get(&id);
            let settled = settle(pane, earlier, &stamp);
            if earlier != Some(&settled) {
                self.state.panes.insert(id, settled);
                self.touched.pane(id);
            }
        }
    }

    /// These panes are to be asked for.
    fn doubt_panes(&mut self, which: impl Fn(PaneId, &TmuxPane) -> bool) {
        let doubted = self.state.panes.iter().filter(|(id, pane)| which(**id, pane));
        doubted.for_each(|(id, _)| self.dirty.pane(*id));
    }

    fn pane_is_gone(&mut self, id: PaneId) {
        self.state.panes.remove(&id);
        self.touched.pane(id);
        self.read.push(id);
    }

    /// The process of this pane has ended, in this way where that is known exactly.
    pub(crate) fn ended(&mut self, id: PaneId, process: ProcId, how: Option<Ended>) {
        let pane = self.state.panes.get_mut(&id).filter(|pane| pane.process == Some(process));
        let Some(pane) = pane else { return };
        pane.exited = true;
        (pane.current_command, pane.current_dir) = (None, None);
        if let Some(how) = how.filter(|_| !pane.has_known_end()) {
            (pane.exit_status, pane.exit_signal) = (how.code, how.signal);
        }
        self.touched.pane(id);
    }

    /// This runs in the foreground of a pane.
    pub(crate) fn front(&mut self, id: PaneId, front: Option<Front>) {
        let pane = self.state.panes.get_mut(&id).filter(|pane| !pane.is_over());
        let Some(pane) = pane else { return };
        let (command, dir) = front.map_or((None, None), |front| (Some(front.command), front.dir));
        if pane.current_command != command || pane.current_dir != dir {
            (pane.current_command, pane.current_dir) = (command, dir);
            self.touched.pane(id);
        }
    }

    /// The server does not answer. What it showed stays: nothing was learnt.
    pub(crate) fn silent(&mut self, silence: Silence) {
        self.dirty.all = true;
        self.state.server = Server::Unknown(silence);
        self.touched.server();
    }

    /// There is no server, and the one there was is proved dead.
    pub(crate) fn absent(&mut self) {
        if self.state != TmuxState::default() {
            self.read.extend(self.state.panes.keys());
            self.state = TmuxState::default();
            self.touched.all();
        }
        self.server = None;
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
