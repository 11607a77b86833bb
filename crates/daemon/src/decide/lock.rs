//! Session locks in the engine: who waits is answered in the turn that frees a lock. A user's lock is a fact of the
//! record, with a lease that its holder renews; what is done under it carries its token.

use std::collections::BTreeSet;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::lock::UserLock;
use pool::locks::{Ask, Given, Stale, Ticket, Under};
use protocol::reply::LockView;
use protocol::session::SessionLock;
use protocol::{ErrorCode, Event, ProcId, Refusal, SessionId, Token};
use tokio::sync::oneshot;

use crate::engine::Turn;
use crate::engine::handle::{Handle, in_doubt};
use crate::engine::waiting::LockWaiter;

/// So many characters of a purpose are in a refusal.
const PURPOSE_SHOWN: usize = 60;

tokio::task_local! {
    /// The user's lock under which this task acts.
    static UNDER: Token;
}

/// Does this under a user's lock, if there is one.
pub(crate) async fn under<F: Future>(lock: Option<Token>, work: F) -> F::Output {
    match lock {
        Some(token) => UNDER.scope(token, work).await,
        None => work.await,
    }
}

/// The user's lock under which the caller acts.
pub(crate) fn current() -> Option<Token> {
    UNDER.try_with(|token| *token).ok()
}

/// The refusal of what is done under a lock that is not held any more.
pub(crate) fn stale() -> Refusal {
    Refusal::new(ErrorCode::Conflict, "that lock is not held any more")
}

/// Whether a session may be acted on: nobody else holds a user's lock on it.
///
/// # Errors
/// Conflict: who holds it.
pub(crate) fn free_for(turn: &Turn<'_>, session: SessionId, under: Option<Token>) -> Result<(), Refusal> {
    let under = turn.volatile.user_locks.through(session, under);
    let held = turn.volatile.locks.holder(session).filter(|held| held.open && Some(held.token) != under);
    if held.is_none() {
        return Ok(());
    }
    let (name, lock) = match turn.pool().session(session) {
        Some(found) => (found.name.to_string(), found.lock.as_ref()),
        None => (session.to_string(), None),
    };
    let by = lock.and_then(|lock| lock.holder).map(|process| format!(" by process {}", process.pid));
    let purpose = lock.map(|lock| format!(" ({})", short(&lock.purpose)));
    let (by, purpose) = (by.unwrap_or_default(), purpose.unwrap_or_default());
    let why = format!(
        "{name} is locked{by}{purpose}; `poolctl lock {name} -- …` waits for it, and --force takes it away"
    );
    Err(Refusal::new(ErrorCode::Conflict, why))
}

/// The beginning of a long purpose.
fn short(purpose: &str) -> String {
    match purpose.char_indices().nth(PURPOSE_SHOWN) {
        Some((at, _)) => format!("{}…", &purpose[..at]),
        None => purpose.to_owned(),
    }
}

/// Whether what nobody asked for waits: a user holds the session's lock, and has sent nothing under it.
pub(crate) fn holds_back(turn: &Turn<'_>, session: SessionId) -> bool {
    let lock = turn.pool().session(session).and_then(|s| s.lock.as_ref());
    turn.volatile.user_locks.get(session).is_some() && !lock.is_some_and(|lock| lock.used_for_send)
}

/// Who holds a session's lock, for people.
pub(crate) fn shown(turn: &Turn<'_>, session: SessionId) -> Option<LockView> {
    let held = turn.volatile.locks.holder(session)?;
    let lock = turn.pool().session(session).and_then(|s| s.lock.as_ref()).filter(|_| held.open);
    let left = turn
        .volatile
        .user_locks
        .get(session)
        .filter(|_| held.open)
        .map(|lock| turn.mono().until(lock.deadline));
    Some(LockView {
        token: held.token,
        purpose: held.purpose.to_owned(),
        holder: lock.and_then(|lock| lock.holder),
        since: lock.map(|lock| lock.since),
        expires_at: left.map(|left| turn.now().after(left)),
        inner: held.inner.map(str::to_owned),
        waiting: held.waiting as u64,
    })
}

