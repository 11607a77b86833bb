//! Requests to `poold` that survive its restart: after the loss of a connection the same request is repeated
//! under the same operation id, until the time limit.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::connect::CONNECT_TIMEOUT;
use protocol::{ConnectError, Hello, OpId, Refusal, Reply, Request, Response, Role, Token, TransportError};

use crate::daemon_absence::DaemonAbsence;
use crate::{Context, Error, Repeat, timeout};

/// Time for which a command without a time limit waits for a lost daemon.
const RETURN_LIMIT: Duration = Duration::from_secs(30);
/// Interval between attempts to reach a lost daemon.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Time for the daemon's own answer that a wait is over, beyond the limit of the wait.
pub(crate) const ANSWER_MARGIN: Duration = Duration::from_millis(100);

/// Time limit for a connection that only tests whether a daemon runs.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// A client of one pool. It connects when it is first used.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    absence: DaemonAbsence,
    pool: String,
    /// The lock under which requests are made.
    pub lock: Option<Token>,
    limit: Option<Duration>,
    /// The time limit that the user set for the command.
    users_limit: Option<Duration>,
    connection: Option<Connection>,
    /// True once this command has reached the daemon.
    reached: Arc<AtomicBool>,
}

/// A connection, and the reply to the request on it.
type Answered = (Connection, Result<Reply, TransportError>);

/// The failure of an attempt.
enum Failure {
    /// Transient, as during a restart of the daemon. No change was sent.
    Unreached(Refusal),
    /// Transient: the daemon listens, but did not answer in time. No change was sent.
    Silent,
    /// Transient, and the request may have been processed.
    Lost(Refusal),
    /// Retrying does not help.
    Final(Refusal),
}

impl Client {
    /// A client with this time limit per request.
    pub(crate) fn new(context: &Context, limit: Option<Duration>) -> Self {
        Self {
            socket: context.paths.socket.clone(),
            absence: DaemonAbsence::new(context),
            pool: context.paths.pool.to_string(),
            lock: context.lock,
            limit,
            users_limit: context.waiting_limit(),
            connection: None,
            reached: Arc::clone(&context.reached),
        }
    }

    /// This client, for the daemon of whichever pool listens at the socket.
    pub(crate) fn of_any_pool(self) -> Self {
        Self { pool: String::new(), ..self }
    }

