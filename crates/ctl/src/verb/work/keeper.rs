//! Keeps alive what is held, and settles it. A thread of its own, so that neither waits for the other's
//! connection, and both survive the daemon's restart.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use protocol::request::Held;
use protocol::{ErrorCode, MessageId, Refusal, Reply, Request, Token};

use super::Event;
use super::link::Link;

/// What it is to do.
pub(super) enum Job {
    /// Keep this alive.
    Hold(Held),
    /// Settle this with that request, and keep it alive no longer.
    Settle(Held, Request),
    /// A sign of life now.
    Beat,
}

/// Everything that is held.
pub(super) struct Keeper {
    link: Link,
    held: BTreeMap<Token, MessageId>,
    every: Duration,
    next: Instant,
    jobs: Receiver<Job>,
    events: Sender<Event>,
}

impl Keeper {
    /// Begins; it ends with the last sender.
    pub(super) fn start(link: Link, every: Duration, events: Sender<Event>) -> Sender<Job> {
        let (sender, jobs) = mpsc::channel();
        let keeper = Self { link, held: BTreeMap::new(), every, next: Instant::now() + every, jobs, events };
        thread::spawn(move || keeper.run());
        sender
    }

    fn run(mut self) {
        loop {
            let job = if self.held.is_empty() {
                self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.jobs.recv_timeout(self.next.saturating_duration_since(Instant::now()))
            };
            match job {
                Ok(Job::Hold(held)) => {
                    if self.held.is_empty() {
                        self.next = Instant::now() + self.every;
                    }
                    self.held.insert(held.token, held.id);
                }
                Ok(Job::Settle(held, request)) => {
                    let reply = self.ask(&request);
                    self.held.remove(&held.token);
                    self.tell(Event::Settled(held.token, reply.map(drop)));
                }
                Ok(Job::Beat) | Err(RecvTimeoutError::Timeout) => self.beat(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// A sign of life for all; where one is stale, for each, which tells which one.
    fn beat(&mut self) {
        let all: Vec<Held> = self.held.iter().map(|(&token, &id)| Held { id, token }).collect();
        if !all.is_empty() && self.is_stale(all.clone()) {
            for held in all {
                if self.is_stale(vec![held]) {
                    self.held.remove(&held.token);
                    self.tell(Event::Stale(held.token));
                }
            }
        }
        self.next = Instant::now() + self.every;
    }

    fn is_stale(&mut self, held: Vec<Held>) -> bool {
        let request = Request::Heartbeat(held);
        loop {
            match self.link.ask_until_answered(&request) {
                Some(Err(refusal)) => return is_lost(&refusal),
                Some(Ok(_)) => return false,
                None => {}
            }
        }
    }

    /// Asks until there is an answer. A new connection begins with a sign of life.
    fn ask(&mut self, request: &Request) -> Reply {
        loop {
            if self.link.is_lost() {
                self.beat();
            }
            if let Some(reply) = self.link.ask_until_answered(request) {
                return reply;
            }
        }
    }

    fn tell(&self, event: Event) {
        // Whoever listened is gone, and this soon will be.
        drop(self.events.send(event));
    }
}

/// Whether a message is somebody else's by now, or nobody's.
pub(super) fn is_lost(refusal: &Refusal) -> bool {
    matches!(refusal.code, ErrorCode::Conflict | ErrorCode::NotFound)
}
