//! Session locks: waiters are answered in the turn that frees a lock. A user's lock is part of the session's
//! record, with a lease that its holder renews; actions under it carry its token.

use std::collections::BTreeSet;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::lock::{LockRequest, NotHeld, OuterLock, Ticket, UserLock, WaiterOutcome, locked_by};
use protocol::reply::LockView;
use protocol::session::SessionLock;
use protocol::{Event, Message, PROMPT, ProcId, Refusal, SessionId, Token};
use tokio::sync::oneshot;

use crate::engine::{EngineHandle, LockWaiter, Turn, TurnOnDrop, in_doubt};

/// Maximum characters of a lock's purpose in a refusal.
const PURPOSE_MAX: usize = 60;

tokio::task_local! {
    /// The user's lock under which this task acts.
    static UNDER: Token;
}

/// Runs `work` under a user's lock, if one is given.
pub(crate) async fn with_user_lock<F: Future>(lock: Option<Token>, work: F) -> F::Output {
    match lock {
        Some(token) => UNDER.scope(token, work).await,
        None => work.await,
    }
}

/// Returns the user's lock under which the caller acts.
pub(crate) fn current() -> Option<Token> {
    UNDER.try_with(|token| *token).ok()
}

/// Returns the refusal of an action under a lock that is no longer held.
pub(crate) fn not_held() -> Refusal {
    Refusal::conflict("that lock is no longer held")
}

/// Refuses an action on a session on which another client holds a user's lock.
///
/// # Errors
/// Conflict, with the holder.
pub(crate) fn check_unlocked(
    turn: &Turn<'_>,
    session: SessionId,
    under: Option<Token>,
) -> Result<(), Refusal> {
    let under = turn.volatile.user_locks.through(session, under);
    let held =
        turn.volatile.locks.holder(session).filter(|held| held.is_user_lock && Some(held.token) != under);
    if held.is_none() {
        return Ok(());
    }
    let (name, lock) = match turn.pool().session(session) {
        Some(found) => (found.name.to_string(), found.lock.as_ref()),
        None => (session.to_string(), None),
    };
    let by = lock.and_then(|lock| lock.holder).map(|process| format!(" by process {}", process.pid));
    let purpose = lock.map(|lock| format!(" ({})", clipped(&lock.purpose)));
    let (by, purpose) = (by.unwrap_or_default(), purpose.unwrap_or_default());
    let why = format!(
        "{name} is locked{by}{purpose}; `poolctl lock {name} -- …` waits for it, and --force takes it away"
    );
    Err(Refusal::conflict(why))
}

/// Clips a long purpose.
fn clipped(purpose: &str) -> String {
    match purpose.char_indices().nth(PURPOSE_MAX) {
        Some((at, _)) => format!("{}…", &purpose[..at]),
        None => purpose.to_owned(),
    }
}

/// Returns the holder of a session's lock, for people.
pub(crate) fn view(turn: &Turn<'_>, session: SessionId) -> Option<LockView> {
    let held = turn.volatile.locks.holder(session)?;
    let lock = turn.pool().session(session).and_then(|s| s.lock.as_ref()).filter(|_| held.is_user_lock);
    let left = turn
        .volatile
        .user_locks
        .get(session)
        .filter(|_| held.is_user_lock)
        .map(|lock| turn.mono().until(lock.deadline));
    Some(LockView {
        token: held.token,
        purpose: held.purpose.to_owned(),
        holder: lock.and_then(|lock| lock.holder),
        since: lock.map(|lock| lock.since),
        expires_at: left.map(|left| turn.now().after(left)),
        inner: held.inside.map(str::to_owned),
        waiting: held.waiting as u64,
    })
}

/// Withdraws a ticket, and grants the lock to the next waiter if the ticket held it.
pub(crate) fn release(turn: &mut Turn<'_>, session: SessionId, ticket: Ticket) {
    turn.waiting.locks.remove(&ticket);
    if turn.volatile.user_locks.get(session).is_some_and(|lock| lock.ticket == ticket) {
        end_user_lock(turn, session, LockEnd::Released("its requester had disconnected"));
        return;
    }
    grant_next(turn, session, ticket);
}

