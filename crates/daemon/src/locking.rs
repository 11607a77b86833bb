//! Session locks in the engine: who waits is answered in the turn that frees a lock. A user's lock is a fact of the
//! record, with a lease that its holder renews; what is done under it carries its token.

use std::time::Duration;

use pool::deadlines::Mono;
use pool::locks::{Given, Ticket};
use protocol::reply::LockView;
use protocol::session::SessionLock;
use protocol::{ErrorCode, Event, ProcId, Refusal, SessionId, Token};
use tokio::sync::oneshot;

use crate::engine::Turn;

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

/// Who waits for a lock.
pub(crate) enum Waits {
    /// An operation of the daemon's.
    Operation(oneshot::Sender<Result<Token, Refusal>>),
    /// A user's: its token comes with the grant.
    User(Box<SessionLock>, Option<Token>, oneshot::Sender<Result<Token, Refusal>>),
}

/// A user's lock that is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UserLock {
    pub(crate) ticket: Ticket,
    pub(crate) token: Token,
    /// Until when it is held without another word.
    pub(crate) deadline: Mono,
    /// The lock under which it was asked for: what is done under this one is done under that one, too.
    pub(crate) outer: Option<Token>,
}

/// The token of the session's own lock, where the caller acts under it, directly or through others; else what it came
/// with.
pub(crate) fn through(turn: &Turn<'_>, session: SessionId, under: Option<Token>) -> Option<Token> {
    let own = turn.rest.user_locks.get(&session)?.token;
    let mut token = under;
    // Each was asked for under an older one.
    while let Some(held) = token.filter(|held| *held != own) {
        token = turn.rest.user_locks.values().find(|lock| lock.token == held).and_then(|lock| lock.outer);
    }
    token
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
    let under = through(turn, session, under);
    let held = turn.rest.locks.holder(session).filter(|held| held.open && Some(held.token) != under);
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
    turn.rest.user_locks.contains_key(&session) && !lock.is_some_and(|lock| lock.fed)
}

/// Who holds a session's lock, for people.
pub(crate) fn shown(turn: &Turn<'_>, session: SessionId) -> Option<LockView> {
    let held = turn.rest.locks.holder(session)?;
    let lock = turn.pool().session(session).and_then(|s| s.lock.as_ref()).filter(|_| held.open);
    let left =
        turn.rest.user_locks.get(&session).filter(|_| held.open).map(|lock| turn.mono().until(lock.deadline));
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
    turn.rest.waiting.remove(&ticket);
    if turn.rest.user_locks.get(&session).is_some_and(|lock| lock.ticket == ticket) {
        end(turn, session, End::Released("whoever asked for it had left"));
        return;
    }
    hand_on(turn, session, ticket);
}

fn hand_on(turn: &mut Turn<'_>, session: SessionId, ticket: Ticket) {
    let mut given = turn.rest.locks.release(session, ticket);
    while let Some(next) = given.pop() {
        match next {
            Given::TooLate(late) => {
                if let Some(Waits::Operation(waits)) = turn.rest.waiting.remove(&late) {
                    drop(waits.send(Err(stale())));
                }
            }
            Given::Granted(grant) => {
                let taken = match turn.rest.waiting.remove(&grant.ticket) {
                    Some(Waits::Operation(waits)) => waits.send(Ok(grant.token)).is_ok(),
                    Some(Waits::User(_, _, waits)) if turn.pool().session(session).is_none() => {
                        // Whoever left needs no answer.
                        waits.send(Err(pool::admit::not_found(turn.pool(), &session.to_string()))).ok();
                        false
                    }
                    Some(Waits::User(lock, outer, waits)) => {
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
                    given.extend(turn.rest.locks.release(session, grant.ticket));
                }
            }
        }
    }
    turn.stir();
}

/// A message was sent under a user's lock: what is queued is delivered inside of it.
pub(crate) fn fed(turn: &mut Turn<'_>, session: SessionId, under: Option<Token>) {
    let under = through(turn, session, under);
    let Some(token) = under else { return };
    let lock = turn.pool().session(session).and_then(|s| s.lock.as_ref());
    if lock.is_some_and(|lock| lock.token == token && !lock.fed) {
        turn.emit(Event::LockFed { session, token });
        turn.stir();
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
    turn.rest.user_locks.insert(session, UserLock { ticket, token: lock.token, deadline, outer });
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
    let Some(lock) = turn.rest.user_locks.remove(&session) else { return };
    let token = lock.token;
    if turn.pool().session(session).is_some() {
        turn.emit(match how {
            End::Released(reason) => Event::LockReleased { session, token, reason: reason.to_owned() },
            End::Revoked(reason) => Event::LockRevoked { session, token, reason: reason.to_owned() },
        });
    }
    hand_on(turn, session, lock.ticket);
}

/// The locks whose holders were silent for too long. Answers how long until the next one is.
pub(crate) fn lapse(turn: &mut Turn<'_>, asked_at: Mono) -> Option<Duration> {
    let over: Vec<SessionId> = turn
        .rest
        .user_locks
        .iter()
        .filter(|(_, lock)| lock.deadline <= asked_at)
        .map(|(id, _)| *id)
        .collect();
    for session in over {
        tracing::info!(%session, "a lock was not renewed in time");
        end(turn, session, End::Revoked("its holder was silent for longer than the lease"));
        crate::crash::point("lock-lapsed");
    }
    first(turn).map(|at| turn.mono().until(at))
}

/// When the next lock lapses unless its holder is heard of.
pub(crate) fn first(turn: &Turn<'_>) -> Option<Mono> {
    turn.rest.user_locks.values().map(|lock| lock.deadline).min()
}

/// The daemon stood still, and nobody could be heard of: all locks have their whole lease before them.
pub(crate) fn begin_anew(turn: &mut Turn<'_>) {
    let mono = turn.mono();
    let leases: Vec<(SessionId, u64)> =
        turn.pool().sessions().filter_map(|s| Some((s.id, s.lock.as_ref()?.lease_ms))).collect();
    for (session, lease_ms) in leases {
        if let Some(lock) = turn.rest.user_locks.get_mut(&session) {
            lock.deadline = mono.after(Duration::from_millis(lease_ms));
        }
    }
}

/// A process is proved dead: what it held is free at once.
pub(crate) fn died(turn: &mut Turn<'_>, process: ProcId) {
    let held = turn.pool().sessions().filter(|s| s.lock.as_ref().is_some_and(|l| l.holder == Some(process)));
    let held: Vec<SessionId> = held.map(|s| s.id).collect();
    for session in held {
        end(turn, session, End::Released("its holder died"));
    }
}

/// After a start: locks keep their token and their holder, and have their whole lease before them.
pub(crate) fn recover(turn: &mut Turn<'_>, ticket: impl Fn() -> u64) -> Vec<ProcId> {
    let held: Vec<(SessionId, SessionLock)> =
        turn.pool().sessions().filter_map(|s| Some((s.id, s.lock.clone()?))).collect();
    let mut processes = Vec::new();
    for (session, lock) in held {
        let ticket = Ticket(ticket());
        turn.rest.locks.restore(session, ticket, lock.token, &lock.purpose);
        let deadline = turn.mono().after(Duration::from_millis(lock.lease_ms));
        turn.rest.user_locks.insert(session, UserLock { ticket, token: lock.token, deadline, outer: None });
        match lock.holder {
            Some(holder) if crate::work::leases::is_dead(holder) => died(turn, holder),
            holder => processes.extend(holder),
        }
    }
    processes
}
