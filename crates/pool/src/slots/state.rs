//! The volatile state of scheduling: sessions in transition, the queue for slots, samples of silence. Lost
//! when `poold` ends; its decisions are made again from the record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::tmux::TmuxState;
use protocol::{ProcId, Reason, Session, SessionId, Tag, Timestamp, TmuxSessionId};

use crate::deadlines::Mono;
use crate::pool::Pool;
use crate::slots::wait_queue::WaitQueue;

/// First pause after an attempt to park a session failed. It doubles each time.
const DEFERRAL_MIN: Duration = Duration::from_secs(10);

/// Longest of these pauses.
const DEFERRAL_MAX: Duration = Duration::from_secs(10 * 60);

/// The same for a session whose terminal could not be read.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// Longest pause of a worker whose pool is being stopped.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum age of a sample of silence that decisions are based on.
const QUIET_AGE_MAX: Duration = Duration::from_millis(200);

/// A session whose parking is deferred.
#[derive(Debug, Clone, Copy)]
struct ParkDeferral {
    tag: Tag,
    at: Timestamp,
    pause: Duration,
    seen_by: LossSource,
}

/// The evidence that something would be lost if a session were parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossSource {
    /// Its screen, which its program draws again when that changes.
    Screen,
    /// The process table, of whose changes nothing tells.
    Processes,
    /// None: what would be lost could not be determined.
    Unknown,
}

/// A client that stops the pool: nothing is started meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartHold {
    /// Its process, if known.
    pub process: Option<ProcId>,
    /// The moment at which it asked for that.
    pub since: Mono,
}

impl StartHold {
    /// Names the client, as in "process 7".
    fn client(&self) -> String {
        self.process.map_or_else(|| "a client".to_owned(), |process| format!("process {}", process.pid))
    }
}

/// Sessions in transition, and waiters for slots.
#[derive(Debug, Default)]
pub struct Scheduler {
    /// Requests and sessions that wait for a slot.
    pub waiting: WaitQueue,
    starting: BTreeSet<SessionId>,
    starts_ended: usize,
    removing: BTreeSet<SessionId>,
    /// Sessions whose removal waits for a reader of their log.
    held: BTreeSet<SessionId>,
    drained: BTreeSet<SessionId>,
    drain_awaits: BTreeMap<SessionId, &'static str>,
    giving_way: BTreeSet<SessionId>,
    deferred: BTreeMap<SessionId, ParkDeferral>,
    conversations_checked: BTreeMap<Tag, bool>,
    restored: bool,
    paused: BTreeMap<SessionId, Timestamp>,
    quiet_at: Option<Timestamp>,
    quiet_since: BTreeMap<SessionId, Timestamp>,
    holders: BTreeMap<u64, StartHold>,
}

impl Scheduler {
    /// Begins to start a session. Returns false if it is being started already.
    pub fn begin_start(&mut self, session: SessionId) -> bool {
        self.paused.remove(&session);
        self.starting.insert(session)
    }

    pub fn end_start(&mut self, session: SessionId) {
        self.starts_ended += usize::from(self.starting.remove(&session));
    }

    /// Number of starts that have ended since `poold` began.
    pub fn starts_ended(&self) -> usize {
        self.starts_ended
    }

    /// Returns the number of starts that were in progress at some time after `ended` starts had ended. A start that is
    /// not decided yet, because it waits for a slot or for the end of the last incarnation, has opened no files and
    /// does not count.
    pub fn starts_since(&self, pool: &Pool, ended: usize) -> usize {
        let is_decided =
            |session: &Session| session.lifecycle.holds_slot() && session.reason != Some(Reason::Restarted);
        let decided = self.starting.iter().filter(|id| pool.session(**id).is_some_and(is_decided));
        decided.count() + self.starts_ended.saturating_sub(ended)
    }

    /// True while a session is being started.
    pub fn is_starting(&self, session: SessionId) -> bool {
        self.starting.contains(&session)
    }

    /// The sessions that are being started.
    pub fn starting(&self) -> impl Iterator<Item = SessionId> {
        self.starting.iter().copied()
    }

    /// Prevents messages from starting the host of a worker, until a user starts it or `poold` is restarted; for five
    /// minutes at most, in case the pool is not stopped after all.
    pub fn pause(&mut self, host: SessionId, now: Timestamp) {
        self.paused.insert(host, now);
    }

