//! Requests to `poold` that survive its restart: where a connection is lost, the same request is
//! made again under the same operation id until the time is over.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::connect::CONNECT_TIMEOUT;
use protocol::{
    ConnectError, ErrorCode, Hello, OpId, Refusal, Reply, Request, Response, Role, Token, TransportError,
};

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::up::lock;

/// Less room than this on its disk, in bytes, and a database cannot be written.
const FULL: u64 = 1 << 20;
/// How long a command without a limit of its own waits for a lost daemon to come back.
const LOSS: Duration = Duration::from_secs(30);
/// Time between two tries to reach a daemon that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a daemon has to answer when only its presence matters.
const LOOK: Duration = Duration::from_secs(1);

/// A client of one pool; connects when it is first needed.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    up_lock: PathBuf,
    state: PathBuf,
    pool: String,
    /// The lock under which requests are made.
    pub lock: Option<Token>,
    limit: Option<Duration>,
    connection: Option<Connection>,
    /// Whether the daemon was ever reached.
    reached: bool,
}

/// A connection, and what it answered.
type Asked = (Connection, Result<Reply, TransportError>);

/// How an attempt failed.
enum Failure {
    /// As it does while a daemon restarts. Nothing was sent that changes anything.
    Away(Refusal),
    /// The same, with the request taken in.
    Lost(Refusal),
    /// Trying again would not help.
    Final(Refusal),
}

impl Client {
    /// A client whose requests take at most this long each.
    #[must_use]
    pub(crate) fn new(context: &Context, limit: Option<Duration>) -> Self {
        Self {
            socket: context.paths.socket.clone(),
            up_lock: context.paths.up_lock.clone(),
            state: context.paths.state.clone(),
            pool: context.paths.pool.to_string(),
            lock: context.lock,
            limit,
            connection: None,
            reached: false,
        }
    }