/// Gives a place back and hands the lock to the next that still waits for it.
pub(crate) fn release(turn: &mut Turn<'_>, session: SessionId, ticket: Ticket) {
    turn.waiting.locks.remove(&ticket);
    if turn.volatile.user_locks.get(session).is_some_and(|lock| lock.ticket == ticket) {
        end(turn, session, End::Released("whoever asked for it had left"));
        return;
    }
    hand_on(turn, session, ticket);
}

fn hand_on(turn: &mut Turn<'_>, session: SessionId, ticket: Ticket) {
    let mut given = turn.volatile.locks.release(session, ticket);
    while let Some(next) = given.pop() {
        match next {
            Given::TooLate(late) => {
                if let Some(LockWaiter::Operation(waits)) = turn.waiting.locks.remove(&late) {
                    drop(waits.send(Err(stale())));
                }
            }
            Given::Granted(grant) => {
                let taken = match turn.waiting.locks.remove(&grant.ticket) {
                    Some(LockWaiter::Operation(waits)) => waits.send(Ok(grant.token)).is_ok(),
                    Some(LockWaiter::User(_, _, waits)) if turn.pool().session(session).is_none() => {
                        // Whoever left needs no answer.
                        waits.send(Err(pool::admit::not_found(turn.pool(), &session.to_string()))).ok();
                        false
                    }
                    Some(LockWaiter::User(lock, outer, waits)) => {
                        let here = !waits.is_closed();
                        if here {
                            let lock = SessionLock { token: grant.token, ..*lock };
                            hold(turn, session, (grant.ticket, lock, outer));
                            // Whoever left meanwhile gives it back when its place is dropped.
                            waits.send(Ok(grant.token)).ok();
                        }
                        here
                    }
                    None => false,
                };
                if !taken {
                    given.extend(turn.volatile.locks.release(session, grant.ticket));
                }
            }
        }
    }
    turn.wake();
}

/// A message was sent under a user's lock: what is queued is delivered inside of it.
pub(crate) fn fed(turn: &mut Turn<'_>, session: SessionId, under: Option<Token>) {
    let under = turn.volatile.user_locks.through(session, under);
    let Some(token) = under else { return };
    let lock = turn.pool().session(session).and_then(|s| s.lock.as_ref());
    if lock.is_some_and(|lock| lock.token == token && !lock.used_for_send) {
        turn.emit(Event::LockUsedForSend { session, token });
        turn.wake();
    }
}

/// Its record is gone: nobody holds it any more.
pub(crate) fn deleted(turn: &mut Turn<'_>, session: SessionId) {
    end(turn, session, End::Released("the session was removed"));
}

/// A user has the lock from here on.
pub(crate) fn hold(
    turn: &mut Turn<'_>,
    session: SessionId,
    (ticket, lock, outer): (Ticket, SessionLock, Option<Token>),
) {
    let lock = SessionLock { since: turn.now(), ..lock };
    let deadline = turn.mono().after(Duration::from_millis(lock.lease_ms));
    turn.volatile.user_locks.grant(session, UserLock { ticket, token: lock.token, deadline, outer });
    turn.emit(Event::LockGranted { session, lock });
}

