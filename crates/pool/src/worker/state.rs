//! The volatile state of claims: the workers, their connections and their leases. Lost when `poold` ends; the
//! claims themselves are on record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use protocol::worker::ClaimScope;
use protocol::{
    GeneratorId, Holder, Lifecycle, MessageId, MessageState, MessageStatus, ProcId, SessionId, Tag,
    Timestamp, Token,
};

use crate::deadlines::{Deadlines, Mono};
use crate::pool::Pool;
use crate::reap::orphans::SilentWorker;

/// Time for which a claim outlives its connection, unless its holder is proved dead.
const DISCONNECT_GRACE: Duration = Duration::from_secs(5);
/// Time in which the workers come back after the daemon's absence: they try to connect every 5 seconds, and may
/// settle what they finished meanwhile.
const RETURN_TIME: Duration = Duration::from_secs(10);

/// Time in which a worker ends the handler of a message that it has lost: its grace, and some more.
pub const HANDLER_END: Duration = Duration::from_secs(10);

/// Connections that work messages, and the leases on the messages that they claimed.
#[derive(Debug, Default)]
pub struct Workers {
    leases: Deadlines,
    claims: BTreeMap<MessageId, Claim>,
    workers: BTreeMap<u64, Worker>,
    /// Messages that were cancelled while a registered worker held them.
    cancelled: BTreeMap<MessageId, CancelledClaim>,
    /// Running hosts of the pool's workers that are not registered, and hold no message, with the time of the first
    /// look that found them so.
    unregistered_hosts: BTreeMap<Tag, Timestamp>,
    armed: Mono,
    ticked_at: Timestamp,
}

/// A claimed message.
#[derive(Debug, Clone, Copy)]
struct Claim {
    /// The connection over which its holder last sent something.
    connection: u64,
    /// True if its holder is a registered worker, which is killed before the message goes to another.
    is_registered: bool,
}

/// A claim on a message that is cancelled.
#[derive(Debug, Clone, Copy)]
struct CancelledClaim {
    process: ProcId,
    token: Option<Token>,
    /// Time of the cancellation.
    at: Timestamp,
    /// End of the time in which the worker learns of the cancellation and ends its handler.
    until: Mono,
    /// True once its worker has heard of it.
    is_heard: bool,
}

impl CancelledClaim {
    /// True if the worker is connected and has sent nothing since the cancellation: it may hang while its handler runs
    /// on.
    fn is_unheard(&self, workers: &BTreeMap<u64, Worker>) -> bool {
        let hangs = |worker: &Worker| worker.process == Some(self.process) && worker.last_seen_at <= self.at;
        !self.is_heard && workers.values().any(hangs)
    }
}

/// A connection that works messages, or may.
#[derive(Debug)]
pub struct Worker {
    process: Option<ProcId>,
    registration: Option<Registration>,
    connected_at: Timestamp,
    last_seen_at: Timestamp,
    /// The session whose message it claimed last.
    served: SessionId,
    /// Shared with each of its waiting requests.
    requests: Arc<()>,
}

/// A request for messages that waits. While it exists, its worker counts as active.
#[derive(Debug)]
pub struct WaitingRequest {
    _shared: Arc<()>,
}

impl Worker {
    /// The process, if the system tells.
    pub fn process(&self) -> Option<ProcId> {
        self.process
    }

    /// The registration as a worker.
    pub fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }

    pub fn connected_at(&self) -> Timestamp {
        self.connected_at
    }

    /// The session whose message it claimed last: the others have their turn before it.
    pub fn served(&self) -> SessionId {
        self.served
    }

    /// Time of its last message.
    pub fn last_seen_at(&self) -> Timestamp {
        self.last_seen_at
    }

    fn has_waiting_request(&self) -> bool {
        Arc::strong_count(&self.requests) > 1
    }
}

/// The registration of a worker.
#[derive(Debug, Clone)]
pub struct Registration {
    pub id: GeneratorId,
    /// The session that it is listed under.
    pub session: Option<SessionId>,
    /// The messages that it works.
    pub scope: ClaimScope,
    /// The kinds of messages that it works; empty for all except prompts.
    pub kinds: Vec<String>,
}

impl Workers {
    /// Adds a connection that may claim messages.
    pub fn connected(&mut self, connection: u64, process: Option<ProcId>, now: Timestamp) {
        let worker = Worker {
            process,
            registration: None,
            connected_at: now,
            last_seen_at: now,
            served: SessionId(0),
            requests: Arc::default(),
        };
        self.workers.insert(connection, worker);
    }

    /// Stores that a connection sent something. Returns false if it has ended.
    pub fn seen(&mut self, connection: u64, now: Timestamp) -> bool {
        let worker = self.workers.get_mut(&connection);
        worker.map(|worker| worker.last_seen_at = now).is_some()
    }

