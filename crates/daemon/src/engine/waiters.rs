//! Tasks that wait for an event of a turn: a lock, the answer of an operation, or a decision on an agent's
//! request. Tasks that wait for a condition are in [`crate::engine::turn`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;

use pool::lock::Ticket;
use protocol::hook::Decision;
use protocol::session::SessionLock;
use protocol::{Ask, OpId, Refusal, Reply, SessionId, Token};
use tokio::sync::oneshot;

/// Tasks that wait for an event of a turn.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Tasks that wait for session locks, by their tickets in the lock table.
    pub(crate) locks: BTreeMap<Ticket, LockWaiter>,
    /// Operations in progress.
    pub(crate) operations: BTreeMap<OpId, RunningOperation>,
    /// Operations in progress whose clients do not wait for a slot any more.
    pub(crate) withdrawn: BTreeSet<OpId>,
    /// Tasks that wait for decisions on agents' requests.
    pub(crate) decisions: PendingDecisions,
}

/// An operation in progress.
pub(crate) struct RunningOperation {
    pub(crate) digest: u64,
    /// The first requester, while it waits.
    pub(crate) asker: Weak<()>,
    /// The tasks that repeated the request.
    pub(crate) waiters: Vec<oneshot::Sender<Reply>>,
}

impl RunningOperation {
    /// Number of requesters that wait for its answer.
    pub(crate) fn requesters(&self) -> usize {
        let repeats = self.waiters.iter().filter(|waiter| !waiter.is_closed()).count();
        self.asker.strong_count().min(1) + repeats
    }
}

/// A task that waits for a lock.
pub(crate) enum LockWaiter {
    /// An operation of the daemon.
    Operation(oneshot::Sender<Result<Token, Refusal>>),
    /// A user's lock, and the receiver of its token.
    User(Box<SessionLock>, oneshot::Sender<Result<Token, Refusal>>),
}

/// Hooks that wait for a decision, and the requests that decided and wait until the agent has taken the decision.
#[derive(Default)]
pub(crate) struct PendingDecisions {
    hooks: BTreeMap<(SessionId, u64), oneshot::Sender<Decision>>,
    sent: BTreeMap<(SessionId, u64), SentDecision>,
}

/// A decision that a hook was sent, and which its agent may not have taken yet.
pub(crate) struct SentDecision {
    pub(crate) allow: bool,
    taken: oneshot::Sender<()>,
}

impl SentDecision {
    /// Notifies the request that decided, unless it waits no longer.
    pub(crate) fn notify(self) {
        self.taken.send(()).ok();
    }
}

impl PendingDecisions {
    /// Adds a hook that waits for the decision on this request.
    pub(crate) fn wait(&mut self, session: SessionId, ask: u64) -> oneshot::Receiver<Decision> {
        let (sender, decision) = oneshot::channel();
        self.hooks.insert((session, ask), sender);
        decision
    }

    /// Takes the hook that waits for this decision.
    pub(crate) fn take(&mut self, session: SessionId, ask: u64) -> Option<oneshot::Sender<Decision>> {
        self.hooks.remove(&(session, ask))
    }

    /// Notes that a hook was sent its decision. The receiver is notified once the agent has taken it.
    pub(crate) fn sent(&mut self, session: SessionId, ask: u64, allow: bool) -> oneshot::Receiver<()> {
        let (taken, receiver) = oneshot::channel();
        self.sent.insert((session, ask), SentDecision { allow, taken });
        receiver
    }

    /// True if a hook was sent its decision, and has not reported that its agent took it.
    pub(crate) fn is_sent(&self, session: SessionId, ask: u64) -> bool {
        self.sent.contains_key(&(session, ask))
    }

    /// Removes and returns a decision that the agent has taken, or that did not reach the hook.
    pub(crate) fn settle(&mut self, session: SessionId, ask: u64) -> Option<SentDecision> {
        self.sent.remove(&(session, ask))
    }

    /// Drops the hooks of a session whose requests are not open any more, and the decisions on these that nobody waits
    /// for.
    pub(crate) fn retain(&mut self, session: SessionId, open: &[Ask]) {
        let is_open =
            |(of, ask): &(SessionId, u64)| *of != session || open.iter().any(|open| open.id == *ask);
        self.hooks.retain(|request, _| is_open(request));
        self.sent.retain(|request, sent| is_open(request) || !sent.taken.is_closed());
    }
}