    /// True if messages do not start the host of a worker.
    pub fn is_paused(&self, host: SessionId, now: Timestamp) -> bool {
        self.paused.get(&host).is_some_and(|at| *at <= now && now.since(*at) < PAUSE_MAX)
    }

    /// The ends of the pauses of hosts.
    pub(crate) fn pause_ends(&self) -> impl Iterator<Item = Timestamp> {
        self.paused.values().map(|at| at.after(PAUSE_MAX))
    }

    /// Starts nothing for as long as a connection lives; `hold` is kept from the first time that it asks.
    pub fn hold_starts(&mut self, connection: u64, hold: StartHold) {
        self.holders.entry(connection).or_insert(hold);
    }

    /// Names the clients that stop the pool, as in "process 7 and process 9", and returns since when the first of them
    /// does; none while starts are not held.
    pub fn start_hold(&self) -> Option<(String, Mono)> {
        let mut holds: Vec<&StartHold> = self.holders.values().collect();
        holds.sort_by_key(|hold| hold.since);
        let since = holds.first()?.since;
        let clients: Vec<String> = holds.into_iter().map(StartHold::client).collect();
        Some((clients.join(" and "), since))
    }

    /// True if nothing is started, as the pool is about to be stopped.
    pub fn holds_starts(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Ends a connection's hold on starts. Returns true if sessions are started again.
    pub fn connection_ended(&mut self, connection: u64) -> bool {
        self.holders.remove(&connection).is_some() && self.holders.is_empty()
    }

    /// Begins to remove a session. Returns false if it is being removed already.
    pub(crate) fn begin_removal(&mut self, session: SessionId) -> bool {
        self.removing.insert(session)
    }

    /// Has the removal of a session wait for a reader of its log, and others take its place, until it ends.
    pub fn hold_removal(&mut self, session: SessionId) {
        if self.removing.remove(&session) {
            self.held.insert(session);
        }
    }

    /// True if the removal of a session waits for a reader of its log.
    pub(crate) fn is_removal_held(&self, session: SessionId) -> bool {
        self.held.contains(&session)
    }

    pub fn end_removal(&mut self, session: SessionId) {
        self.removing.remove(&session);
        self.held.remove(&session);
    }

    /// Draining sessions that have worked off their queues and are at rest.
    pub fn drained(&self) -> &BTreeSet<SessionId> {
        &self.drained
    }

    /// The reason why a draining session without messages is not done.
    pub(crate) fn drain_awaits(&self, session: SessionId) -> Option<&'static str> {
        self.drain_awaits.get(&session).copied()
    }

    /// Sets the draining sessions that are done, and the reasons why others are not. Returns true if those that
    /// are done differ from those before.
    pub(crate) fn set_drained(
        &mut self,
        drained: BTreeSet<SessionId>,
        awaited: BTreeMap<SessionId, &'static str>,
    ) -> bool {
        let differs = self.drained != drained;
        (self.drained, self.drain_awaits) = (drained, awaited);
        differs
    }

    /// Sets the sessions that give way between two messages. Returns true if they differ from those before.
    pub(crate) fn set_giving_way(&mut self, sessions: BTreeSet<SessionId>) -> bool {
        let differs = self.giving_way != sessions;
        self.giving_way = sessions;
        differs
    }

    /// True if a session gives way between two messages: it is over its quantum, and others wait for a slot that
    /// no idle session can give.
    pub fn gives_way(&self, session: SessionId) -> bool {
        !self.waiting.is_empty() && self.giving_way.contains(&session)
    }

    /// Returns true once, when the state of all sessions at the start of `poold` is known.
    pub(crate) fn begin_restore(&mut self) -> bool {
        !std::mem::replace(&mut self.restored, true)
    }

    /// Defers the parking of a session, because something would be lost now, or because its terminal does not tell
    /// whether something would. The pause doubles each time.
    pub fn defer_parking(&mut self, (session, tag): (SessionId, Tag), seen_by: LossSource, now: Timestamp) {
        let is_same = |deferred: &&ParkDeferral| deferred.tag == tag && deferred.seen_by == seen_by;
        let before = self.deferred.get(&session).filter(is_same);
        let most = if seen_by == LossSource::Unknown { UNREAD_MAX } else { DEFERRAL_MAX };
        let pause = before.map_or(DEFERRAL_MIN, |deferred| (deferred.pause * 2).min(most));
        self.deferred.insert(session, ParkDeferral { tag, at: now, pause, seen_by });
    }