fn grant_next(turn: &mut Turn<'_>, session: SessionId, ticket: Ticket) {
    let mut given = turn.volatile.locks.release(session, ticket);
    while let Some(next) = given.pop() {
        match next {
            WaiterOutcome::OuterReleased(late) => {
                if let Some(LockWaiter::Operation(waits)) = turn.waiting.locks.remove(&late) {
                    drop(waits.send(Err(not_held())));
                }
            }
            WaiterOutcome::Granted(grant) => {
                let is_taken = match turn.waiting.locks.remove(&grant.ticket) {
                    Some(LockWaiter::Operation(waits)) => waits.send(Ok(grant.token)).is_ok(),
                    Some(LockWaiter::User(_, waits)) if turn.pool().session(session).is_none() => {
                        // The waiter may be gone.
                        waits.send(Err(pool::session::not_found(turn.pool(), &session.to_string()))).ok();
                        false
                    }
                    Some(LockWaiter::User(lock, waits)) => {
                        let is_waiting = !waits.is_closed();
                        if is_waiting {
                            let lock = SessionLock { token: grant.token, ..*lock };
                            grant_to_user(turn, session, (grant.ticket, lock));
                            // A waiter that left meanwhile releases the lock when its ticket is dropped.
                            waits.send(Ok(grant.token)).ok();
                            refuse_operations(turn, session);
                        }
                        is_waiting
                    }
                    None => false,
                };
                if !is_taken {
                    given.extend(turn.volatile.locks.release(session, grant.ticket));
                }
            }
        }
    }
    turn.wake();
}

/// Refuses the operations that were waiting when a user's lock was granted, as it refuses those that come later.
fn refuse_operations(turn: &mut Turn<'_>, session: SessionId) {
    let Err(refusal) = check_unlocked(turn, session, None) else { return };
    for ticket in turn.volatile.locks.withdraw_operations(session) {
        if let Some(LockWaiter::Operation(waits)) = turn.waiting.locks.remove(&ticket) {
            drop(waits.send(Err(refusal.clone())));
        }
    }
}

/// Notes that a prompt was sent under a user's lock: it, and the prompts before it, are typed while the lock is held.
pub(crate) fn mark_used_for_send(turn: &mut Turn<'_>, message: &Message, under: Option<Token>) {
    let session = message.session;
    let under = turn.volatile.user_locks.through(session, under).filter(|_| message.kind == PROMPT);
    let Some(token) = under else { return };
    turn.emit(Event::LockUsedForSend { session, token, message: message.id });
    turn.wake();
}

/// Counts a prompt of the pool's own, which tells an agent to continue, as sent by the holder of the lock.
pub(crate) fn mark_own_prompt(turn: &mut Turn<'_>, message: &Message) {
    let lock = turn.pool().session(message.session).and_then(|session| session.lock.as_ref());
    let token = lock.map(|lock| lock.token);
    mark_used_for_send(turn, message, token);
}

/// Ends the lock of a session whose record is removed.
pub(crate) fn end_with_record(turn: &mut Turn<'_>, session: SessionId) {
    end_user_lock(turn, session, LockEnd::Released("the session was removed"));
}

pub(crate) fn grant_to_user(turn: &mut Turn<'_>, session: SessionId, (ticket, lock): (Ticket, SessionLock)) {
    let lock = SessionLock { since: turn.now(), ..lock };
    begin_lease(turn, session, (ticket, &lock));
    turn.emit(Event::LockGranted { session, lock });
}

/// Begins the lease of a user's lock.
fn begin_lease(turn: &mut Turn<'_>, session: SessionId, (ticket, lock): (Ticket, &SessionLock)) {
    let deadline = turn.mono().after(Duration::from_millis(lock.lease_ms));
    let held = UserLock { ticket, token: lock.token, deadline, outer: lock.outer };
    turn.volatile.user_locks.grant(session, held);
}

