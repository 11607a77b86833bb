//! Tasks that wait for something to happen in a turn: for a lock, for the answer of an operation, for a decision on
//! an agent's request. Those who wait for a condition are in [`crate::engine::turn`].

use std::collections::{BTreeMap, HashMap};

use pool::locks::Ticket;
use protocol::activity::Ask;
use protocol::hook::Decision;
use protocol::session::SessionLock;
use protocol::{OpId, Refusal, Reply, SessionId, Token};
use tokio::sync::oneshot;

/// Tasks that wait for something to happen in a turn.
#[derive(Default)]
pub(crate) struct Waiting {
    /// For session locks, by their places in the lock table.
    pub(crate) locks: HashMap<Ticket, LockWaiter>,
    /// For operations under way: the digest of each, and those who asked for it again.
    pub(crate) operations: HashMap<OpId, (u64, Vec<oneshot::Sender<Reply>>)>,
    /// For decisions on requests of agents.
    pub(crate) decisions: Decisions,
}

/// A task that waits for a lock.
pub(crate) enum LockWaiter {
    /// An operation of the daemon's own.
    Operation(oneshot::Sender<Result<Token, Refusal>>),
    /// A user, who asked for it under another lock or under none. The token comes with the grant.
    User(Box<SessionLock>, Option<Token>, oneshot::Sender<Result<Token, Refusal>>),
}

/// Hooks that wait for decisions, and those who decided and wait until the agent has it.
#[derive(Default)]
pub(crate) struct Decisions {
    hooks: BTreeMap<(SessionId, u64), oneshot::Sender<Decision>>,
    sent: BTreeMap<(SessionId, u64), oneshot::Sender<()>>,
}

impl Decisions {
    /// A hook waits for the decision on this request.
    pub(crate) fn wait(&mut self, session: SessionId, ask: u64) -> oneshot::Receiver<Decision> {
        let (sender, decision) = oneshot::channel();
        self.hooks.insert((session, ask), sender);
        decision
    }

    /// Takes the hook that waits for this decision.
    pub(crate) fn take(&mut self, session: SessionId, ask: u64) -> Option<oneshot::Sender<Decision>> {
        self.hooks.remove(&(session, ask))
    }

    /// Notes that a hook is sent its decision. The receiver hears when its agent has taken it.
    pub(crate) fn sent(&mut self, session: SessionId, ask: u64) -> oneshot::Receiver<()> {
        let (sender, taken) = oneshot::channel();
        self.sent.insert((session, ask), sender);
        taken
    }

    /// Takes a decision that was sent: its agent has taken it, or it is given up.
    pub(crate) fn settle(&mut self, session: SessionId, ask: u64) -> Option<oneshot::Sender<()>> {
        self.sent.remove(&(session, ask))
    }

    /// Drops the hooks of a session whose requests are not open any more.
    pub(crate) fn retain(&mut self, session: SessionId, open: &[Ask]) {
        self.hooks.retain(|(of, ask), _| *of != session || open.iter().any(|open| open.id == *ask));
    }
}
