//! The judge's records of requests, claims and conversations.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{MessageId, ProcId, SessionId, Tag, Token};
use tokio::time::Instant;

/// The lease of a claim: the longest time without a heartbeat.
pub(crate) const LEASE: Duration = Duration::from_secs(20);

/// Time before the end of a lease from which on a heartbeat may come too late.
const MARGIN: Duration = Duration::from_secs(2);

/// A request that excuses a loss or a repetition.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    /// A session is to be removed.
    Removal(SessionId),
    /// A message is to be typed again.
    Retry(MessageId),
    /// The record of a message is to be removed.
    Purge(MessageId),
    /// A message is given up, or taken back.
    End(MessageId),
}

/// The sessions or messages for which somebody has asked for something, each with the number of requests that were
/// not refused.
#[derive(Clone)]
pub(super) struct Excuses<T>(BTreeMap<T, u32>);

impl<T> Default for Excuses<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Ord> Excuses<T> {
    pub(super) fn grant(&mut self, what: T) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Takes back what was granted for one request.
    pub(super) fn withdraw(&mut self, what: &T) {
        self.0.get_mut(what).into_iter().for_each(|requests| *requests -= 1);
        self.0.retain(|_, requests| *requests > 0);
    }

    pub(super) fn contains<Q: Ord + ?Sized>(&self, what: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.0.contains_key(what)
    }
}

/// A claim whose worker sends heartbeats.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) token: Token,
    /// When the last heartbeat was sent that was acknowledged, and the one that is not answered yet.
    pub(super) renewed: Instant,
    pub(super) pending: Option<Instant>,
}

impl Kept {
    /// True if the lease cannot have ended.
    pub(super) fn holds(&self) -> bool {
        let ends = self.renewed + LEASE;
        Instant::now() < ends || self.pending.is_some_and(|sent| sent + MARGIN < ends)
    }
}

/// A process that handles a claim.
#[derive(Clone)]
pub(super) struct Handled {
    pub(super) token: Token,
    pub(super) process: ProcId,
    /// The incarnation of the host that has started it.
    pub(super) host: Option<Tag>,
    /// True if the message may not go on before the process is gone: it belongs to the host of a worker, or the reaper
    /// ends its worker.
    pub(super) is_proved: bool,
}

/// Conversations of which the pool hears nothing.
#[derive(Default, Clone)]
pub(super) struct Quiet {
    /// The conversation of each incarnation.
    pub(super) of: BTreeMap<Tag, String>,
    /// Conversations to which a person spoke.
    pub(super) by_person: BTreeSet<String>,
    /// The incarnations and conversations to which the pool spoke.
    pub(super) pasted: BTreeSet<Tag>,
    pub(super) by_pool: BTreeSet<String>,
}
