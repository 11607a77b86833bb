//! Queue of reads: notifications go in, batches of requests come out.

use std::collections::BTreeSet;

use protocol::{PaneId, TmuxSessionId, WindowId};
use tmux::live::Scope;

/// Maximum size of a batch: large enough that the server answers the first read while the last is on its
/// way, and small enough that urgent reads do not wait for others.
const BATCH: usize = 64;

/// Pending reads, each at most once.
#[derive(Debug, Default)]
pub(crate) struct ReadQueue {
    /// True if the whole server is to be read.
    pub(crate) whole: bool,
    /// True if the list of sessions is to be read.
    sessions: bool,
    panes: BTreeSet<PaneId>,
    windows: BTreeSet<WindowId>,
    single_sessions: BTreeSet<TmuxSessionId>,
}

impl ReadQueue {
    /// Queues a pane.
    pub(crate) fn pane(&mut self, id: PaneId) {
        self.panes.insert(id);
    }

    /// Queues a window.
    pub(crate) fn window(&mut self, id: WindowId) {
        self.windows.insert(id);
    }

    /// Queues a session.
    pub(crate) fn session(&mut self, id: TmuxSessionId) {
        self.single_sessions.insert(id);
    }

    /// Queues the list of sessions.
    pub(crate) fn sessions(&mut self) {
        self.sessions = true;
    }

    /// True if reads are queued; a read of the whole server counts only if `allowed`.
    pub(crate) fn has_reads(&self, allowed: bool) -> bool {
        let single_sessions =
            self.panes.is_empty() && self.windows.is_empty() && self.single_sessions.is_empty();
        (self.whole && allowed) || self.sessions || !single_sessions
    }

    /// Takes the next batch: panes first, because they are the most urgent; then windows, sessions and the
    /// list of sessions. A read of the whole server, if `allowed`, replaces all others.
    pub(crate) fn next_batch(&mut self, allowed: bool) -> Vec<Scope> {
        if self.whole && allowed {
            *self = Self::default();
            return vec![Scope::All];
        }
        let mut batch = Vec::new();
        fill(&mut batch, &mut self.panes, Scope::Pane);
        fill(&mut batch, &mut self.windows, Scope::Window);
        fill(&mut batch, &mut self.single_sessions, Scope::Session);
        if std::mem::take(&mut self.sessions) {
            batch.push(Scope::Sessions);
        }
        batch
    }
}

/// Moves ids into the batch until it is full.
fn fill<T: Ord>(batch: &mut Vec<Scope>, from: &mut BTreeSet<T>, scope: impl Fn(T) -> Scope) {
    while batch.len() < BATCH
        && let Some(id) = from.pop_first()
    {
        batch.push(scope(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PaneId = PaneId(7);
    const W: WindowId = WindowId(4);
    const S: TmuxSessionId = TmuxSessionId(2);

    fn notice(queue: &mut ReadQueue) {
        queue.pane(P);
        queue.window(W);
        queue.session(S);
        queue.sessions();
    }

    #[test]
    fn many_notices_are_one_question_each() {
        let mut queue = ReadQueue::default();
        (0..3).for_each(|_| notice(&mut queue));
        assert_eq!(
            queue.next_batch(true),
            [Scope::Pane(P), Scope::Window(W), Scope::Session(S), Scope::Sessions]
        );
        assert!(!queue.has_reads(true) && queue.next_batch(true).is_empty());
    }

    #[test]
    fn the_whole_server_is_all_there_is_to_ask() {
        let mut queue = ReadQueue { whole: true, ..ReadQueue::default() };
        notice(&mut queue);
        assert_eq!(queue.next_batch(false).len(), 4, "not yet");
        notice(&mut queue);
        assert_eq!(queue.next_batch(true), [Scope::All]);
        assert!(!queue.has_reads(true));
    }

    #[test]
    fn a_storm_comes_in_batches() {
        let mut queue = ReadQueue::default();
        (0..150).for_each(|n| queue.session(TmuxSessionId(n)));
        let sizes: Vec<usize> = (0..4).map(|_| queue.next_batch(true).len()).collect();
        assert_eq!(sizes, [64, 64, 22, 0]);
    }
}
