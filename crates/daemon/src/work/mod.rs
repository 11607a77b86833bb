//! Those who work messages: what they hold, over which connection, until when. Dies with the process;
//! what is durable of a claim is in the message's record.

pub(crate) mod disk;
pub(crate) mod holders;
pub(crate) mod leases;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pool::deadlines::{Deadlines, Mono};
use protocol::ids::GeneratorId;
use protocol::{Holder, MessageId, MessageState, MessageStatus, ProcId, SessionId, Timestamp};

use disk::Disk;

use crate::op::KEEP_RANDOM;

/// How long a claim lasts beyond the end of its connection, where its holder is not proved dead.
const DISCONNECT_GRACE: Duration = Duration::from_secs(5);

/// Those who work messages.
#[derive(Default)]
pub(crate) struct Work {
    /// When the lease of each claimed message is over.
    pub(crate) leases: Deadlines,
    /// Over which connection each claimed message was last heard of, and whether its holder promised to
    /// be ended before it goes to another.
    over: HashMap<MessageId, (u64, bool)>,
    /// Connections that may hold something.
    peers: BTreeMap<u64, Worker>,
    pub(crate) disk: Disk,
    /// When leases are looked at next.
    pub(crate) armed: Mono,
    /// When random operation ids last aged.
    aged_at: Mono,
    /// When time was last looked at.
    pub(crate) ticked_at: Timestamp,
}

/// Somebody who works messages, or may.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) process: Option<ProcId>,
    /// Its registration as a generator.
    pub(crate) generator: Option<Registration>,
    pub(crate) since: Timestamp,
    pub(crate) heard_at: Timestamp,
    /// Shared with each claim of it that waits.
    pub(crate) asking: Arc<()>,
}

impl Worker {
    /// Whether it waits for messages now.
    pub(crate) fn asks(&self) -> bool {
        Arc::strong_count(&self.asking) > 1
    }
}

/// What a generator said that it works.
#[derive(Debug, Clone)]
pub(crate) struct Registration {
    pub(crate) id: GeneratorId,
    pub(crate) session: SessionId,
    pub(crate) kinds: Vec<String>,
}

impl Work {
    /// A connection that may claim.
    pub(crate) fn joined(&mut self, connection: u64, process: Option<ProcId>, now: Timestamp) {
        let worker = Worker { process, generator: None, since: now, heard_at: now, asking: Arc::default() };
        self.peers.insert(connection, worker);
    }

    /// Whoever is at the other end of a connection spoke.
    pub(crate) fn heard_from(&mut self, connection: u64, now: Timestamp) {
        self.peers.get_mut(&connection).into_iter().for_each(|worker| worker.heard_at = now);
    }

    pub(crate) fn worker(&mut self, connection: u64) -> Option<&mut Worker> {
        self.peers.get_mut(&connection)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = (u64, &Worker)> {
        self.peers.iter().map(|(id, worker)| (*id, worker))
    }

    /// The connection ended: what it holds has a little time to be heard of over another. A generator
    /// that promised to be ended before keeps its lease: it may live on, and comes back.
    pub(crate) fn left(&mut self, connection: u64, now: Mono) -> Option<Worker> {
        let left = self.peers.remove(&connection)?;
        let its = self.over.iter().filter(|(_, (over, _))| *over == connection);
        let held: Vec<(MessageId, bool)> = its.map(|(id, (_, promised))| (*id, *promised)).collect();
        for (id, promised) in held {
            self.over.remove(&id);
            if !promised {
                self.leases.hasten(id, now.after(DISCONNECT_GRACE));
            }
        }
        Some(left)
    }

    /// A message was heard of over a connection.
    pub(crate) fn heard(&mut self, id: MessageId, holder: &Holder, connection: u64, now: Mono) {
        self.leases.set(id, now.after(Duration::from_millis(holder.lease_ms)));
        self.over.insert(id, (connection, holder.generator.is_some()));
    }

    /// The connection over which a message was last heard of.
    pub(crate) fn connection_of(&self, id: MessageId) -> Option<u64> {
        self.over.get(&id).map(|(connection, _)| *connection)
    }

    /// Whether a lease is over before they are looked at.
    pub(crate) fn is_sooner(&mut self) -> bool {
        let sooner = self.leases.first().is_some_and(|first| first < self.armed);
        if let Some(first) = self.leases.first().filter(|_| sooner) {
            self.armed = first;
        }
        sooner
    }

    /// Whether half of the time has passed that random operation ids are remembered.
    pub(crate) fn half_time(&mut self, now: Mono) -> bool {
        let due = self.aged_at.until(now) >= KEEP_RANDOM / 2;
        if due {
            self.aged_at = now;
        }
        due
    }

    /// A message moved: a claim begins, or is over.
    pub(crate) fn moved(&mut self, id: MessageId, status: &MessageStatus, now: Mono) {
        match (&status.holder, status.state) {
            (Some(holder), MessageState::Claimed) => {
                self.leases.set(id, now.after(Duration::from_millis(holder.lease_ms)));
            }
            _ => {
                self.leases.clear(id);
                self.over.remove(&id);
            }
        }
    }
}
