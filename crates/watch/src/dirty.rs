//! What may have changed and is to be read: notices go in, batches of questions come out.

use std::collections::BTreeSet;

use protocol::{PaneId, TmuxSessionId, WindowId};
use tmux::live::Ask;

/// So many questions in one batch: the server answers the first while the last is on its way, and
/// what is asked first should not wait for what is asked for no hurry.
const BATCH: usize = 64;

/// What is to be read next.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// The whole server.
    pub(crate) all: bool,
    /// The list of sessions.
    sessions: bool,
    panes: BTreeSet<PaneId>,
    windows: BTreeSet<WindowId>,
    parts: BTreeSet<TmuxSessionId>,
}

impl Dirty {
    /// One pane, wherever it is.
    pub(crate) fn pane(&mut self, id: PaneId) {
        self.panes.insert(id);
    }

    /// One window.
    pub(crate) fn window(&mut self, id: WindowId) {
        self.windows.insert(id);
    }

    /// One session.
    pub(crate) fn session(&mut self, id: TmuxSessionId) {
        self.parts.insert(id);
    }

    /// The list of sessions.
    pub(crate) fn sessions(&mut self) {
        self.sessions = true;
    }

    /// Whether there is something to ask, where a question for the whole server is `allowed` or not.
    pub(crate) fn asks(&self, allowed: bool) -> bool {
        let parts = self.panes.is_empty() && self.windows.is_empty() && self.parts.is_empty();
        (self.all && allowed) || self.sessions || !parts
    }

    /// What to ask now: panes first, because they are waited for most; then windows and sessions, then
    /// the list of those. A question for the whole server, where one is `allowed`, makes all others
    /// needless.
    pub(crate) fn take(&mut self, allowed: bool) -> Vec<Ask> {
        if self.all && allowed {
            *self = Self::default();
            return vec![Ask::All];
        }
        let mut batch = Vec::new();
        fill(&mut batch, &mut self.panes, Ask::Pane);
        fill(&mut batch, &mut self.windows, Ask::Window);
        fill(&mut batch, &mut self.parts, Ask::Session);
        if std::mem::take(&mut self.sessions) {
            batch.push(Ask::Sessions);
        }
        batch
    }
}

/// Takes what still fits into the batch.
fn fill<T: Ord>(batch: &mut Vec<Ask>, from: &mut BTreeSet<T>, ask: impl Fn(T) -> Ask) {
    while batch.len() < BATCH
        && let Some(id) = from.pop_first()
    {
        batch.push(ask(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PaneId = PaneId(7);
    const W: WindowId = WindowId(4);
    const S: TmuxSessionId = TmuxSessionId(2);

    fn notice(dirty: &mut Dirty) {
        dirty.pane(P);
        dirty.window(W);
        dirty.session(S);
        dirty.sessions();
    }

    #[test]
    fn many_notices_are_one_question_each() {
        let mut dirty = Dirty::default();
        (0..3).for_each(|_| notice(&mut dirty));
        assert_eq!(dirty.take(true), [Ask::Pane(P), Ask::Window(W), Ask::Session(S), Ask::Sessions]);
        assert!(!dirty.asks(true) && dirty.take(true).is_empty());
    }

    #[test]
    fn the_whole_server_is_all_there_is_to_ask() {
        let mut dirty = Dirty { all: true, ..Dirty::default() };
        notice(&mut dirty);
        assert_eq!(dirty.take(false).len(), 4, "not yet");
        notice(&mut dirty);
        assert_eq!(dirty.take(true), [Ask::All]);
        assert!(!dirty.asks(true));
    }

    #[test]
    fn a_storm_comes_in_batches() {
        let mut dirty = Dirty::default();
        (0..150).for_each(|n| dirty.session(TmuxSessionId(n)));
        let sizes: Vec<usize> = (0..4).map(|_| dirty.take(true).len()).collect();
        assert_eq!(sizes, [64, 64, 22, 0]);
    }
}
