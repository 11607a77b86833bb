//! What may have changed and is to be read: notices go in, batches of questions come out.

use std::collections::BTreeSet;

use protocol::{TmuxSessionId, WindowId};
use tmux::live::Ask;

/// So many questions in one batch: the server answers the first while the last is on its way, and
/// what is asked first should not wait for what is asked for no hurry.
const BATCH: usize = 64;

/// What is to be read next.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// The whole server.
    pub(crate) all: bool,
    /// Whether a session came or went that no window spoke of.
    sessions: bool,
    /// Notices of sessions that came or went, which the windows that are read should explain.
    coming_or_going: usize,
    windows: BTreeSet<WindowId>,
    parts: BTreeSet<TmuxSessionId>,
}

impl Dirty {
    /// One window, and the session that shows it, where that is known.
    pub(crate) fn window(&mut self, id: WindowId, session: Option<TmuxSessionId>) {
        self.windows.insert(id);
        self.parts.extend(session);
    }

    /// One session.
    pub(crate) fn session(&mut self, id: TmuxSessionId) {
        self.parts.insert(id);
    }

    /// The list of sessions.
    pub(crate) fn sessions(&mut self) {
        self.sessions = true;
    }

    /// A session came or went.
    pub(crate) fn came_or_went(&mut self) {
        self.coming_or_going += 1;
    }

    /// So many sessions were seen to come or go.
    pub(crate) fn explained(&mut self, count: usize) {
        self.coming_or_going = self.coming_or_going.saturating_sub(count);
        if self.windows.is_empty() && self.parts.is_empty() && self.coming_or_going > 0 {
            self.sessions = true;
        }
    }

    /// Whether there is something to ask, where a question for the whole server is `allowed` or not.
    pub(crate) fn asks(&self, allowed: bool) -> bool {
        let list = self.sessions || self.coming_or_going > 0;
        (self.all && allowed) || list || !self.windows.is_empty() || !self.parts.is_empty()
    }

    /// What to ask now: windows first, because a pane that left one may be in another; then sessions,
    /// then the list of them, only where nothing else says who came or went. A question for the whole
    /// server, where one is `allowed`, makes all others needless.
    pub(crate) fn take(&mut self, allowed: bool) -> Vec<Ask> {
        if self.all && allowed {
            *self = Self::default();
            return vec![Ask::All];
        }
        let mut batch: Vec<Ask> = Vec::new();
        while batch.len() < BATCH
            && let Some(id) = self.windows.pop_first()
        {
            batch.push(Ask::Window(id));
        }
        while batch.len() < BATCH
            && let Some(id) = self.parts.pop_first()
        {
            batch.push(Ask::Session(id));
        }
        if self.sessions || (batch.is_empty() && self.coming_or_going > 0) {
            (self.sessions, self.coming_or_going) = (false, 0);
            batch.push(Ask::Sessions);
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const W: WindowId = WindowId(4);
    const S: TmuxSessionId = TmuxSessionId(2);

    #[test]
    fn many_notices_are_one_question_each() {
        let mut dirty = Dirty::default();
        for _ in 0..3 {
            dirty.window(W, Some(S));
            dirty.session(S);
        }
        assert_eq!(dirty.take(true), [Ask::Window(W), Ask::Session(S)]);
        assert!(!dirty.asks(true) && dirty.take(true).is_empty());
    }

    #[test]
    fn the_list_of_sessions_is_asked_for_where_no_window_explains_the_notice() {
        let mut dirty = Dirty::default();
        dirty.came_or_went();
        assert_eq!(dirty.take(true), [Ask::Sessions]);
        dirty.came_or_went();
        dirty.window(W, None);
        assert_eq!(dirty.take(true), [Ask::Window(W)]);
        dirty.explained(1);
        assert!(!dirty.asks(true));
        dirty.came_or_went();
        dirty.window(W, None);
        assert_eq!(dirty.take(true), [Ask::Window(W)]);
        dirty.explained(0);
        assert_eq!(dirty.take(true), [Ask::Sessions]);
        assert!(!dirty.asks(true));
    }

    #[test]
    fn the_whole_server_is_all_there_is_to_ask() {
        let mut dirty = Dirty { all: true, ..Dirty::default() };
        dirty.window(W, Some(S));
        assert_eq!(dirty.take(false), [Ask::Window(W), Ask::Session(S)], "not yet");
        dirty.window(W, Some(S));
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