    /// Asks for something that changes nothing.
    ///
    /// # Errors
    /// The daemon's refusal, or that it was not reached.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Response, Error> {
        self.call(None, request)
    }

    /// Asks for a change, which happens once however often it is repeated.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn change(&mut self, repeat: &Repeat, request: Request) -> Result<Response, Error> {
        let op = match &repeat.op_id {
            Some(id) => OpId::Named(id.clone()),
            None => random_op()?,
        };
        self.call(Some(op), request)
    }

    /// Makes a call with whatever operation id.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn call(&mut self, op: Option<OpId>, request: Request) -> Result<Response, Error> {
        self.persist(|client, left| client.attempt(op.clone(), request.clone(), left))
    }

    /// Tries until there is an answer, or the time is over.
    fn persist(
        &mut self,
        mut attempt: impl FnMut(&mut Self, Option<Duration>) -> Result<Reply, Failure>,
    ) -> Result<Response, Error> {
        let mut patience = Patience::new(self.limit);
        let mut lost: Option<Refusal> = None;
        loop {
            let began = Instant::now();
            let refusal = match attempt(self, patience.left()) {
                Ok(reply) => return Ok(reply?),
                Err(Failure::Final(refusal)) => return Err(refusal.into()),
                Err(Failure::Away(refusal)) => refusal,
                Err(Failure::Lost(refusal)) => lost.insert(refusal).clone(),
            };
            if !patience.again(began) {
                return Err(self.full_disk().or(lost).unwrap_or(refusal).into());
            }
        }
    }

    /// Asks for something that changes nothing and is long: it is handed over in parts, as they come.
    ///
    /// # Errors
    /// As [`Client::ask`], that the answer was cut, and whatever `part` fails with.
    pub(crate) fn ask_each(
        &mut self,
        request: &Request,
        mut part: impl FnMut(Response) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut taken = Ok(());
        let mut take = |next| {
            if taken.is_ok() {
                taken = part(next);
            }
        };
        let last = self.persist(|client, left| client.attempt_each(request, left, &mut take))?;
        take(last);
        taken
    }

    /// Asks once, without patience.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn ask_once(&mut self, request: Request, within: Duration) -> Result<Response, Error> {
        match self.attempt(None, request, Some(within)) {
            Ok(reply) => Ok(reply?),
            Err(Failure::Away(refusal) | Failure::Lost(refusal)) => {
                Err(self.full_disk().unwrap_or(refusal).into())
            }
            Err(Failure::Final(refusal)) => Err(refusal.into()),
        }
    }

    fn attempt(
        &mut self,
        op: Option<OpId>,
        request: Request,
        left: Option<Duration>,
    ) -> Result<Reply, Failure> {
        let (connection, reply) = match self.connection.take() {
            // A change waits for its welcome: without one it was certainly not made.
            None if op.is_none() => self.connect_and_ask(request, left),
            None => self.connect(Role::Client, left).map(|new| self.call_on(new, op, request, left)),
            Some(kept) => Ok(self.call_on(kept, op, request, left)),
        }
        .map_err(|error| self.unreached(&error))?;
        let reply = reply.map_err(|error| match error {
            TransportError::Closed | TransportError::Io(_) => Failure::Lost(error.refusal()),
            TransportError::Timeout | TransportError::Frame(_) => Failure::Final(error.refusal()),
        })?;
        self.connection = Some(connection);
        Ok(reply)
    }

    /// On a connection of its own. Where that is lost once a part has come, trying again would bring it twice.
    fn attempt_each(
        &mut self,
        request: &Request,
        left: Option<Duration>,
        part: &mut dyn FnMut(Response),
    ) -> Result<Reply, Failure> {
        let mut connection = self.connect(Role::Client, left).map_err(|error| self.unreached(&error))?;
        connection.set_timeout(left);
        let mut begun = false;
        let reply = connection.call_each(None, self.lock, request.clone(), |next| {
            begun = true;
            part(next);
        });
        reply.map_err(|error| match error {
            TransportError::Closed | TransportError::Io(_) if !begun => Failure::Lost(error.refusal()),
            _ => Failure::Final(error.refusal()),
        })
    }

    fn unreached(&self, error: &ConnectError) -> Failure {
        let refusal = error.refusal();
        if self.may_come_back(error) {
            return Failure::Away(refusal);
        }
        let not_there = matches!(error, ConnectError::NotThere(_));
        Failure::Final(self.full_disk().filter(|_| not_there).unwrap_or(refusal))
    }

    /// Why no daemon answers, where its disk is full: it ends then, and cannot start.
    fn full_disk(&self) -> Option<Refusal> {
        let free = process::machine::free_disk(&self.state).filter(|free| *free < FULL)?;
        let (state, free) = (self.state.display(), free >> 10);
        let why =
            format!("the disk of {state} is full ({free} KiB left), so poold cannot go on: make room there");
        Some(Refusal::new(ErrorCode::Storage, why))
    }

    fn call_on(
        &self,
        mut connection: Connection,
        op: Option<OpId>,
        request: Request,
        left: Option<Duration>,
    ) -> Asked {
        connection.set_timeout(left);
        let reply = connection.call(op, self.lock, request);
        (connection, reply)
    }

    /// A new connection, with the first question asked along with the hello.
    fn connect_and_ask(&mut self, request: Request, left: Option<Duration>) -> Result<Asked, ConnectError> {
        let hello = self.hello(Role::Client);
        let asked = Connection::connect_and_ask(&self.socket, &hello, left, self.lock, request)?;
        self.reached = true;
        Ok(asked)
    }

    /// Whether a daemon that is not reached is worth waiting for. One that is not there and never
    /// was is not, unless somebody looks after it.
    #[must_use]
    pub(crate) fn may_come_back(&self, error: &ConnectError) -> bool {
        let never_there = matches!(error, ConnectError::NotThere(_)) && !self.reached;
        error.is_passing() && (!never_there || lock::is_held(&self.up_lock))
    }

    /// Whether anything listens at the socket. What does may be no daemon, or one that does not answer.
    #[must_use]
    pub(crate) fn anybody_there(&mut self) -> bool {
        !matches!(self.connect(Role::Client, Some(LOOK)), Err(ConnectError::NotThere(_)))
    }

    /// A new connection in this role.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub(crate) fn connect(&mut self, role: Role, left: Option<Duration>) -> Result<Connection, ConnectError> {
        let within = left.unwrap_or(CONNECT_TIMEOUT).min(CONNECT_TIMEOUT);
        let (connection, _) = Connection::connect_within(&self.socket, &self.hello(role), Some(within))?;
        self.reached = true;
        Ok(connection)
    }

    fn hello(&self, role: Role) -> Hello {
        Hello::new(role, &self.pool, concat!("poolctl ", env!("CARGO_PKG_VERSION")))
    }
}

/// A fresh operation id.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn random_op() -> Result<OpId, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::from(Refusal::new(ErrorCode::Failed, format!("no random numbers: {error}")))
    })?;
    Ok(OpId::Random(bytes))
}

/// When to stop trying.
#[derive(Debug)]
pub(crate) struct Patience {
    deadline: Option<Instant>,
    trouble: Option<Instant>,
}

impl Patience {
    /// Until the limit is over; without one, until a loss has lasted half a minute.
    #[must_use]
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { deadline: limit.and_then(|limit| Instant::now().checked_add(limit)), trouble: None }
    }

    /// What is left of the limit.
    #[must_use]
    pub(crate) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether to try once more after an attempt that began then and failed; pauses first.
    pub(crate) fn again(&mut self, began: Instant) -> bool {
        let now = Instant::now();
        if now.duration_since(began) >= LOSS {
            self.trouble = None;
        }
        let trouble = *self.trouble.get_or_insert(now);
        let more = now + PAUSE < self.deadline.unwrap_or(trouble + LOSS);
        if more {
            thread::sleep(PAUSE);
        }
        more
    }
}