    /// Sets the time limit of each further request.
    pub(crate) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// Makes a request that changes nothing.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Response, Error> {
        self.call(None, request)
    }

    /// Makes a request that is not repeated once it may have been carried out. In that case the error ends with
    /// `hint`, which says how to find out whether it was.
    pub(crate) fn ask_at_most_once(&mut self, request: &Request, hint: &str) -> Result<Response, Error> {
        self.retry(|client, left| {
            client.attempt(None, request.clone(), left).map_err(|failure| match failure {
                Failure::Lost(Refusal { code, message, .. }) => {
                    Failure::Final(Refusal::new(code, format!("{message}: {hint}")))
                }
                other => other,
            })
        })
    }

    /// Makes a request for a change, which is carried out once, however often the request is sent.
    pub(crate) fn change(&mut self, repeat: &Repeat, request: Request) -> Result<Response, Error> {
        self.call(Some(operation(repeat)?), request)
    }

    /// Makes a request with this operation id, or without one.
    pub(crate) fn call(&mut self, op: Option<OpId>, request: Request) -> Result<Response, Error> {
        let answer = self.retry(|client, left| client.attempt(op.clone(), request.clone(), left));
        let ask = |asked| self.ask_once(asked, timeout::CAUSE_LIMIT).ok();
        answer.map_err(|error| timeout::with_cause(ask, &request, error))
    }

    /// Repeats an attempt until it is answered, or the time is over.
    fn retry(
        &mut self,
        mut attempt: impl FnMut(&mut Self, Option<Duration>) -> Result<Reply, Failure>,
    ) -> Result<Response, Error> {
        let mut limit = RetryLimit::new(self.limit);
        let mut lost: Option<Refusal> = None;
        loop {
            let began = Instant::now();
            let failure = match attempt(self, limit.left()) {
                Ok(reply) => return Ok(reply?),
                Err(failure) => failure,
            };
            match &failure {
                Failure::Final(refusal) => return Err(refusal.clone().into()),
                Failure::Lost(refusal) => lost = Some(refusal.clone()),
                Failure::Unreached(_) | Failure::Silent => {}
            }
            if !limit.wait_to_retry(began) {
                let known = self.absence.unwritable_disk().or(lost);
                return Err(known.unwrap_or_else(|| self.cause(failure, self.users_limit)).into());
            }
        }
    }

    /// Makes a request that changes nothing and has a long answer: `part` is called with each part, as it
    /// arrives.
    ///
    /// # Errors
    /// As [`Client::ask`]; the answer is incomplete; the error of `part`.
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
        let last = self.retry(|client, left| client.attempt_each(request, left, &mut take));
        taken.and_then(|()| part(last?))
    }

    /// Makes a request once, within this time limit.
    pub(crate) fn ask_once(&mut self, request: Request, within: Duration) -> Result<Response, Error> {
        match self.attempt(None, request, Some(within)) {
            Ok(reply) => Ok(reply?),
            Err(Failure::Final(refusal)) => Err(refusal.into()),
            Err(failure) => {
                let known = self.absence.unwritable_disk();
                // This time limit is not the user's, so the error does not name it.
                Err(known.unwrap_or_else(|| self.cause(failure, None)).into())
            }
        }
    }

    fn attempt(
        &mut self,
        op: Option<OpId>,
        request: Request,
        left: Option<Duration>,
    ) -> Result<Reply, Failure> {
        let is_read = request.is_read();
        let (connection, reply) = match self.connection.take() {
            // A change is sent only after the welcome, so that it was certainly not made if there was none. Other
            // requests go along with the hello.
            None if op.is_none() => self.connect_and_call(request, left),
            None => self.connect(Role::Client, left).map(|new| self.call_on(new, op, request, left)),
            Some(kept) => Ok(self.call_on(kept, op, request, left)),
        }
        .map_err(|error| self.connect_failure(&error))?;
        let reply = reply.map_err(|error| match error {
            TransportError::Closed | TransportError::Io(_) if is_read => {
                Failure::Unreached(error.refusal_of(true))
            }
            TransportError::Closed | TransportError::Io(_) => Failure::Lost(error.refusal_of(false)),
            TransportError::Timeout | TransportError::Frame(_) => Failure::Final(error.refusal_of(is_read)),
        })?;
        self.connection = Some(connection);
        Ok(reply)
    }

    /// Uses a connection of its own. Its loss after the first part is final, as a repetition would deliver
    /// that part twice.
    fn attempt_each(
        &mut self,
        request: &Request,
        left: Option<Duration>,
        part: &mut dyn FnMut(Response),
    ) -> Result<Reply, Failure> {
        let mut connection =
            self.connect(Role::Client, left).map_err(|error| self.connect_failure(&error))?;
        connection.set_timeout(left);
        let mut begun = false;
        let reply = connection.call_each(None, self.lock, request.clone(), |next| {
            begun = true;
            part(next);
        });
        reply.map_err(|error| match error {
            TransportError::Closed | TransportError::Io(_) if !begun => {
                Failure::Lost(error.refusal_of(request.is_read()))
            }
            _ => Failure::Final(error.refusal_of(request.is_read())),
        })
    }

    fn connect_failure(&self, error: &ConnectError) -> Failure {
        if matches!(error, ConnectError::Timeout(_)) {
            return Failure::Silent;
        }
        if self.may_come_back(error) {
            return Failure::Unreached(error.refusal());
        }
        Failure::Final(self.refusal(error))
    }

    /// Returns the error of a connection that is not tried again, with the cause as far as it is known.
    pub(crate) fn refusal(&self, error: &ConnectError) -> Refusal {
        let is_absent = matches!(error, ConnectError::NotThere(_));
        let known = || self.absence.unwritable_disk().or_else(|| self.absence.of_unkept_daemon());
        is_absent.then(known).flatten().unwrap_or_else(|| error.refusal())
    }

    /// Returns the error of a failed request, with the cause as far as it is known. `limit` is the user's time limit,
    /// if that is over.
    fn cause(&self, failure: Failure, limit: Option<Duration>) -> Refusal {
        match failure {
            Failure::Final(refusal) => refusal,
            Failure::Silent => self.absence.of_silent_daemon(limit),
            Failure::Unreached(refusal) | Failure::Lost(refusal) => {
                let unkept = || self.absence.of_unkept_daemon().filter(|_| !self.socket.exists());
                let kept = self.absence.of_kept_daemon(self.reached.load(Ordering::Relaxed));
                kept.or_else(unkept).unwrap_or(refusal)
            }
        }
    }

    fn call_on(
        &self,
        mut connection: Connection,
        op: Option<OpId>,
        request: Request,
        left: Option<Duration>,
    ) -> Answered {
        connection.set_timeout(left);
        let reply = connection.call(op, self.lock, request);
        (connection, reply)
    }

    /// Opens a connection, with the first request sent along with the hello.
    fn connect_and_call(
        &mut self,
        request: Request,
        left: Option<Duration>,
    ) -> Result<Answered, ConnectError> {
        let hello = self.hello(Role::Client);
        let asked = Connection::connect_and_call(&self.socket, &hello, left, self.lock, request)?;
        self.reached.store(true, Ordering::Relaxed);
        Ok(asked)
    }

    /// True if it is worth waiting for a daemon that was not reached. The failure has to be transient; and this
    /// command has reached the daemon before, or something listens at the socket, or a supervisor keeps the daemon
    /// running.
    pub(crate) fn may_come_back(&self, error: &ConnectError) -> bool {
        let never_there = matches!(error, ConnectError::NotThere(_)) && !self.reached.load(Ordering::Relaxed);
        error.is_transient() && (!never_there || self.absence.is_kept())
    }

    /// True if any process listens at the socket, even one that does not answer.
    #[must_use]
    pub(crate) fn is_listening(&mut self) -> bool {
        !matches!(self.connect(Role::Client, Some(PROBE_LIMIT)), Err(ConnectError::NotThere(_)))
    }

    /// Opens a connection in this role.
    pub(crate) fn connect(&mut self, role: Role, left: Option<Duration>) -> Result<Connection, ConnectError> {
        let within = left.unwrap_or(CONNECT_TIMEOUT).min(CONNECT_TIMEOUT);
        let (connection, _) = Connection::connect_within(&self.socket, &self.hello(role), Some(within))?;
        self.reached.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    fn hello(&self, role: Role) -> Hello {
        Hello::new(role, &self.pool, concat!("poolctl ", env!("CARGO_PKG_VERSION")))
    }
}

