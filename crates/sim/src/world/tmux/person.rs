//! People at the terminals of agents: they begin a line and finish it later, look back in copy mode, and start another
//! program in a pane.

use std::collections::BTreeMap;

use protocol::{PaneId, ProcId, Tag, TmuxSessionId};
use tmux::{Answer, Driver, PaneRef, fake};
use tokio::time::Instant;
use world::clock::Clock;

use super::{FOREIGN, SimTmux, State};
use crate::rng::Rng;

impl State {
    /// True if tmux fails, or did so a short time ago.
    pub(super) fn is_troubled(&self) -> bool {
        self.is_stopped || self.is_unreachable || self.troubles.excuse(Instant::now())
    }
}

impl SimTmux {
    /// Attaches a terminal to a session, and detaches those of all others.
    pub(crate) fn attach_somewhere(&self, rng: &mut Rng) {
        self.detach_all();
        let sessions: Vec<TmuxSessionId> = self.state().sessions.values().copied().collect();
        if let Some(session) = rng.pick(&sessions) {
            self.attach(*session, 9);
            self.note_active(*session);
        }
    }

    /// Attaches the terminal of this number to a session.
    fn attach(&self, session: TmuxSessionId, terminal: u32) {
        self.0.fake.attach(session, fake::terminal(terminal));
        self.state().visited.insert(session);
    }

    /// Detaches all terminals.
    pub(crate) fn detach_all(&self) {
        let sessions: Vec<TmuxSessionId> = self.state().sessions.values().copied().collect();
        sessions.into_iter().for_each(|session| self.0.fake.detach(session));
    }

    /// Begins a line in the empty composer of an agent. The person stays at the terminal, or leaves it with the line.
    /// Returns its pane; `None` if there is none.
    pub(crate) async fn begin_line(&self, rng: &mut Rng, stays: bool) -> Option<PaneRef> {
        let pane =
            pick(rng, &self.state(), |state, pane| state.screens.is_empty(pane, &self.0.fake.typed(pane)))?;
        self.type_by_hand(pane, format!("words {}", rng.below(1000)).as_bytes()).await.then_some(())?;
        let now = self.0.clock.now().0 / 1000;
        let mut state = self.state();
        state.screens.begin_line(pane.pane, stays.then_some(now));
        let session = state.sessions.get(&pane.pane).copied().filter(|_| stays);
        drop(state);
        session.into_iter().for_each(|session| self.attach(session, 8));
        Some(pane)
    }

    /// True if the agent of this incarnation shows that it waits for a prompt, and nothing is in its composer.
    pub(crate) fn is_composer_empty(&self, tag: Tag) -> bool {
        let state = self.state();
        let pane = state.inits.iter().find(|(_, (found, _))| *found == tag).map(|(pane, _)| *pane);
        pane.is_some_and(|pane| state.screens.is_empty(pane, &self.0.fake.typed(pane)))
    }

    /// Enters the line that was begun in a pane, or deletes it with all else in the composer.
    pub(crate) async fn end_line(&self, pane: PaneRef, enters: bool) {
        if !self.has_pane(pane.tag) {
            return;
        }
        if enters {
            self.type_by_hand(pane, b" by hand\r").await;
        } else {
            self.empty_composer(pane.tag);
        }
        let mut state = self.state();
        state.screens.end_line(pane.pane);
        state.screens.forget_typist(pane.pane);
        let session = state.sessions.get(&pane.pane).copied();
        drop(state);
        session.into_iter().for_each(|session| self.0.fake.detach(session));
    }

    /// Checks that an incarnation is idle when its pane is closed for lack of use.
    pub(crate) fn check_rest(&self, tag: Tag) {
        // After its failures tmux may close the pane long after it was asked to.
        if !self.is_troubled() {
            self.0.judge.hung_up_unattended(tag);
        }
    }