/// How a user's lock ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// It is given back, or its holder is dead.
    Released(&'static str),
    /// It is taken away.
    Revoked(&'static str),
}

/// A user's lock is over: what follows is only then given to the next.
pub(crate) fn end(turn: &mut Turn<'_>, session: SessionId, how: End) {
    let Some(lock) = turn.volatile.user_locks.remove(session) else { return };
    let token = lock.token;
    if turn.pool().session(session).is_some() {
        turn.emit(match how {
            End::Released(reason) => Event::LockReleased { session, token, reason: reason.to_owned() },
            End::Revoked(reason) => Event::LockRevoked { session, token, reason: reason.to_owned() },
        });
    }
    hand_on(turn, session, lock.ticket);
}

/// Ends the locks that were not renewed in time. Returns the time until the next one lapses.
pub(crate) fn lapse(turn: &mut Turn<'_>, asked_at: Mono) -> Option<Duration> {
    for session in turn.volatile.user_locks.lapsed(asked_at) {
        tracing::info!(%session, "a lock was not renewed in time");
        end(turn, session, End::Revoked("its holder was silent for longer than the lease"));
        crate::crash::point("lock-lapsed");
    }
    let first = turn.volatile.user_locks.first_deadline();
    first.map(|at| turn.mono().until(at))
}

/// A process is proved dead: what it held is free at once.
pub(crate) fn died(turn: &mut Turn<'_>, process: ProcId) {
    let held = turn.pool().sessions().filter(|s| s.lock.as_ref().is_some_and(|l| l.holder == Some(process)));
    let held: Vec<SessionId> = held.map(|s| s.id).collect();
    for session in held {
        end(turn, session, End::Released("its holder died"));
    }
}

/// After a start of the daemon: locks keep their tokens and holders, and have their whole lease again. `dead`: holders that are
/// proved to have ended. Returns the other holders.
pub(crate) fn recover(turn: &mut Turn<'_>, dead: &BTreeSet<ProcId>, ticket: impl Fn() -> u64) -> Vec<ProcId> {
    let held: Vec<(SessionId, SessionLock)> =
        turn.pool().sessions().filter_map(|s| Some((s.id, s.lock.clone()?))).collect();
    let mut processes = Vec::new();
    for (session, lock) in held {
        let ticket = Ticket(ticket());
        turn.volatile.locks.restore(session, ticket, lock.token, &lock.purpose);
        let deadline = turn.mono().after(Duration::from_millis(lock.lease_ms));
        turn.volatile
            .user_locks
            .grant(session, UserLock { ticket, token: lock.token, deadline, outer: None });
        match lock.holder {
            Some(holder) if dead.contains(&holder) => died(turn, holder),
            holder => processes.extend(holder),
        }
    }
    processes
}

impl Handle {
    /// The session's lock, once it is this caller's turn: inside of the user's lock under which the caller acts
    /// ([`under`]).
    ///
    /// # Errors
    /// Conflict, where somebody else holds a lock on it; storage, where the daemon ends before.
    pub(crate) async fn lock(&self, session: SessionId, purpose: &'static str) -> Result<Grant, Refusal> {
        let token = current();
        let under = token.map_or(Under::Nobody, Under::Token);
        self.take(session, (purpose, under), move |turn| free_for(turn, session, token)).await
    }

    /// The same for what was decided already: inside of whatever lock a user holds.
    ///
    /// # Errors
    /// Storage, where the daemon ends before.
    pub(crate) async fn lock_inside(
        &self,
        session: SessionId,
        purpose: &'static str,
    ) -> Result<Grant, Refusal> {
        self.take(session, (purpose, Under::Whoever), |_| Ok(())).await
    }

    async fn take(
        &self,
        session: SessionId,
        (purpose, under): (&'static str, Under),
        may: impl FnOnce(&Turn<'_>) -> Result<(), Refusal> + Send + 'static,
    ) -> Result<Grant, Refusal> {
        let ticket = Ticket(self.ticket());
        // The place is given back also where this future is dropped half-way.
        let place = Place { handle: self.clone(), session, ticket };
        let (grant, granted) = oneshot::channel();
        self.post(move |turn| {
            let under = match under {
                Under::Token(token) => {
                    turn.volatile.user_locks.through(session, Some(token)).map_or(under, Under::Token)
                }
                other => other,
            };
            let asked = may(turn).and_then(|()| {
                turn.volatile.locks.ask(session, Ask { ticket, purpose, under }).map_err(|Stale| stale())
            });
            match asked {
                Ok(Some(given)) => drop(grant.send(Ok(given.token))),
                Ok(None) => drop(turn.waiting.locks.insert(ticket, LockWaiter::Operation(grant))),
                Err(refusal) => drop(grant.send(Err(refusal))),
            }
        });
        let token = granted.await.map_err(|_| in_doubt())??;
        Ok(Grant { token, _place: place })
    }
}

/// A session's lock. Given back when dropped.
pub(crate) struct Grant {
    token: Token,
    _place: Place,
}

impl Grant {
    /// The fencing token.
    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

/// A place in a waiting line, or at its head.
struct Place {
    handle: Handle,
    session: SessionId,
    ticket: Ticket,
}

impl Drop for Place {
    fn drop(&mut self) {
        let (session, ticket) = (self.session, self.ticket);
        self.handle.post(move |turn| release(turn, session, ticket));
    }
}