impl Context {
    /// A client with the usual time limit per request.
    pub(crate) fn client(&self) -> Client {
        self.client_within(Some(Duration::ZERO))
    }

    /// Returns a client for requests that may take this much longer than usual; `None` if the pool's configuration
    /// determines how much.
    pub(crate) fn client_within(&self, longer: Option<Duration>) -> Client {
        longer.map_or_else(|| self.unlimited_client(), |longer| Client::new(self, self.limit_with(longer)))
    }

    /// A client for requests that may wait for a slot first, and for the end of a program for this long.
    pub(crate) fn client_for_slot(&self, wait_slot: Option<Duration>, grace: Option<Duration>) -> Client {
        self.client_within(wait_slot.filter(Duration::is_zero).and(grace))
    }

    /// A client without a time limit, unless the user set one.
    pub(crate) fn unlimited_client(&self) -> Client {
        Client::new(self, self.waiting_limit())
    }
}

/// The operation id that the user gave, or a random one.
pub(crate) fn operation(repeat: &Repeat) -> Result<OpId, Error> {
    repeat.op_id.as_ref().map_or_else(random_op, |id| Ok(OpId::Named(id.clone())))
}

/// A random operation id.
pub(crate) fn random_op() -> Result<OpId, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::from(Refusal::failed(format!("cannot get random numbers: {error}"))))?;
    Ok(OpId::Random(bytes))
}

/// The limit on retrying.
#[derive(Debug)]
pub(crate) struct RetryLimit {
    deadline: Option<Instant>,
    /// The time of the first failure in a row.
    failing_since: Option<Instant>,
}

impl RetryLimit {
    /// Ends after this time; without a limit, once the daemon was lost for [`RETURN_LIMIT`].
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        Self { deadline: limit.and_then(|limit| Instant::now().checked_add(limit)), failing_since: None }
    }

    /// The time that is left.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Notes that the daemon answered: the next failure begins a new row of failures.
    pub(crate) fn answered(&mut self) {
        self.failing_since = None;
    }

    /// Waits before the next try, after an attempt that began at this time and failed. Returns false if the
    /// time is over.
    pub(crate) fn wait_to_retry(&mut self, began: Instant) -> bool {
        let now = Instant::now();
        if now.duration_since(began) >= RETURN_LIMIT {
            self.failing_since = None;
        }
        let since = *self.failing_since.get_or_insert(now);
        let more = now + RETRY_INTERVAL < self.deadline.unwrap_or(since + RETURN_LIMIT);
        if more {
            thread::sleep(RETRY_INTERVAL);
        }
        more
    }
}
