//! The volatile half of scheduling: sessions in transition, the queue for slots, samples of silence. Gone when `poold`
//! ends: what it decides is decided again from the record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::tmux::TmuxState;
use protocol::{Session, SessionId, Tag, Timestamp, TmuxSessionId};

use crate::pool::Pool;
use crate::scheduler::wait_queue::WaitQueue;

/// Time for which a session that could not be parked is left alone, at least. It doubles each time.
const KEPT_MIN: Duration = Duration::from_secs(10);
/// Upper bound of that time.
const KEPT_MAX: Duration = Duration::from_secs(10 * 60);
/// Greatest age of a sample of silence that decisions are based on.
const QUIET_AGE_MAX: Duration = Duration::from_millis(200);

/// A session that was not parked, because something would have been lost.
#[derive(Debug, Clone, Copy)]
struct Kept {
    tag: Tag,
    at: Timestamp,
    pause: Duration,
}

/// Sessions in transition, and who waits for a slot.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Requests and sessions that wait for a slot.
    pub waiting: WaitQueue,
    starting: BTreeSet<SessionId>,
    removing: BTreeSet<SessionId>,
    drained: BTreeSet<SessionId>,
    over_quantum: BTreeSet<SessionId>,
    kept: BTreeMap<SessionId, Kept>,
    conversations_judged: BTreeMap<Tag, bool>,
    restored: bool,
    quiet_at: Option<Timestamp>,
    quiet_since: BTreeMap<SessionId, Timestamp>,
}

impl Scheduler {
    /// Claims the start of a session. Returns false if it is being started already.
    pub fn begin_start(&mut self, session: SessionId) -> bool {
        self.starting.insert(session)
    }

    /// The start of a session is over.
    pub fn end_start(&mut self, session: SessionId) {
        self.starting.remove(&session);
    }

    /// True while a session is being started.
    #[must_use]
    pub fn is_starting(&self, session: SessionId) -> bool {
        self.starting.contains(&session)
    }

    /// The sessions that are being started.
    pub fn starting(&self) -> impl Iterator<Item = SessionId> {
        self.starting.iter().copied()
    }

    /// Claims the removal of a session. Returns false if it is being removed already.
    pub fn begin_removal(&mut self, session: SessionId) -> bool {
        self.removing.insert(session)
    }

    /// The removal of a session is over.
    pub fn end_removal(&mut self, session: SessionId) {
        self.removing.remove(&session);
    }

    /// Draining sessions that have worked off their queues and are at rest.
    #[must_use]
    pub fn drained(&self) -> &BTreeSet<SessionId> {
        &self.drained
    }

    /// Sets the draining sessions that are done. Returns true if they differ from those before.
    pub fn set_drained(&mut self, drained: BTreeSet<SessionId>) -> bool {
        let differs = self.drained != drained;
        self.drained = drained;
        differs
    }

    /// Sets the sessions that have had their turn.
    pub fn set_over_quantum(&mut self, sessions: BTreeSet<SessionId>) {
        self.over_quantum = sessions;
    }

    /// True if a session gives way between two messages: it has had its turn, and others wait for a slot.
    #[must_use]
    pub fn gives_way(&self, session: SessionId) -> bool {
        self.waiting.len() > 0 && self.over_quantum.contains(&session)
    }

    /// Returns true once, when the state of all sessions at the start of `poold` is known.
    pub fn begin_restore(&mut self) -> bool {
        !std::mem::replace(&mut self.restored, true)
    }

    /// Notes that something would have been lost by parking a session now. It is left alone for longer each time.
    pub fn keep(&mut self, session: SessionId, tag: Tag, now: Timestamp) {
        let before = self.kept.get(&session).filter(|kept| kept.tag == tag);
        let pause = before.map_or(KEPT_MIN, |kept| (kept.pause * 2).min(KEPT_MAX));
        self.kept.insert(session, Kept { tag, at: now, pause });
    }

