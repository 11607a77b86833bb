//! A connection to `poold` that is established again after a loss, for as long as it takes.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::reply::Registered;
use protocol::request::Register;
use protocol::{
    Backoff, ConnectError, ErrorCode, OpId, Refusal, Reply, Request, Response, Role, TransportError,
};

use crate::client::RetryLimit;
use crate::{Client, Context, Error};

/// The shortest and the longest pause after a failed attempt.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);
/// Time limit for establishing a connection: signals wait for it.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Pause after a storage error. A daemon that cannot write its database has ended by then; a daemon that still runs
/// only failed to read this one record.
pub(super) const STORAGE_PAUSE: Duration = Duration::from_millis(1500);
/// Time limit for the answer to a request that does not wait.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A connection in one role, while there is one. Its requests are made under no lock: none of them needs one,
/// and a worker may outlive the lock under which it was started.
pub(super) struct Reconnecting {
    client: Client,
    role: Role,
    connection: Option<Connection>,
    since: Instant,
    backoff: Backoff,
    /// True if the next attempt needs no pause.
    at_once: bool,
    lost: bool,
}

impl Reconnecting {
    fn new(context: &Context, role: Role) -> Self {
        let client = Client::new(context, None);
        let backoff = Backoff::new(SHORTEST, LONGEST);
        Self { client, role, connection: None, since: Instant::now(), backoff, at_once: true, lost: false }
    }

    /// A client's connection, which is established when it is first needed.
    pub(super) fn client(context: &Context) -> Self {
        Self::new(context, Role::Client)
    }

    /// A worker's connection, registered. The first connection is not waited for beyond the usual time limit.
    pub(super) fn register(context: &Context, register: &Register) -> Result<(Self, Registered), Error> {
        let mut new = Self::new(context, Role::Generator);
        let mut limit = RetryLimit::new(context.limit());
        loop {
            let began = Instant::now();
            let refusal = match new.connect() {
                Ok(()) => match new.ask(&Request::Register(register.clone())) {
                    Some(Ok(Response::Registered(registered))) => return Ok((new, registered)),
                    Some(Ok(other)) => return Err(Error::unexpected(&other)),
                    Some(Err(refusal)) => return Err(refusal.into()),
                    None => Refusal::unavailable("the connection to poold was lost"),
                },
                Err(error) if new.client.may_come_back(&error) => error.refusal(),
                Err(error) => return Err(new.client.refusal(&error).into()),
            };
            if !limit.wait_to_retry(began) {
                return Err(refusal.into());
            }
        }
    }

    /// Connects, unless it is connected.
    pub(super) fn connect(&mut self) -> Result<(), ConnectError> {
        if self.connection.is_none() {
            self.connection = Some(self.client.connect(self.role, Some(CONNECT_LIMIT))?);
            self.since = Instant::now();
        }
        Ok(())
    }

    /// The connection, while there is one.
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// The descriptor, which is readable when a frame has arrived or the connection has ended.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(Connection::as_fd)
    }

    /// Drops the connection. After one that lasted for a while, the next attempt follows at once.
    pub(super) fn disconnect(&mut self) {
        self.lost = true;
        if self.connection.take().is_some() && self.since.elapsed() >= LONGEST {
            self.at_once = true;
            self.backoff.reset();
        }
    }

    /// True if the connection was lost, and nothing was answered since.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// The pause before the next attempt: none before the first one.
    pub(super) fn pause(&mut self) -> Duration {
        if std::mem::take(&mut self.at_once) { Duration::ZERO } else { self.backoff.pause() }
    }

    /// Sends a request on the present connection. `None` if that is lost, or the daemon is about to end; then
    /// it is dropped.
    pub(super) fn ask(&mut self, request: &Request) -> Option<Reply> {
        self.attempt(|connection| connection.call(None, None, request.clone()))
    }

    /// Sends a request whose answer comes in parts. The first part comes again if the request is repeated.
    pub(super) fn ask_each(&mut self, request: &Request, mut part: impl FnMut(Response)) -> Option<Reply> {
        self.attempt(|connection| connection.call_each(None, None, request.clone(), &mut part))
    }

    fn attempt(
        &mut self,
        mut call: impl FnMut(&mut Connection) -> Result<Reply, TransportError>,
    ) -> Option<Reply> {
        let connection = self.connection.as_mut()?;
        connection.set_timeout(Some(ANSWER_LIMIT));
        let mut reply = call(connection);
        if reply.as_ref().is_ok_and(is_storage) {
            thread::sleep(STORAGE_PAUSE);
            reply = call(connection);
        }
        let reply = reply.ok().filter(|reply| !is_transient(reply));
        match &reply {
            Some(_) => self.lost = false,
            None => self.disconnect(),
        }
        reply
    }

    /// Sends a request, after connecting if necessary, however long that takes. `None` if the connection is lost after
    /// that.
    pub(super) fn ask_until_answered(&mut self, request: &Request) -> Option<Reply> {
        while self.connection.is_none() {
            thread::sleep(self.pause());
            // Tried again after any error: each may be transient.
            drop(self.connect());
        }
        self.ask(request)
    }

    /// Sends a request once on a new connection in the client's role.
    pub(super) fn ask_as_client(&mut self, op: OpId, request: Request) -> Option<Reply> {
        self.disconnect();
        self.role = Role::Client;
        self.connect().ok()?;
        let connection = self.connection.as_mut()?;
        connection.set_timeout(Some(ANSWER_LIMIT));
        connection.call(Some(op), None, request).ok()
    }
}

/// True if the same request may succeed after a restart of the daemon.
pub(super) fn is_transient(reply: &Reply) -> bool {
    matches!(reply, Err(Refusal { code: ErrorCode::Unavailable | ErrorCode::Timeout, .. }))
}

/// True if the database failed. That is transient if the daemon ends because of it, and final otherwise.
pub(super) fn is_storage(reply: &Reply) -> bool {
    matches!(reply, Err(Refusal { code: ErrorCode::Storage, .. }))
}