/// The way in which a user's lock ends, with the reason.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockEnd {
    /// Released by its holder, or because its holder is dead.
    Released(&'static str),
    /// Taken away.
    Revoked(&'static str),
}

/// Ends a user's lock, if there is one, and grants the lock to the next waiter.
pub(crate) fn end_user_lock(turn: &mut Turn<'_>, session: SessionId, how: LockEnd) {
    let Some(lock) = turn.volatile.user_locks.remove(session) else { return };
    let token = lock.token;
    if turn.pool().session(session).is_some() {
        turn.emit(match how {
            LockEnd::Released(reason) => Event::LockReleased { session, token, reason: reason.to_owned() },
            LockEnd::Revoked(reason) => Event::LockRevoked { session, token, reason: reason.to_owned() },
        });
    }
    grant_next(turn, session, lock.ticket);
}

/// Ends the locks that were not renewed by `asked_at`. Returns the time until the next lease ends.
pub(crate) fn expire(turn: &mut Turn<'_>, asked_at: Mono) -> Option<Duration> {
    for session in turn.volatile.user_locks.lapsed(asked_at) {
        tracing::info!(%session, "a lock was not renewed in time");
        end_user_lock(turn, session, LockEnd::Revoked("its holder was silent for longer than the lease"));
        crate::crash::point("lock-lapsed");
    }
    let first = turn.volatile.user_locks.first_deadline();
    first.map(|at| turn.mono().until(at))
}

/// Releases the locks of a process that is proved dead.
pub(crate) fn release_of_dead(turn: &mut Turn<'_>, process: ProcId) {
    let held: Vec<SessionId> = locked_by(turn.pool(), process).collect();
    for session in held {
        end_user_lock(turn, session, LockEnd::Released("its holder died"));
    }
}

/// Restores the locks after a start of the daemon: they keep their tokens and holders, and get their whole
/// lease again. `dead` are the holders proved to have ended. Returns the other holders.
pub(crate) fn recover(turn: &mut Turn<'_>, dead: &BTreeSet<ProcId>, ticket: impl Fn() -> u64) -> Vec<ProcId> {
    let held: Vec<(SessionId, SessionLock)> =
        turn.pool().sessions().filter_map(|s| Some((s.id, s.lock.clone()?))).collect();
    let mut processes = Vec::new();
    for (session, lock) in held {
        let ticket = Ticket(ticket());
        turn.volatile.locks.restore(session, ticket, lock.token, &lock.purpose);
        begin_lease(turn, session, (ticket, &lock));
        match lock.holder {
            Some(holder) if dead.contains(&holder) => release_of_dead(turn, holder),
            holder => processes.extend(holder),
        }
    }
    processes
}

impl EngineHandle {
    /// Waits for the session's lock, within the user's lock under which the caller acts ([`with_user_lock`]).
    ///
    /// # Errors
    /// Conflict: another client holds a user's lock, or the caller has lost its own; storage: the daemon ends.
    pub(crate) async fn lock(&self, session: SessionId, purpose: &'static str) -> Result<LockGuard, Refusal> {
        let token = current();
        let under = token.map_or(OuterLock::None, OuterLock::Token);
        let check = move |turn: &Turn<'_>| check_unlocked(turn, session, token);
        let guard = self.acquire(session, (purpose, under), check).await?;
        // The caller's own lock may have ended during the wait.
        if let Some(token) = token
            && !self.turn(move |turn| turn.volatile.locks.is_held(token)).await?
        {
            return Err(not_held());
        }
        Ok(guard)
    }

    /// Waits for the session's lock for an action that is already decided, within whatever lock a user holds.
    pub(crate) async fn lock_inside(
        &self,
        session: SessionId,
        purpose: &'static str,
    ) -> Result<LockGuard, Refusal> {
        self.acquire(session, (purpose, OuterLock::Current), |_| Ok(())).await
    }

    async fn acquire(
        &self,
        session: SessionId,
        (purpose, under): (&'static str, OuterLock),
        check: impl FnOnce(&Turn<'_>) -> Result<(), Refusal> + Send + 'static,
    ) -> Result<LockGuard, Refusal> {
        let ticket = Ticket(self.ticket());
        // The ticket is withdrawn even if this future is dropped half-way.
        let guard = self.on_drop(move |turn| release(turn, session, ticket));
        let (grant, granted) = oneshot::channel();
        self.post(move |turn| {
            let under = match under {
                OuterLock::Token(token) => {
                    turn.volatile.user_locks.through(session, Some(token)).map_or(under, OuterLock::Token)
                }
                other => other,
            };
            let asked = check(turn).and_then(|()| {
                turn.volatile
                    .locks
                    .request(session, LockRequest { ticket, purpose, outer: under })
                    .map_err(|NotHeld| not_held())
            });
            match asked {
                Ok(Some(given)) => drop(grant.send(Ok(given.token))),
                Ok(None) => drop(turn.waiting.locks.insert(ticket, LockWaiter::Operation(grant))),
                Err(refusal) => drop(grant.send(Err(refusal))),
            }
        });
        let token = granted.await.map_err(|_| in_doubt())??;
        Ok(LockGuard { token, _ticket: guard })
    }
}

/// A session's lock, released when dropped.
pub(crate) struct LockGuard {
    token: Token,
    _ticket: TurnOnDrop,
}

impl LockGuard {
    /// Returns the fencing token.
    pub(crate) fn token(&self) -> Token {
        self.token
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::pin::pin;

    use protocol::{ErrorCode, OpId, Timestamp};
    use tokio::time::timeout;

    use super::*;
    use crate::engine::tests::{session, start};

    /// Longest time for an answer.
    const PATIENCE: Duration = Duration::from_secs(5);

    /// A user's lock, granted under this token.
    pub(crate) fn user_lock(token: Token) -> SessionLock {
        SessionLock {
            token,
            purpose: "deploy".to_owned(),
            holder: None,
            lease_ms: 60_000,
            since: Timestamp(0),
            op: OpId::Random([1; 16]),
            prompts: BTreeSet::new(),
            outer: None,
        }
    }

    #[tokio::test]
    async fn l05_an_operation_that_waited_longer_than_its_users_lock_is_refused() {
        for ends in [false, true] {
            let engine = start();
            let ticket = Ticket(engine.ticket());
            let grant = move |turn: &mut Turn<'_>| {
                let (locked, other) = (session(turn, "locked"), session(turn, "other"));
                let granted = turn.volatile.locks.request_user_lock(locked, ticket, "deploy", false);
                let token = granted.unwrap().token;
                grant_to_user(turn, locked, (ticket, user_lock(token)));
                (locked, other, token)
            };
            let (locked, other, token) = engine.turn(grant).await.unwrap();
            let before = engine.lock_inside(other, "kill").await.unwrap();
            let mut waits = pin!(with_user_lock(Some(token), engine.lock(other, "rename")));
            assert!(timeout(Duration::ZERO, waits.as_mut()).await.is_err(), "another operation has the lock");
            if ends {
                let end = move |turn: &mut Turn<'_>| end_user_lock(turn, locked, LockEnd::Released("done"));
                engine.turn(end).await.unwrap();
            }
            drop(before);
            let granted = timeout(PATIENCE, waits).await.unwrap().map(drop);
            assert_eq!(granted, if ends { Err(not_held()) } else { Ok(()) });
        }
    }

    #[tokio::test]
    async fn operations_that_wait_are_refused_as_soon_as_a_user_has_the_lock() {
        let engine = start();
        let id = engine.turn(|turn| session(turn, "a")).await.unwrap();
        let before = engine.lock_inside(id, "kill").await.unwrap();
        let (ticket, (grant, granted)) = (Ticket(engine.ticket()), oneshot::channel());
        let enqueue = move |turn: &mut Turn<'_>| {
            let lock = Box::new(user_lock(Token::default()));
            turn.waiting.locks.insert(ticket, LockWaiter::User(lock, grant));
            turn.volatile.locks.request_user_lock(id, ticket, "deploy", false)
        };
        assert_eq!(engine.turn(enqueue).await.unwrap(), None, "an operation has the lock");
        let mut waits = pin!(engine.lock(id, "rename"));
        assert!(timeout(Duration::ZERO, waits.as_mut()).await.is_err(), "the user comes before it");
        drop(before);
        let token = granted.await.unwrap().unwrap();
        let refused = timeout(PATIENCE, waits).await.unwrap().map(drop).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains("a is locked (deploy)"), "{refused}");
        assert!(engine.turn(move |turn| turn.volatile.locks.is_held(token)).await.unwrap());
    }
}