    /// True for a session that was not parked because something would have been lost, until it writes again and its pause
    /// is over.
    #[must_use]
    pub fn is_kept(&self, pool: &Pool, session: SessionId, now: Timestamp) -> bool {
        let Some(kept) = self.kept.get(&session).filter(|kept| runs(pool, session, kept.tag)) else {
            return false;
        };
        let is_unchanged = |since: &Timestamp| pool.is_earlier(now, *since, kept.at);
        self.quiet_since.get(&session).is_some_and(is_unchanged) || pool.age(now, kept.at) < kept.pause
    }

    /// Forgets sessions whose incarnation is another one now.
    pub fn retain_kept(&mut self, pool: &Pool) {
        self.kept.retain(|session, kept| runs(pool, *session, kept.tag));
    }

    /// True if it is known whether the conversation of an ended incarnation is lost.
    #[must_use]
    pub fn is_conversation_judged(&self, tag: Tag) -> bool {
        self.conversations_judged.get(&tag) == Some(&true)
    }

    /// It is known whether the conversation of an ended incarnation is lost.
    pub fn conversation_judged(&mut self, tag: Tag) {
        self.conversations_judged.insert(tag, true);
    }

    /// Begins to judge the conversation of an ended incarnation. Returns false if that was begun before.
    pub fn begin_judging(&mut self, tag: Tag) -> bool {
        self.conversations_judged.insert(tag, false).is_none()
    }

    /// Forgets the conversations of other incarnations than these.
    pub fn retain_judged(&mut self, ended: &BTreeSet<Tag>) {
        self.conversations_judged.retain(|tag, _| ended.contains(tag));
    }

    /// True if the sample of silence is recent enough to decide by.
    #[must_use]
    pub fn is_quiet_fresh(&self, now: Timestamp) -> bool {
        self.quiet_at.is_some_and(|at| at <= now && now.since(at) < QUIET_AGE_MAX)
    }

    /// Notes a sample: since when running programs have written nothing.
    pub fn note_quiet(&mut self, quiet_since: BTreeMap<SessionId, Timestamp>, at: Timestamp) {
        (self.quiet_since, self.quiet_at) = (quiet_since, Some(at));
    }

    /// Since when running programs have written nothing, as last sampled.
    #[must_use]
    pub fn quiet_since(&self) -> &BTreeMap<SessionId, Timestamp> {
        &self.quiet_since
    }

    /// Sessions that may not be parked now: something is done with them, they were kept, or they share their tmux session
    /// with panes of others.
    #[must_use]
    pub fn busy(
        &self,
        pool: &Pool,
        tmux: &TmuxState,
        delivering: impl Iterator<Item = SessionId>,
        now: Timestamp,
    ) -> BTreeSet<SessionId> {
        let kept = self.kept.keys().copied().filter(|session| self.is_kept(pool, *session, now));
        delivering.chain(self.starting()).chain(shared(pool, tmux)).chain(kept).collect()
    }
}

/// True if this is the session's present incarnation.
fn runs(pool: &Pool, session: SessionId, tag: Tag) -> bool {
    let run = pool.session(session).and_then(|session| session.incarnation.as_ref());
    run.is_some_and(|run| run.tag == tag)
}

/// Sessions whose tmux sessions show panes that are not the pool's: a person works there.
fn shared(pool: &Pool, tmux: &TmuxState) -> Vec<SessionId> {
    let mut panes: BTreeMap<TmuxSessionId, usize> = BTreeMap::new();
    tmux.panes.values().for_each(|pane| *panes.entry(pane.session).or_default() += 1);
    let shown_in = |s: &Session| s.incarnation.as_ref().filter(|_| s.lifecycle.holds_slot())?.session;
    let is_shared =
        |s: &&Session| shown_in(s).is_some_and(|id| panes.get(&id).is_some_and(|count| *count > 1));
    pool.sessions().filter(is_shared).map(|s| s.id).collect()
}