    /// Returns the dialog or the person's line that a text typed now would go into, if whoever types can have seen it.
    /// After failures of tmux a call may come late, which proves nothing.
    pub(super) fn obstacle(&self, pane: PaneId, is_paste: bool) -> Option<&'static str> {
        let state = self.state();
        let is_seen = state.climate.has_adapter && !state.is_troubled();
        let line = || (is_paste && state.screens.has_line(pane)).then_some("the line of a person");
        state.screens.has_dialog(pane).then_some("a dialog").or_else(line).filter(|_| is_seen)
    }

    /// Notes that a call fails now, or has its effect late.
    pub(super) fn note_trouble(&self) {
        self.state().troubles.note();
    }

    /// True if tmux fails, or did so a short time ago.
    pub(super) fn is_troubled(&self) -> bool {
        self.state().is_troubled()
    }

    /// True if tmux failed a short time before this one.
    pub(crate) fn was_troubled(&self, at: Instant) -> bool {
        self.state().troubles.excuse(at)
    }

    /// Stops or continues the server.
    pub(crate) fn set_stopped(&self, is_stopped: bool) {
        let mut state = self.state();
        state.troubles.note();
        state.is_stopped = is_stopped;
    }

    /// Hides the socket, or puts it back.
    pub(crate) fn set_unreachable(&self, is_unreachable: bool) {
        let mut state = self.state();
        state.troubles.note();
        state.is_unreachable = is_unreachable;
    }

    /// True while the server is stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Returns the incarnations whose panes the server has, each with the name of its tmux session.
    pub(crate) async fn panes(&self) -> BTreeMap<Tag, String> {
        let Ok(listing) = self.0.fake.observe().await else { return BTreeMap::new() };
        let name = |session: &TmuxSessionId| listing.sessions.get(session).map(|found| found.name.clone());
        let tagged = listing.panes.values().filter_map(|pane| Some((pane.tag?, name(&pane.session)?)));
        tagged.collect()
    }

    /// True if there is a server.
    pub(crate) fn has_server(&self) -> bool {
        self.state().server.is_some()
    }

    /// True if a client is attached to the running program of this pane, and whoever closes the pane can know that:
    /// after its failures tmux may close it long after it was asked to.
    pub(super) async fn is_attended(&self, pane: PaneRef) -> bool {
        let Some(session) = self.session_of_running(pane) else { return false };
        self.0.fake.clients(pane, session).await.is_ok_and(|clients| !clients.is_empty())
    }

    fn session_of_running(&self, pane: PaneRef) -> Option<TmuxSessionId> {
        let state = self.state();
        let (_, init) = state.inits.get(&pane.pane).filter(|(tag, _)| *tag == pane.tag)?;
        let runs = self.0.machine.lives(*init) && !self.0.machine.is_hung_up(*init);
        let session = state.sessions.get(&pane.pane).copied();
        session.filter(|_| runs && !state.is_troubled())
    }

    /// True if the pane of this incarnation was closed although the pool could have seen that a person had a line in
    /// it.
    pub(crate) fn lost_line(&self, tag: Tag) -> bool {
        let state = self.state();
        state.climate.has_adapter && !state.unsettled.contains(&tag) && state.screens.lost_line(tag)
    }

    /// Replaces the program in some pane of the pool by a process of a person. The pane keeps its id but has no tag any
    /// more, since the tag belongs to the earlier program. `None` if there is no such pane.
    pub(crate) fn respawn(&self, rng: &mut Rng, process: ProcId) -> Option<PaneRef> {
        let mut state = self.state();
        let pane = pick(rng, &state, |_, _| true)?;
        state.screens.close(pane);
        state.screens.clear(pane.pane);
        let before = state.inits.insert(pane.pane, (FOREIGN, process));
        drop(state);
        self.0.fake.change(pane.pane, |found| {
            (found.tag, found.pid, found.dead, found.in_mode) = (None, process.pid, false, false);
        });
        before.into_iter().for_each(|(_, init)| self.0.machine.hang_up(init));
        Some(pane)
    }

    /// Enters copy mode in some pane of the pool. `None` if there is none.
    pub(crate) fn enter_mode(&self, rng: &mut Rng) -> Option<PaneRef> {
        let pane = pick(rng, &self.state(), |_, _| true)?;
        self.set_mode(pane, true);
        Some(pane)
    }

    /// Leaves copy mode in a pane.
    pub(crate) fn leave_mode(&self, pane: PaneRef) {
        if self.has_pane(pane.tag) {
            self.set_mode(pane, false);
        }
    }

    fn set_mode(&self, pane: PaneRef, in_mode: bool) {
        self.state().screens.set_mode(pane.pane, in_mode);
        self.0.fake.change(pane.pane, |found| found.in_mode = in_mode);
        self.0.typed.notify_waiters();
    }

    /// Types into a pane. False if that is not possible.
    async fn type_by_hand(&self, pane: PaneRef, bytes: &[u8]) -> bool {
        let is_done = matches!(self.0.fake.input(pane, bytes).await, Ok(Answer::Done));
        if is_done {
            self.0.judge.typed(pane.tag, bytes, false);
            self.0.typed.notify_waiters();
        }
        is_done
    }
}

/// Picks a pane of the pool in which this is so.
fn pick(rng: &mut Rng, state: &State, is_so: impl Fn(&State, PaneId) -> bool) -> Option<PaneRef> {
    let (server, _) = state.server.filter(|_| !state.is_stopped)?;
    let panes = state.inits.iter().filter(|(pane, (tag, _))| *tag != FOREIGN && is_so(state, **pane));
    let panes: Vec<PaneRef> =
        panes.map(|(pane, (tag, _))| PaneRef { server, pane: *pane, tag: *tag }).collect();
    rng.pick(&panes).copied()
}
