//! The volatile half of claims: who works messages, over which connection, until when. Gone when `poold` ends; what is
//! durable of a claim is in the message's record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::ids::GeneratorId;
use protocol::{Holder, MessageId, MessageState, MessageStatus, ProcId, SessionId, Timestamp};

use crate::deadlines::{Deadlines, Mono};
use crate::pool::Pool;
use crate::stale;

/// Time that a claim outlives its connection, where its holder is not proved dead.
const DISCONNECT_GRACE: Duration = Duration::from_secs(5);

/// Connections that work messages, and the leases on what they claimed.
#[derive(Debug, Default)]
pub struct Workers {
    leases: Deadlines,
    claims: BTreeMap<MessageId, Claim>,
    peers: BTreeMap<u64, Worker>,
    armed: Mono,
    ticked_at: Timestamp,
}

/// A claimed message.
#[derive(Debug, Clone, Copy)]
struct Claim {
    /// The connection over which its holder was last heard of.
    connection: u64,
    /// True if its holder is a registered worker, which the reaper ends before the message goes to another.
    is_registered: bool,
}

/// A connection that works messages, or may.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its process, where the system tells.
    pub process: Option<ProcId>,
    /// Its registration as a worker.
    pub registration: Option<Registration>,
    /// When it connected.
    pub since: Timestamp,
    /// When it last spoke.
    pub heard_at: Timestamp,
    /// Shared with each of its claim requests that wait.
    pub asking: Arc<()>,
}

impl Worker {
    /// True while it waits for a message.
    #[must_use]
    pub fn asks(&self) -> bool {
        Arc::strong_count(&self.asking) > 1
    }
}

/// The registration of a worker.
#[derive(Debug, Clone)]
pub struct Registration {
    /// Its id.
    pub id: GeneratorId,
    /// The session whose messages it works.
    pub session: SessionId,
    /// The kinds of messages that it works.
    pub kinds: Vec<String>,
}

impl Workers {
    /// A connection that may claim messages.
    pub fn connected(&mut self, connection: u64, process: Option<ProcId>, now: Timestamp) {
        let worker =
            Worker { process, registration: None, since: now, heard_at: now, asking: Arc::default() };
        self.peers.insert(connection, worker);
    }

    /// A connection spoke.
    pub fn heard_from(&mut self, connection: u64, now: Timestamp) {
        self.peers.get_mut(&connection).into_iter().for_each(|worker| worker.heard_at = now);
    }

    /// The worker at a connection.
    pub fn get_mut(&mut self, connection: u64) -> Option<&mut Worker> {
        self.peers.get_mut(&connection)
    }