    /// Registers the worker at a connection.
    pub fn register(&mut self, connection: u64, registration: Registration) {
        if let ClaimScope::Host(tag) = registration.scope {
            self.unregistered_hosts.remove(&tag);
        }
        if let Some(worker) = self.workers.get_mut(&connection) {
            worker.registration = Some(registration);
        }
    }

    /// Stores the session whose message a connection claimed last.
    pub fn note_served(&mut self, connection: u64, session: SessionId) {
        if let Some(worker) = self.workers.get_mut(&connection) {
            worker.served = session;
        }
    }

    /// Begins a request for messages that waits until the returned value is dropped.
    pub fn begin_request(&self, connection: u64) -> Option<WaitingRequest> {
        let worker = self.workers.get(&connection)?;
        Some(WaitingRequest { _shared: Arc::clone(&worker.requests) })
    }

    pub fn get(&self, connection: u64) -> Option<&Worker> {
        self.workers.get(&connection)
    }

    /// All workers, by connection.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Worker)> {
        self.workers.iter().map(|(connection, worker)| (*connection, worker))
    }

    /// The hosts of the pool's workers whose requests for messages wait.
    pub fn asking_hosts(&self) -> Vec<Tag> {
        let asking = self.registered_hosts().filter(|(_, worker)| worker.has_waiting_request());
        asking.map(|(tag, _)| tag).collect()
    }

    /// The registered hosts of the pool's workers.
    fn registered_hosts(&self) -> impl Iterator<Item = (Tag, &Worker)> {
        self.workers.values().filter_map(|worker| match worker.registration.as_ref()?.scope {
            ClaimScope::Host(tag) => Some((tag, worker)),
            ClaimScope::Sessions(_) => None,
        })
    }

    /// Ends a connection. Its claims last for `DISCONNECT_GRACE` unless their holder renews them over
    /// another connection. A registered worker keeps its whole lease: it may live on and reconnect.
    pub fn connection_ended(&mut self, connection: u64, now: Mono) -> Option<Worker> {
        let ended = self.workers.remove(&connection)?;
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

    /// Renews the lease on a message that was just claimed, or whose holder sent a heartbeat.
    pub fn renew(&mut self, id: MessageId, holder: &Holder, connection: u64, now: Mono) {
        self.leases.set(id, now.after(Duration::from_millis(holder.lease_ms)));
        self.claims.insert(id, Claim { connection, is_registered: holder.generator.is_some() });
    }

    /// Stores that a message was cancelled while this holder had it under this token.
    pub fn note_cancelled(
        &mut self,
        id: MessageId,
        (holder, token): (&Holder, Option<Token>),
        (at, now): (Timestamp, Mono),
    ) {
        let Self { cancelled, workers, .. } = self;
        cancelled.retain(|_, claim| claim.until > now || claim.is_unheard(workers));
        if let Some(process) = holder.process.filter(|_| holder.generator.is_some()) {
            let until = now.after(Duration::from_millis(holder.lease_ms) + HANDLER_END);
            self.cancelled.insert(id, CancelledClaim { process, token, at, until, is_heard: false });
        }
    }

    /// Stores that the holder of a cancelled message has learned of the cancellation: it ends its handler.
    pub fn cancel_heard(&mut self, id: MessageId, token: Token, now: Mono) {
        if let Some(claim) = self.cancelled.get_mut(&id).filter(|claim| claim.token == Some(token)) {
            claim.until = now.after(HANDLER_END).min(claim.until);
            claim.is_heard = true;
        }
    }

    /// Returns the process whose handler of a cancelled message may still run, and for how long; zero if the worker is
    /// connected and has not learned of the cancellation in time.
    pub fn cancelled_handler(&self, id: MessageId, now: Mono) -> Option<(ProcId, Duration)> {
        let claim = self.cancelled.get(&id)?;
        let left = now.until(claim.until);
        Some((claim.process, left)).filter(|_| !left.is_zero() || claim.is_unheard(&self.workers))
    }

    /// Forgets the handlers of a process that has ended.
    pub fn holder_ended(&mut self, process: ProcId) {
        self.cancelled.retain(|_, claim| claim.process != process);
    }

    pub fn is_holder_connected(&self, id: MessageId) -> bool {
        self.claims.contains_key(&id)
    }

    /// The connection over which the holder of a message last sent something.
    pub fn connection_of(&self, id: MessageId) -> Option<u64> {
        self.claims.get(&id).map(|claim| claim.connection)
    }

    /// End of the lease on a message.
    pub fn deadline(&self, id: MessageId) -> Option<Mono> {
        self.leases.get(id)
    }

    /// Takes out the messages whose leases ended by this moment.
    pub fn take_lapsed(&mut self, by: Mono) -> Vec<MessageId> {
        self.leases.take_passed(by)
    }

    /// End of the first lease.
    pub fn first_deadline(&self) -> Option<Mono> {
        self.leases.first()
    }

    /// Gives all claims their whole lease again, and hosts their whole time to register: nobody was served meanwhile.
    /// A lease that is shorter than the time in which its holder comes back lasts until then.
    pub fn restart_leases(&mut self, pool: &Pool, now: Mono) {
        self.unregistered_hosts.clear();
        let claimed = pool.held_messages().filter(|message| message.state == MessageState::Claimed);
        let leases: Vec<(MessageId, u64)> =
            claimed.filter_map(|message| Some((message.id, message.holder?.lease_ms))).collect();
        for (id, lease_ms) in leases {
            self.leases.set(id, now.after(Duration::from_millis(lease_ms).max(RETURN_TIME)));
        }
    }

    /// Time of the next tick; none before the first.
    pub fn armed(&self) -> Option<Mono> {
        Some(self.armed).filter(|armed| *armed != Mono::default())
    }

    /// Sets the time of the next tick.
    pub fn arm(&mut self, at: Mono) {
        // A lease that ends before the next tick does not wake the loop again: the tick handles it.
        self.armed = self.leases.first().map_or(at, |first| first.min(at));
    }

    /// Moves the next tick to the end of the first lease if that comes earlier. Returns true then.
    pub fn advance_tick(&mut self) -> bool {
        let first = self.leases.first().filter(|first| *first < self.armed);
        self.armed = first.unwrap_or(self.armed);
        first.is_some()
    }

    /// Stores the time of a tick. Returns that of the one before.
    pub fn tick(&mut self, now: Timestamp) -> Timestamp {
        std::mem::replace(&mut self.ticked_at, now)
    }

    /// Follows a change of a message's status: a claim begins, or is over.
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

    /// Registered workers that hold nothing and have no waiting request, with the time of their last message, and
    /// hosts that are not registered. A process with several connections counts by its most recent message; one that
    /// holds a message or has a waiting request counts as seen now.
    pub fn silent(&mut self, pool: &Pool, now: Timestamp) -> Vec<SilentWorker> {
        let mut seen: BTreeMap<ProcId, Timestamp> = BTreeMap::new();
        for worker in self.workers.values() {
            let Some(process) = worker.process else { continue };
            let at = if worker.has_waiting_request() { now } else { worker.last_seen_at };
            let newest = seen.entry(process).or_insert(at);
            *newest = pool.latest(now, [at, *newest]);
        }
        seen.extend(pool.held_messages().filter_map(|message| Some((message.holder?.process?, now))));
        let active: BTreeSet<ProcId> =
            seen.iter().filter(|(_, at)| **at == now).map(|(process, _)| *process).collect();
        for worker in self.workers.values_mut() {
            if worker.process.is_some_and(|process| active.contains(&process)) {
                worker.last_seen_at = now;
            }
        }
        let silent = self.workers.values().filter_map(|worker| {
            let (registration, process) = (worker.registration.as_ref()?, worker.process?);
            let last_seen_at = seen.get(&process).copied().filter(|at| *at != now)?;
            let session = registration.session.unwrap_or(SessionId(0));
            Some(SilentWorker { id: Some(registration.id), session, process, last_seen_at })
        });
        let silent: Vec<SilentWorker> = silent.collect();
        silent.into_iter().chain(self.silent_hosts(pool, &active, now)).collect()
    }

    /// Running hosts that are not registered, because they hang or cannot connect, and hold no message.
    fn silent_hosts(&mut self, pool: &Pool, active: &BTreeSet<ProcId>, now: Timestamp) -> Vec<SilentWorker> {
        let registered: BTreeSet<Tag> = self.registered_hosts().map(|(tag, _)| tag).collect();
        let holding: BTreeSet<Tag> =
            pool.held_messages().filter_map(|message| message.holder?.host).collect();
        let before = std::mem::take(&mut self.unregistered_hosts);
        let mut silent = Vec::new();
        for (host, _) in pool.workers().filter(|(host, _)| host.lifecycle == Lifecycle::Live) {
            let Some((tag, process)) = host.incarnation.as_ref().and_then(|run| Some((run.tag, run.agent?)))
            else {
                continue;
            };
            if registered.contains(&tag) || holding.contains(&tag) || active.contains(&process) {
                continue;
            }
            let last_seen_at = before.get(&tag).copied().unwrap_or(now);
            self.unregistered_hosts.insert(tag, last_seen_at);
            silent.push(SilentWorker { id: None, session: host.id, process, last_seen_at });
        }
        silent
    }

    /// The processes of all workers.
    pub fn processes(&self) -> BTreeSet<ProcId> {
        self.workers.values().filter_map(|worker| worker.process).collect()
    }
}
