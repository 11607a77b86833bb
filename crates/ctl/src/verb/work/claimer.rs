//! Claims messages as a registered generator, one claim at a time, and is told meanwhile to stop.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use protocol::message::{Claimed, PROMPT};
use protocol::request::{Claim, Messages, Register};
use protocol::{Frame, MessageState, OpId, Reply, Request, Response, TransportError};

use super::Event;
use super::keeper::Job;
use super::link::{ANSWER, LINGER, Link, is_passing, is_storage};
use crate::client::random_op;
use crate::error::Error;
use crate::follow;
use crate::show::out;

/// How long the rest of what is being read is waited for before there is a look at the orders.
const MOMENT: Duration = Duration::from_millis(10);

/// What it is to do.
pub(super) enum Order {
    /// Claim at most so many, waiting so long.
    Claim { max: u32, wait_ms: u64 },
    /// No more; what the last claim brought or brings is told.
    Finish,
}

/// Where orders are given.
pub(super) struct Orders {
    sender: Sender<Order>,
    wake: PipeWriter,
}

impl Orders {
    /// Gives an order. To one who is gone there is nothing to say: that was told.
    pub(super) fn give(&mut self, order: Order) {
        if self.sender.send(order).is_ok() {
            drop(self.wake.write_all(&[0]));
        }
    }
}

/// What it claims, and how.
pub(super) struct Claimer {
    pub link: Link,
    pub register: Register,
    pub lease_ms: Option<u64>,
    /// Whether to say if more waits.
    pub until_empty: bool,
    pub quiet: bool,
}

struct Thread {
    with: Claimer,
    orders: Receiver<Order>,
    woken: PipeReader,
    events: Sender<Event>,
    keeper: Sender<Job>,
    /// The claim that is not answered. Its repeat under the same id brings the same messages.
    claim: Option<(OpId, Claim)>,
    /// When the claim that is not answered is taken for lost. The daemon's own time for it is over long before.
    due: Option<Instant>,
    /// It was answered that the database failed.
    doubted: bool,
}

impl Claimer {
    /// Begins.
    ///
    /// # Errors
    /// The system has no pipe.
    pub(super) fn start(self, events: Sender<Event>, keeper: Sender<Job>) -> std::io::Result<Orders> {
        let (woken, wake) = std::io::pipe()?;
        let (sender, orders) = mpsc::channel();
        let mut thread =
            Thread { with: self, orders, woken, events, keeper, claim: None, due: None, doubted: false };
        thread::spawn(move || {
            let over = thread.run();
            // Whoever listened may be gone.
            drop(over.map_err(|error| thread.events.send(Event::Broken(error))));
        });
        Ok(Orders { sender, wake })
    }
}

