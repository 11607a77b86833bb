//! Keeps the leases of the claimed messages by heartbeats, and settles the messages. It has a thread and a
//! connection of its own, so that it does not wait for the claimer's; both survive the daemon's restart.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use protocol::request::ClaimRef;
use protocol::{ErrorCode, MessageId, Refusal, Reply, Request, Token};

use super::event::WorkEvent;
use super::reconnect::Reconnecting;
use crate::threads;

/// An order to the thread.
pub(super) enum LeaseOrder {
    /// Keep this claim.
    Hold(ClaimRef),
    /// Keep the claim with this token no longer: its lease ends.
    Drop(Token),
    /// Settle this claim by the request, and keep it no longer.
    Settle(ClaimRef, Request),
    /// Send a heartbeat now.
    Heartbeat,
}

/// The claims that are held.
pub(super) struct LeaseKeeper {
    connection: Reconnecting,
    held: BTreeMap<Token, MessageId>,
    every: Duration,
    next: Instant,
    orders: Receiver<LeaseOrder>,
    events: Sender<WorkEvent>,
}

impl LeaseKeeper {
    /// Starts the thread, which ends when the last sender is dropped.
    pub(super) fn start(
        connection: Reconnecting,
        every: Duration,
        events: Sender<WorkEvent>,
    ) -> io::Result<Sender<LeaseOrder>> {
        let (sender, orders) = mpsc::channel();
        let next = Instant::now() + every;
        let keeper = Self { connection, held: BTreeMap::new(), every, next, orders, events };
        threads::start(move || keeper.run())?;
        Ok(sender)
    }

    fn run(mut self) {
        loop {
            let left = self.next.saturating_duration_since(Instant::now());
            let order = match self.held.is_empty() {
                true => self.orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                // A heartbeat that is due comes before any order, however many orders wait.
                false if left.is_zero() => Ok(LeaseOrder::Heartbeat),
                false => self.orders.recv_timeout(left),
            };
            match order {
                Ok(LeaseOrder::Hold(held)) => {
                    if self.held.is_empty() {
                        self.next = Instant::now() + self.every;
                    }
                    self.held.insert(held.token, held.id);
                }
                Ok(LeaseOrder::Drop(token)) => drop(self.held.remove(&token)),
                Ok(LeaseOrder::Settle(held, request)) => {
                    let reply = self.ask(&request);
                    self.held.remove(&held.token);
                    self.tell(WorkEvent::Settled(held.token, reply.map(drop)));
                }
                Ok(LeaseOrder::Heartbeat) | Err(RecvTimeoutError::Timeout) => self.heartbeat(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Sends a heartbeat for all claims; if that is refused as stale, one for each, to find the stale ones.
    fn heartbeat(&mut self) {
        let all: Vec<ClaimRef> = self.held.iter().map(|(&token, &id)| ClaimRef { id, token }).collect();
        if !all.is_empty() && self.is_stale(all.clone()) {
            for held in all {
                if self.is_stale(vec![held]) {
                    self.held.remove(&held.token);
                    self.tell(WorkEvent::Stale(held.token));
                }
            }
        }
        self.next = Instant::now() + self.every;
    }

    fn is_stale(&mut self, held: Vec<ClaimRef>) -> bool {
        let request = Request::Heartbeat(held);
        loop {
            match self.connection.ask_until_answered(&request) {
                Some(Err(refusal)) => return is_lost(&refusal),
                Some(Ok(_)) => return false,
                None => {}
            }
        }
    }

    /// Repeats a request until it is answered. A new connection begins with a heartbeat.
    fn ask(&mut self, request: &Request) -> Reply {
        loop {
            if self.connection.is_lost() {
                self.heartbeat();
            }
            if let Some(reply) = self.connection.ask_until_answered(request) {
                return reply;
            }
        }
    }

    fn tell(&self, event: WorkEvent) {
        // Without a receiver this thread is about to end.
        drop(self.events.send(event));
    }
}

/// True if the message is held by another worker, or by none.
pub(super) fn is_lost(refusal: &Refusal) -> bool {
    matches!(refusal.code, ErrorCode::Conflict | ErrorCode::NotFound)
}
