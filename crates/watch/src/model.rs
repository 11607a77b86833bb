//! tmux as far as it is known, and what of it is to be read next. Answers and notices go in; it has
//! no clock, and looks at no process itself.
//!
//! That something is gone is believed only where an answer proves it. A pane may leave its window
//! and live on in another, or be shown by several sessions; so the end of a session proves nothing of
//! its panes while their programs live, and the end of a window only when the other windows that
//! were asked for with it are known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use process::exits::Ended;
use process::place::Front;
use protocol::tmux::{Server, Silence, TmuxPane, TmuxSession, TmuxState};
use protocol::{PaneId, ProcId, ServerId, TmuxSessionId, WindowId};
use tmux::Listing;
use tmux::live::{Ask, Notice, Part, Read};

use crate::dirty::Dirty;
use crate::settle::{is_known, is_over, settle};
use crate::touched::Touched;

/// tmux as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Model {
    state: TmuxState,
    /// The server that the state is of, also while it is silent.
    server: Option<ServerId>,
    touched: Touched,
    dirty: Dirty,
    /// Questions that are not answered, in the order in which they were asked.
    asked: VecDeque<Ask>,
    /// Windows that this batch found gone.
    closed: BTreeSet<WindowId>,
    /// Sessions that this batch found to have come or gone.
    came_or_went: usize,
    /// Windows that a session shows though they are known as those of a lower one, until the whole
    /// server is read; and those of which that said that both show them.
    doubted: BTreeMap<WindowId, TmuxSessionId>,
    linked: BTreeSet<WindowId>,
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
            Notice::Sessions => self.dirty.came_or_went(),
            Notice::Session(id) => self.dirty.session(id),
            Notice::Window(id) => {
                self.linked.remove(&id);
                self.window_is_dirty(id);
            }
            Notice::Pane(id) => self.reread(id),
            Notice::Clients => self.dirty.sessions(),
        }
    }

    /// What is known of this pane may be wrong.
    pub(crate) fn reread(&mut self, id: PaneId) {
        match self.state.panes.get(&id).map(|pane| pane.window) {
            Some(window) => self.dirty.window(window, None),
            None => self.dirty.all = true,
        }
    }

    fn window_is_dirty(&mut self, id: WindowId) {
        let shown = self.state.panes.values().find(|pane| pane.window == id).map(|pane| pane.session);
        self.dirty.window(id, shown);
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

    /// What to ask now; everything only where that is `allowed`. Not before all is answered.
    pub(crate) fn batch(&mut self, allowed: bool) -> Vec<Ask> {
        let batch = self.dirty.take(allowed);
        self.asked.extend(&batch);
        batch
    }

    /// Another server is asked, or the same one anew: what was asked before is not answered any more.
    pub(crate) fn connected(&mut self) {
        (self.asked, self.closed, self.came_or_went) = (VecDeque::new(), BTreeSet::new(), 0);
        self.dirty = Dirty::default();
        self.dirty.all = true;
    }

    /// Takes the answer to the oldest question in.
    pub(crate) fn read(
        &mut self,
        ask: Ask,
        read: Read,
        server: ServerId,
        stamp: impl Fn(u32) -> Option<ProcId>,
    ) {
        if self.asked.front() == Some(&ask) {
            self.asked.pop_front();
        }
        match (ask, read) {
            (_, Read::Alive) => {}
            (_, Read::All(listing)) => self.all(listing, server, stamp),
            (_, Read::Sessions(sessions)) => self.sessions(sessions),
            (Ask::Window(window), Read::Part(Some(part))) => self.part(part, Some(window), stamp),
            (Ask::Window(window), Read::Part(None)) => drop(self.closed.insert(window)),
            (_, Read::Part(Some(part))) => self.part(part, None, stamp),
            (Ask::Session(id), Read::Part(None)) => self.session_is_gone(id),
            (_, Read::Part(None)) => self.dirty.all = true,
        }
        if !self.asked.iter().any(|ask| matches!(ask, Ask::Window(_))) {
            self.settle_closed();
        }
        if self.asked.is_empty() {
            self.dirty.explained(std::mem::take(&mut self.came_or_went));
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
        let windows: BTreeSet<WindowId> = self.state.panes.values().map(|pane| pane.window).collect();
        self.linked.retain(|window| windows.contains(window));
        for (window, by) in std::mem::take(&mut self.doubted) {
            if self.state.panes.values().any(|pane| pane.window == window && pane.session != by) {
                self.linked.insert(window);
            }
        }
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
            self.came_or_went += usize::from(self.state.sessions.insert(id, session).is_none());
            self.touched.session(id);
        }
    }

    fn session_is_gone(&mut self, id: TmuxSessionId) {
        self.came_or_went += usize::from(self.state.sessions.remove(&id).is_some());
        self.touched.session(id);
        let left = self.panes_where(|pane| pane.session == id);
        self.are_missing(&left, |model, window| model.dirty.window(window, None));
    }

    /// Takes a session in, or one `window` of it.
    fn part(&mut self, part: Part, window: Option<WindowId>, stamp: impl Fn(u32) -> Option<ProcId>) {
        self.session_is(part.id, part.session);
        let known = self.panes_where(|pane| match window {
            Some(window) => pane.window == window,
            None => pane.session == part.id,
        });
        let missing: Vec<PaneId> = known.into_iter().filter(|id| !part.panes.contains_key(id)).collect();
        self.read.extend(part.panes.keys());
        for (id, pane) in part.panes {
            let earlier = self.state.panes.get(&id);
            let mut settled = settle(pane, earlier, &stamp);
            if let Some(shown) = earlier.filter(|shown| shown.window == settled.window).map(|p| p.session)
                && shown < settled.session
                && self.state.sessions.contains_key(&shown)
            {
                if !self.linked.contains(&settled.window) {
                    self.doubted.insert(settled.window, settled.session);
                    self.dirty.all = true;
                }
                settled.session = shown;
            }
            if earlier != Some(&settled) {
                self.state.panes.insert(id, settled);
                self.touched.pane(id);
            }
        }
        self.are_missing(&missing, |model, its_window| match window {
            Some(_) => model.dirty.all = true,
            None => model.dirty.window(its_window, None),
        });
    }

    /// These panes are not where they were. Gone they are if their programs have ended; else `doubt`
    /// their windows.
    fn are_missing(&mut self, panes: &[PaneId], doubt: impl Fn(&mut Self, WindowId)) {
        for id in panes {
            let Some(pane) = self.state.panes.get(id) else { continue };
            if is_over(pane) {
                self.pane_is_gone(*id);
            } else {
                doubt(self, pane.window);
            }
        }
    }

    /// All windows that were asked for are known: what is still in one of those that closed is gone.
    fn settle_closed(&mut self) {
        let closed = std::mem::take(&mut self.closed);
        if !closed.is_empty() {
            let gone = self.panes_where(|pane| closed.contains(&pane.window));
            gone.into_iter().for_each(|id| self.pane_is_gone(id));
        }
    }

    fn pane_is_gone(&mut self, id: PaneId) {
        self.state.panes.remove(&id);
        self.touched.pane(id);
        self.read.push(id);
    }

    fn panes_where(&self, is_so: impl Fn(&TmuxPane) -> bool) -> Vec<PaneId> {
        self.state.panes.iter().filter(|(_, pane)| is_so(pane)).map(|(id, _)| *id).collect()
    }

    /// The process of this pane has ended, in this way where that is known exactly.
    pub(crate) fn ended(&mut self, id: PaneId, process: ProcId, how: Option<Ended>) {
        let pane = self.state.panes.get_mut(&id).filter(|pane| pane.process == Some(process));
        let Some(pane) = pane else { return };
        pane.exited = true;
        (pane.current_command, pane.current_dir) = (None, None);
        if let Some(how) = how.filter(|_| !is_known(pane)) {
            (pane.exit_status, pane.exit_signal) = (how.code, how.signal);
        }
        self.touched.pane(id);
    }

    /// This runs in the foreground of a pane.
    pub(crate) fn front(&mut self, id: PaneId, front: Option<Front>) {
        let pane = self.state.panes.get_mut(&id).filter(|pane| !is_over(pane));
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