impl Thread {
    /// Follows orders until the last one.
    fn run(&mut self) -> Result<(), Error> {
        loop {
            if self.with.link.connection().is_none() && !self.reconnect()? {
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
                    if overdue && self.with.link.connection().is_some() {
                        self.lost()?;
                    }
                }
            }
        }
    }

    fn next(&self, max: u32, wait_ms: u64) -> Result<(OpId, Claim), Error> {
        let Register { session, kinds } = self.with.register.clone();
        Ok((random_op()?, Claim { session, kinds, max, lease_ms: self.with.lease_ms, wait_ms }))
    }

    /// Waits for an order, or until the connection has something to read, or the time is over.
    fn wait(&mut self, limit: Option<Duration>) -> Result<Option<Order>, Error> {
        let Self { with, woken, .. } = self;
        let mut fds = vec![PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        fds.extend(with.link.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        follow::wait(&mut fds, limit)?;
        let ordered = follow::has(&fds[0], PollFlags::POLLIN | PollFlags::POLLHUP);
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

    /// Asks for the claim. The answer may be there already.
    fn post(&mut self) -> Result<(), Error> {
        let Some((op, claim)) = self.claim.clone() else { return Ok(()) };
        let Some(connection) = self.with.link.connection() else { return Ok(()) };
        connection.set_timeout(Some(Duration::ZERO));
        self.due = Some(Instant::now() + Duration::from_millis(claim.wait_ms) + ANSWER);
        match connection.call(Some(op), None, Request::Claim(claim)) {
            Ok(reply) => self.answered(reply),
            Err(TransportError::Timeout) => Ok(()),
            Err(_) => self.lost(),
        }
    }

    /// Reads the answer, if all of it is there.
    fn read(&mut self) -> Result<(), Error> {
        while let Some(connection) = self.with.link.connection() {
            connection.set_timeout(Some(MOMENT));
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
                (self.claim, self.doubted) = (None, false);
                let left = self.with.until_empty && messages.is_empty() && self.more_waits()?;
                self.tell(Event::Claimed(messages, left));
                Ok(())
            }
            Ok(other) => Err(Error::unexpected(&other)),
            reply if is_passing(&reply) => self.lost(),
            reply if is_storage(&reply) && !std::mem::replace(&mut self.doubted, true) => {
                thread::sleep(LINGER);
                self.post()
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Whether something of the kinds waits, if only for its next try. Prompts may be before it, however many.
    fn more_waits(&mut self) -> Result<bool, Error> {
        let Register { session, kinds } = self.with.register.clone();
        let any = kinds.is_empty();
        let (states, limit) = (vec![MessageState::Queued], if any { u32::MAX } else { 1 });
        let which = Request::Messages(Messages { session, kinds, states, limit });
        let mut waits = false;
        let mut look = |part: Response| {
            if let Response::Messages(waiting) = part {
                waits |= waiting.iter().any(|message| !any || message.kind != PROMPT);
            }
        };
        match self.with.link.ask_each(&which, &mut look) {
            Some(Ok(last)) => look(last),
            Some(Err(refusal)) => return Err(refusal.into()),
            None => return Ok(true),
        }
        Ok(waits)
    }

    /// The connection is gone, and with it the registration: what is held must be shown to live.
    fn lost(&mut self) -> Result<(), Error> {
        self.with.link.cut();
        (self.due, self.doubted) = (None, false);
        drop(self.keeper.send(Job::Beat));
        self.say("the connection to poold was lost; what runs goes on meanwhile");
        Ok(())
    }

    /// Connects, registers and claims anew. False where that is no longer wanted.
    fn reconnect(&mut self) -> Result<bool, Error> {
        loop {
            let pause = self.with.link.pause();
            match self.wait(Some(pause))? {
                Some(Order::Finish) => return self.finish().map(|()| false),
                Some(Order::Claim { max, wait_ms }) => self.claim = Some(self.next(max, wait_ms)?),
                None => {}
            }
            match self.with.link.dial() {
                Ok(()) => {}
                Err(error) if error.code() == protocol::ErrorCode::Protocol => {
                    return Err(error.refusal().into());
                }
                Err(_) => continue,
            }
            match self.with.link.ask(&Request::Register(self.with.register.clone())) {
                Some(Ok(Response::Registered(_))) => break,
                Some(Ok(other)) => return Err(Error::unexpected(&other)),
                Some(Err(refusal)) => return Err(refusal.into()),
                None => {}
            }
        }
        self.say("poold is back");
        self.post().map(|()| true)
    }

    /// Tells what the claim has brought that was not answered: the connection on which it would bring
    /// more ends first.
    fn finish(&mut self) -> Result<(), Error> {
        let Some((op, claim)) = self.claim.take() else { return Ok(()) };
        let mut brought: Vec<Claimed> = Vec::new();
        if self.with.link.connection().is_some() {
            let again = Request::Claim(Claim { wait_ms: 0, ..claim });
            if let Some(Ok(Response::Claimed(messages))) = self.with.link.ask_as_client(op, again) {
                brought = messages;
            }
        }
        self.tell(Event::Claimed(brought, false));
        Ok(())
    }

    fn tell(&self, event: Event) {
        // Whoever listened is gone, and this soon will be.
        drop(self.events.send(event));
    }

    fn say(&self, text: &str) {
        if !self.with.quiet {
            out::note(&format!("poolctl: {text}"));
        }
    }
}
