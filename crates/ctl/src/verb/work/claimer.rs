//! Claims messages as a registered worker, one claim at a time. It takes orders while a claim waits.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use protocol::request::{Claim, List, Messages, Register};
use protocol::worker::{ClaimScope, Selection};
use protocol::{
    Claimed, ErrorCode, Frame, MessageState, OpId, PROMPT, Reply, Request, Response, SessionRef,
    TransportError,
};

use super::event::WorkEvent;
use super::lease_keeper::LeaseOrder;
use super::reconnect::{ANSWER_LIMIT, Reconnecting, STORAGE_PAUSE, is_storage, is_transient};
use crate::client::random_op;
use crate::show::out;
use crate::{Error, poll, threads};

/// Time limit for the rest of a frame that has begun to arrive, before orders are looked at again.
const FRAME_LIMIT: Duration = Duration::from_millis(10);

/// The longest wait of a claim. The host of a worker may wait that long for its answer while messages for it wait for
/// a free handler.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Time after the end of a claim's wait after which an empty answer counts as late: `poold` held it back because
/// messages wait.
const LATE: Duration = Duration::from_secs(1);

/// An order to the thread.
pub(super) enum Order {
    /// Claim at most `max` messages, and wait for the first one at most this long.
    Claim { max: u32, wait_ms: u64 },
    /// Claim no more, and report the messages of the last claim.
    Finish,
}

/// The sender of orders.
pub(super) struct Orders {
    sender: Sender<Order>,
    wake: PipeWriter,
}

impl Orders {
    /// Gives an order. If the thread has ended, an event has reported that.
    pub(super) fn give(&mut self, order: Order) {
        if self.sender.send(order).is_ok() {
            drop(self.wake.write_all(&[0]));
        }
    }
}

/// The settings of the thread.
pub(super) struct Claimer {
    pub connection: Reconnecting,
    pub register: Register,
    pub lease_ms: Option<u64>,
    /// True if it reports whether more messages wait.
    pub until_empty: bool,
    pub quiet: bool,
}

struct ClaimThread {
    with: Claimer,
    orders: Receiver<Order>,
    woken: PipeReader,
    events: Sender<WorkEvent>,
    leases: Sender<LeaseOrder>,
    /// The unanswered claim. Repeated under the same id, it is answered with the same messages.
    claim: Option<(OpId, Claim)>,
    /// The time at which the unanswered claim counts as lost, long after the daemon's own time limit.
    due: Option<Instant>,
    /// The end of the unanswered claim's wait.
    waited_at: Instant,
    /// True after a storage error, which is retried once.
    storage_failed: bool,
}

impl Claimer {
    /// Starts the thread.
    pub(super) fn start(
        self,
        events: Sender<WorkEvent>,
        leases: Sender<LeaseOrder>,
    ) -> std::io::Result<Orders> {
        let (woken, wake) = std::io::pipe()?;
        let (sender, orders) = mpsc::channel();
        let mut thread = ClaimThread {
            with: self,
            orders,
            woken,
            events,
            leases,
            claim: None,
            due: None,
            waited_at: Instant::now(),
            storage_failed: false,
        };
        threads::start(move || {
            // The receiver is gone once the main thread has ended.
            drop(thread.run().map_err(|error| thread.events.send(WorkEvent::Broken(error))));
        })?;
        Ok(Orders { sender, wake })
    }
}

impl ClaimThread {
    /// Follows orders until the last one.
    fn run(&mut self) -> Result<(), Error> {
        loop {
            if self.with.connection.connection().is_none() && !self.reconnect()? {
                return Ok(());
            }
            let left = self.due.map(|due| due.saturating_duration_since(Instant::now()));
            match self.wait(left)? {
                Some(Order::Claim { max, wait_ms }) => {
                    self.claim = Some(self.next(max, wait_ms)?);
                    self.post()?;
                }
                Some(Order::Finish) => return self.finish(),
                None => {
                    self.read()?;
                    let overdue = self.due.is_some_and(|due| due <= Instant::now());
                    if overdue && self.with.connection.connection().is_some() {
                        self.lost()?;
                    }
                }
            }
        }
    }