    /// True until the pause of a session's deferred parking is over and, if its screen showed a loss, its program has
    /// written again.
    pub fn is_parking_deferred(&self, pool: &Pool, session: SessionId, now: Timestamp) -> bool {
        let Some(deferred) = self
            .deferred
            .get(&session)
            .filter(|deferred| is_current_incarnation(pool, session, deferred.tag))
        else {
            return false;
        };
        let is_unchanged = |since: &Timestamp| {
            deferred.seen_by == LossSource::Screen && pool.is_earlier(now, *since, deferred.at)
        };
        self.quiet_since.get(&session).is_some_and(is_unchanged)
            || pool.age(now, deferred.at) < deferred.pause
    }

    /// Forgets sessions with another incarnation now.
    pub(crate) fn retain_deferrals(&mut self, pool: &Pool) {
        self.deferred.retain(|session, deferred| is_current_incarnation(pool, *session, deferred.tag));
    }

    /// True if the check of an ended incarnation's conversation has a result.
    pub(crate) fn is_conversation_checked(&self, tag: Tag) -> bool {
        self.conversations_checked.get(&tag) == Some(&true)
    }

    /// Stores that the check of an ended incarnation's conversation has a result.
    pub fn conversation_checked(&mut self, tag: Tag) {
        self.conversations_checked.insert(tag, true);
    }

    /// Begins to check an ended incarnation's conversation. Returns false if that was begun before.
    pub(crate) fn begin_conversation_check(&mut self, tag: Tag) -> bool {
        self.conversations_checked.insert(tag, false).is_none()
    }

    /// Forgets the checks of other incarnations than these.
    pub(crate) fn retain_checks(&mut self, ended: &BTreeSet<Tag>) {
        self.conversations_checked.retain(|tag, _| ended.contains(tag));
    }

    /// True if the sample of silence is recent enough to decide by.
    pub fn is_quiet_fresh(&self, now: Timestamp) -> bool {
        self.quiet_at.is_some_and(|at| at <= now && now.since(at) < QUIET_AGE_MAX)
    }

    /// Stores a sample of silence: times since which running programs have written nothing.
    pub fn note_quiet(&mut self, quiet_since: BTreeMap<SessionId, Timestamp>, at: Timestamp) {
        (self.quiet_since, self.quiet_at) = (quiet_since, Some(at));
    }

    /// Times since which running programs have written nothing, as last sampled.
    pub fn quiet_since(&self) -> &BTreeMap<SessionId, Timestamp> {
        &self.quiet_since
    }

    /// Sessions that may not be parked now: they are being delivered to or started, their parking is
    /// deferred, or they share their tmux session with panes of others.
    pub fn busy(
        &self,
        pool: &Pool,
        tmux: &TmuxState,
        delivering: impl Iterator<Item = SessionId>,
        now: Timestamp,
    ) -> BTreeSet<SessionId> {
        let deferred =
            self.deferred.keys().copied().filter(|session| self.is_parking_deferred(pool, *session, now));
        delivering.chain(self.starting()).chain(with_foreign_panes(pool, tmux)).chain(deferred).collect()
    }
}

/// True if this is the session's present incarnation.
fn is_current_incarnation(pool: &Pool, session: SessionId, tag: Tag) -> bool {
    let run = pool.session(session).and_then(|session| session.incarnation.as_ref());
    run.is_some_and(|run| run.tag == tag)
}

/// Sessions whose tmux sessions show panes that are not the pool's: a person works there.
fn with_foreign_panes(pool: &Pool, tmux: &TmuxState) -> Vec<SessionId> {
    let mut panes: BTreeMap<TmuxSessionId, usize> = BTreeMap::new();
    tmux.panes.values().for_each(|pane| *panes.entry(pane.session).or_default() += 1);
    let shown_in = |s: &Session| s.running()?.session;
    let is_shared =
        |s: &&Session| shown_in(s).is_some_and(|id| panes.get(&id).is_some_and(|count| *count > 1));
    pool.sessions().filter(is_shared).map(|s| s.id).collect()
}