    /// All workers, by connection.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Worker)> {
        self.peers.iter().map(|(connection, worker)| (*connection, worker))
    }

    /// A connection ended. What it holds has [`DISCONNECT_GRACE`] to be heard of over another one. A registered worker
    /// keeps its lease: it may live on, and comes back.
    pub fn connection_ended(&mut self, connection: u64, now: Mono) -> Option<Worker> {
        let ended = self.peers.remove(&connection)?;
        let of_it = self.claims.iter().filter(|(_, claim)| claim.connection == connection);
        let held: Vec<(MessageId, Claim)> = of_it.map(|(id, claim)| (*id, *claim)).collect();
        for (id, claim) in held {
            self.claims.remove(&id);
            if !claim.is_registered {
                self.leases.hasten(id, now.after(DISCONNECT_GRACE));
            }
        }
        Some(ended)
    }

    /// A message was claimed, or its holder sent a heartbeat.
    pub fn renew(&mut self, id: MessageId, holder: &Holder, connection: u64, now: Mono) {
        self.leases.set(id, now.after(Duration::from_millis(holder.lease_ms)));
        self.claims.insert(id, Claim { connection, is_registered: holder.generator.is_some() });
    }

    /// True if the holder of a message is connected.
    #[must_use]
    pub fn is_holder_connected(&self, id: MessageId) -> bool {
        self.claims.contains_key(&id)
    }

    /// The connection over which the holder of a message was last heard of.
    #[must_use]
    pub fn connection_of(&self, id: MessageId) -> Option<u64> {
        self.claims.get(&id).map(|claim| claim.connection)
    }

    /// When the lease on a message passes.
    #[must_use]
    pub fn deadline(&self, id: MessageId) -> Option<Mono> {
        self.leases.get(id)
    }

    /// The messages whose leases passed by this moment; each is returned once.
    pub fn take_lapsed(&mut self, by: Mono) -> Vec<MessageId> {
        self.leases.take_passed(by)
    }

    /// When the first lease passes.
    #[must_use]
    pub fn first_deadline(&self) -> Option<Mono> {
        self.leases.first()
    }

    /// Gives all claims their whole lease again.
    pub fn restart_leases(&mut self, pool: &Pool, now: Mono) {
        let claimed = pool.held_messages().filter(|open| open.state == MessageState::Claimed);
        let leases: Vec<(MessageId, u64)> =
            claimed.filter_map(|open| Some((open.id, open.holder?.lease_ms))).collect();
        for (id, lease_ms) in leases {
            self.leases.set(id, now.after(Duration::from_millis(lease_ms)));
        }
    }

    /// When the next tick is due; none before the first.
    #[must_use]
    pub fn armed(&self) -> Option<Mono> {
        Some(self.armed).filter(|armed| *armed != Mono::default())
    }

    /// Sets when the next tick is due.
    pub fn arm(&mut self, at: Mono) {
        self.armed = at;
    }

    /// Returns true, and arms the tick for it, if a lease passes before the next tick.
    pub fn advance_tick(&mut self) -> bool {
        let first = self.leases.first().filter(|first| *first < self.armed);
        self.armed = first.unwrap_or(self.armed);
        first.is_some()
    }

    /// Notes a tick and returns when the one before was.
    pub fn tick(&mut self, now: Timestamp) -> Timestamp {
        std::mem::replace(&mut self.ticked_at, now)
    }

    /// The status of a message changed: a claim begins, or is over.
    pub fn message_changed(&mut self, id: MessageId, status: &MessageStatus, now: Mono) {
        match (&status.holder, status.state) {
            (Some(holder), MessageState::Claimed) => {
                self.leases.set(id, now.after(Duration::from_millis(holder.lease_ms)));
            }
            _ => {
                self.leases.clear(id);
                self.claims.remove(&id);
            }
        }
    }

    /// Registered workers that ask for nothing and hold nothing: each process by its newest word, over whatever connection.
    /// A worker that asks, or holds a message, counts as heard of now.
    pub fn silent(&mut self, pool: &Pool, now: Timestamp) -> Vec<stale::Worker> {
        let mut heard: BTreeMap<ProcId, Timestamp> = BTreeMap::new();
        for worker in self.peers.values() {
            let Some(process) = worker.process else { continue };
            let at = if worker.asks() { now } else { worker.heard_at };
            let newest = heard.entry(process).or_default();
            *newest = at.max(*newest);
        }
        heard.extend(pool.held_messages().filter_map(|open| Some((open.holder?.process?, now))));
        let at_work: BTreeSet<ProcId> =
            heard.iter().filter(|(_, at)| **at == now).map(|(process, _)| *process).collect();
        for worker in self.peers.values_mut() {
            if worker.process.is_some_and(|process| at_work.contains(&process)) {
                worker.heard_at = now;
            }
        }
        let silent = self.peers.values().filter_map(|worker| {
            let (registration, process) = (worker.registration.as_ref()?, worker.process?);
            let heard_at = heard.get(&process).copied().filter(|at| *at < now)?;
            Some(stale::Worker { id: registration.id, session: registration.session, process, heard_at })
        });
        silent.collect()
    }

    /// The processes of all workers.
    #[must_use]
    pub fn processes(&self) -> BTreeSet<ProcId> {
        self.peers.values().filter_map(|worker| worker.process).collect()
    }
}