    fn next(&self, max: u32, wait_ms: u64) -> Result<(OpId, Claim), Error> {
        let Register { scope, kinds } = self.with.register.clone();
        Ok((random_op()?, Claim { scope, kinds, max, lease_ms: self.with.lease_ms, wait_ms }))
    }

    /// Waits for an order, for data on the connection, or until the time is over.
    fn wait(&mut self, limit: Option<Duration>) -> Result<Option<Order>, Error> {
        let Self { with, woken, .. } = self;
        let mut fds = vec![PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        fds.extend(with.connection.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        poll::wait(&mut fds, limit)?;
        let ordered = poll::has(&fds[0], PollFlags::POLLIN | PollFlags::POLLHUP);
        drop(fds);
        if !ordered {
            return Ok(None);
        }
        drop(woken.read(&mut [0]));
        match self.orders.try_recv() {
            Ok(order) => Ok(Some(order)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Ok(Some(Order::Finish)),
        }
    }

    /// Sends the claim. The answer may follow at once.
    fn post(&mut self) -> Result<(), Error> {
        let Some((op, claim)) = self.claim.clone() else { return Ok(()) };
        let is_host = self.is_host();
        let Some(connection) = self.with.connection.connection() else { return Ok(()) };
        connection.set_timeout(Some(Duration::ZERO));
        let wait = Duration::from_millis(claim.wait_ms);
        self.waited_at = Instant::now() + wait;
        let longest = if is_host { wait.max(WAIT_MAX) } else { wait };
        self.due = Some(Instant::now() + longest + ANSWER_LIMIT);
        match connection.call(Some(op), None, Request::Claim(claim)) {
            Ok(reply) => self.answered(reply),
            Err(TransportError::Timeout) => Ok(()),
            Err(_) => self.lost(),
        }
    }

    /// Reads the answer, if it has arrived.
    fn read(&mut self) -> Result<(), Error> {
        while let Some(connection) = self.with.connection.connection() {
            connection.set_timeout(Some(FRAME_LIMIT));
            match connection.next_frame() {
                Ok(Frame::Reply { reply, .. }) => return self.answered(reply),
                Ok(_) => {}
                Err(TransportError::Timeout) => break,
                Err(_) => return self.lost(),
            }
        }
        Ok(())
    }

    fn answered(&mut self, reply: Reply) -> Result<(), Error> {
        self.due = None;
        match reply {
            Ok(Response::Claimed(messages)) => {
                (self.claim, self.storage_failed) = (None, false);
                let left = messages.is_empty() && self.more_waits()?;
                self.tell(WorkEvent::Claimed(messages, left));
                Ok(())
            }
            Ok(other) => Err(Error::unexpected(&other)),
            reply if is_transient(&reply) => self.lost(),
            reply if is_storage(&reply) && !std::mem::replace(&mut self.storage_failed, true) => {
                thread::sleep(STORAGE_PAUSE);
                self.post()
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn is_host(&self) -> bool {
        matches!(self.with.register.scope, ClaimScope::Host(_))
    }

    /// True if more messages wait than the answer had. For a host a late answer shows it; otherwise `poold` is asked,
    /// and only with `--until-empty`.
    fn more_waits(&mut self) -> Result<bool, Error> {
        if self.is_host() {
            return Ok(self.waited_at.elapsed() >= LATE);
        }
        Ok(self.with.until_empty && self.any_waits()?)
    }

    /// True if a message of the worker's kinds waits, even if only for its next attempt. Without kinds all queued
    /// messages are listed, as any number of prompts may come before the first other one.
    fn any_waits(&mut self) -> Result<bool, Error> {
        let Some(sessions) = self.sessions()? else { return Ok(true) };
        let kinds = &self.with.register.kinds;
        let any = kinds.is_empty();
        let mut waits = false;
        for session in sessions {
            let (states, limit) = (vec![MessageState::Queued], if any { u32::MAX } else { 1 });
            let which = Request::Messages(Messages { session, kinds: kinds.clone(), states, limit });
            let mut check = |part: Response| {
                if let Response::Messages(waiting) = part {
                    waits |= waiting.iter().any(|message| !any || message.kind != PROMPT);
                }
            };
            match self.with.connection.ask_each(&which, &mut check) {
                Some(Ok(last)) => check(last),
                // One of several sessions may have been removed.
                Some(Err(refusal)) if refusal.code == ErrorCode::NotFound => {}
                Some(Err(refusal)) => return Err(refusal.into()),
                None => return Ok(true),
            }
        }
        Ok(waits)
    }

    /// The sessions whose messages are worked; `None` if the connection is lost.
    fn sessions(&mut self) -> Result<Option<Vec<SessionRef>>, Error> {
        let (agent, labels) = match self.with.register.scope.clone() {
            ClaimScope::Sessions(Selection::Named(sessions)) => return Ok(Some(sessions)),
            ClaimScope::Sessions(Selection::Matching { agent, labels }) => (agent, labels),
            // The host of a worker need not ask: `poold` shows by a late answer that messages wait.
            ClaimScope::Host(_) => return Ok(Some(Vec::new())),
        };
        let list = Request::List(List { all: true, agent, labels, ..List::default() });
        let mut sessions = Vec::new();
        let mut add = |part: Response| {
            if let Response::Sessions(views) = part {
                sessions.extend(views.iter().map(|view| SessionRef::from(view.session.id)));
            }
        };
        match self.with.connection.ask_each(&list, &mut add) {
            Some(Ok(last)) => add(last),
            Some(Err(refusal)) => return Err(refusal.into()),
            None => return Ok(None),
        }
        Ok(Some(sessions))
    }

    /// Handles the loss of the connection, and of the registration with it: heartbeats must keep the claims.
    fn lost(&mut self) -> Result<(), Error> {
        self.with.connection.disconnect();
        (self.due, self.storage_failed) = (None, false);
        drop(self.leases.send(LeaseOrder::Heartbeat));
        self.say("lost the connection to poold; running handlers continue");
        Ok(())
    }

    /// Connects, registers and repeats the claim. Returns false if ordered to finish.
    fn reconnect(&mut self) -> Result<bool, Error> {
        loop {
            let pause = self.with.connection.pause();
            match self.wait(Some(pause))? {
                Some(Order::Finish) => return self.finish().map(|()| false),
                Some(Order::Claim { max, wait_ms }) => self.claim = Some(self.next(max, wait_ms)?),
                None => {}
            }
            match self.with.connection.connect() {
                Ok(()) => {}
                Err(error) if error.code() == ErrorCode::Protocol => {
                    return Err(error.refusal().into());
                }
                Err(_) => continue,
            }
            match self.with.connection.ask(&Request::Register(self.with.register.clone())) {
                Some(Ok(Response::Registered(_))) => break,
                Some(Ok(other)) => return Err(Error::unexpected(&other)),
                Some(Err(refusal)) => return Err(refusal.into()),
                None => {}
            }
        }
        self.say("connected to poold again");
        self.post().map(|()| true)
    }

    /// Reports the messages of the unanswered claim: the claim is repeated on another connection, after the first one
    /// was closed so that it can bring no more.
    fn finish(&mut self) -> Result<(), Error> {
        let Some((op, claim)) = self.claim.take() else { return Ok(()) };
        let mut messages: Vec<Claimed> = Vec::new();
        if self.with.connection.connection().is_some() {
            let again = Request::Claim(Claim { wait_ms: 0, ..claim });
            if let Some(Ok(Response::Claimed(claimed))) = self.with.connection.ask_as_client(op, again) {
                messages = claimed;
            }
        }
        self.tell(WorkEvent::Claimed(messages, false));
        Ok(())
    }

    fn tell(&self, event: WorkEvent) {
        // Without a receiver this thread is about to end.
        drop(self.events.send(event));
    }

    fn say(&self, text: &str) {
        if !self.with.quiet {
            out::note(&format!("poolctl: {text}"));
        }
    }
}
