//! A connection to `poold` that is made again for as long as it takes.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::reply::Registered;
use protocol::request::Register;
use protocol::{ConnectError, ErrorCode, OpId, Refusal, Reply, Request, Response, Role, TransportError};

use crate::client::{Client, Patience};
use crate::context::Context;
use crate::error::Error;

/// The first pause between two tries that fail, and the longest.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);
/// How long a connection may take to be made: signals wait for it.
const CONNECT: Duration = Duration::from_secs(2);
/// A daemon that cannot write its database is gone after this long. One that lives on could not read this alone.
pub(super) const LINGER: Duration = Duration::from_millis(1500);
/// How long an answer may take that waits for nothing.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// A connection in one role, while there is one. Its requests are made under no lock: none of them takes one, and a
/// worker may outlive that under which it was started.
pub(super) struct Link {
    client: Client,
    role: Role,
    connection: Option<Connection>,
    since: Instant,
    pause: Duration,
    lost: bool,
}

impl Link {
    fn new(context: &Context, role: Role) -> Self {
        let client = Client::new(context, None);
        Self { client, role, connection: None, since: Instant::now(), pause: Duration::ZERO, lost: false }
    }

    /// A client's link; connects when it is first needed.
    pub(super) fn client(context: &Context) -> Self {
        Self::new(context, Role::Client)
    }

    /// A generator's link, registered. Where that is not possible now, it is an error.
    ///
    /// # Errors
    /// The daemon's refusal, or that it was not reached.
    pub(super) fn register(context: &Context, register: &Register) -> Result<(Self, Registered), Error> {
        let mut link = Self::new(context, Role::Generator);
        let mut patience = Patience::new(context.limit());
        loop {
            let began = Instant::now();
            let refusal = match link.dial() {
                Ok(()) => match link.ask(&Request::Register(register.clone())) {
                    Some(Ok(Response::Registered(registered))) => return Ok((link, registered)),
                    Some(Ok(other)) => return Err(Error::unexpected(&other)),
                    Some(Err(refusal)) => return Err(refusal.into()),
                    None => Refusal::new(ErrorCode::Unavailable, "the connection to poold was lost"),
                },
                Err(error) if link.client.may_come_back(&error) => error.refusal(),
                Err(error) => return Err(error.refusal().into()),
            };
            if !patience.again(began) {
                return Err(refusal.into());
            }
        }
    }

    /// Connects, where it is not.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(super) fn dial(&mut self) -> Result<(), ConnectError> {
        if self.connection.is_none() {
            self.connection = Some(self.client.connect(self.role, Some(CONNECT))?);
            self.since = Instant::now();
        }
        Ok(())
    }

    /// The connection, while there is one.
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Readable when something has come on the connection, or it has ended.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(Connection::as_fd)
    }

    /// Gives the connection up. What lived for a while is tried again at once.
    pub(super) fn cut(&mut self) {
        self.lost = true;
        if self.connection.take().is_some() && self.since.elapsed() >= LONGEST {
            self.pause = Duration::ZERO;
        }
    }

    /// Whether there was a connection, and nothing was answered since it was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// How long to wait before the next try: not at all, then a second, doubling.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).clamp(SHORTEST, LONGEST);
        pause
    }

    /// Asks on the connection there is. `None` where it is lost, or the daemon about to end; then there is
    /// none any more.
    pub(super) fn ask(&mut self, request: &Request) -> Option<Reply> {
        self.attempt(|connection| connection.call(None, None, request.clone()))
    }

    /// The same, of an answer that is handed over in parts; again from the first one where it is asked for twice.
    pub(super) fn ask_each(&mut self, request: &Request, mut part: impl FnMut(Response)) -> Option<Reply> {
        self.attempt(|connection| connection.call_each(None, None, request.clone(), &mut part))
    }

    fn attempt(
        &mut self,
        mut call: impl FnMut(&mut Connection) -> Result<Reply, TransportError>,
    ) -> Option<Reply> {
        let connection = self.connection.as_mut()?;
        connection.set_timeout(Some(ANSWER));
        let mut reply = call(connection);
        if reply.as_ref().is_ok_and(is_storage) {
            thread::sleep(LINGER);
            reply = call(connection);
        }
        let reply = reply.ok().filter(|reply| !is_passing(reply));
        match &reply {
            Some(_) => self.lost = false,
            None => self.cut(),
        }
        reply
    }

    /// Asks until there is an answer; makes the connection first where there is none.
    pub(super) fn ask_until_answered(&mut self, request: &Request) -> Option<Reply> {
        while self.connection.is_none() {
            thread::sleep(self.pause());
            // Why it cannot be made may change, whatever it is.
            drop(self.dial());
        }
        self.ask(request)
    }

    /// Asks once more on another connection, as a client and in no more than a moment.
    pub(super) fn ask_as_client(&mut self, op: OpId, request: Request) -> Option<Reply> {
        self.cut();
        self.role = Role::Client;
        self.dial().ok()?;
        let connection = self.connection.as_mut()?;
        connection.set_timeout(Some(CONNECT));
        connection.call(Some(op), None, request).ok()
    }
}

/// Whether a refusal says that the same may be asked again once the daemon is another one.
pub(super) fn is_passing(reply: &Reply) -> bool {
    matches!(reply, Err(Refusal { code: ErrorCode::Unavailable | ErrorCode::Timeout, .. }))
}

/// Whether the database failed: passing where the daemon ends of it, else final.
pub(super) fn is_storage(reply: &Reply) -> bool {
    matches!(reply, Err(Refusal { code: ErrorCode::Storage, .. }))
}
