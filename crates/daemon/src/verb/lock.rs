//! `lock`: a user's lock on a session, which is a durable lease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pool::lock::Ticket;
use protocol::reply::Locked;
use protocol::request::Lock;
use protocol::session::SessionLock;
use protocol::{OpId, Refusal, Reply, Response, SessionId, Token};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::decide::idempotency;
use crate::decide::lock::{self, LockEnd};
use crate::engine::{Daemon, LockWaiter, Turn, in_doubt};
use crate::verb::caller::Caller;
use crate::verb::session_view;

/// Default lease, in milliseconds.
const LEASE_MS: u64 = 60_000;

/// Maximum length of a purpose, in bytes.
const PURPOSE_MAX: usize = 1000;

/// Acquires the lock, waiting for it. Answers once the grant is on disk.
pub(super) async fn lock(
    daemon: &Arc<Daemon>,
    caller: &Caller,
    (op, under): (Option<OpId>, Option<Token>),
    asked: Lock,
) -> Reply {
    let op = idempotency::check_id(op)?;
    if asked.purpose.len() > PURPOSE_MAX {
        return Err(Refusal::usage(format!("the purpose is over {PURPOSE_MAX} bytes")));
    }
    let session = session_view::resolve(daemon, asked.session.clone()).await?.id;
    let lease_ms = asked.lease_ms.unwrap_or(LEASE_MS);
    let ticket = Ticket(daemon.engine.ticket());
    // Dropping this value leaves the line or gives the lock back, unless the caller is to keep the lock.
    let mut request = daemon.engine.on_drop(move |turn| lock::release(turn, session, ticket));
    let lock = SessionLock {
        token: Token::default(),
        purpose: asked.purpose.clone(),
        holder: caller.process,
        lease_ms,
        since: daemon.started_at,
        op,
        prompts: BTreeSet::new(),
        outer: under,
    };
    let (grant, granted) = oneshot::channel();
    let force = asked.force;
    let ask = move |turn: &mut Turn<'_>| {
        if let Some(held) = held_already(turn, session, &lock.op)? {
            return Ok(Some(held));
        }
        match held_around(turn, session, under)? {
            Some(outer) => Ok(Some(outer)),
            None => enqueue(turn, (session, ticket, force), lock, grant).map(|()| None),
        }
    };
    if let Some(held) = daemon.engine.turn(ask).await?? {
        request.cancel();
        return Ok(Response::Locked(held));
    }
    let token = match asked.wait_ms {
        None => granted.await,
        Some(ms) => match timeout(Duration::from_millis(ms), granted).await {
            Ok(granted) => granted,
            Err(_) => return Err(timed_out(daemon, session).await),
        },
    };
    let token = token.map_err(|_| in_doubt())??;
    crate::crash::point("lock-granted");
    // The turn that granted it is on disk once a later one is.
    daemon.engine.turn(|_| ()).await?;
    request.cancel();
    if let Some(process) = caller.process {
        // The receiver lives as long as the daemon.
        daemon.holders_to_watch.send(process).ok();
    }
    Ok(Response::Locked(Locked { session, token, lease_ms, is_inside: false }))
}

/// Returns the user's lock on the session if the request is made under it, directly or through locks in between. Such
/// a request must not wait: its caller holds the lock already.
fn held_around(turn: &Turn<'_>, session: SessionId, under: Option<Token>) -> Result<Option<Locked>, Refusal> {
    if under.is_some_and(|token| !turn.volatile.locks.is_held(token)) {
        return Err(lock::not_held());
    }
    let is_inside = turn.volatile.user_locks.through(session, under).is_some();
    // The token is left out: it is its holder's, and anyone who has it could give the lock back.
    let (token, lease_ms) = (Token::default(), 0);
    Ok(is_inside.then_some(Locked { session, token, lease_ms, is_inside }))
}

/// Returns the lock if the same operation holds it already.
fn held_already(turn: &mut Turn<'_>, session: SessionId, op: &OpId) -> Result<Option<Locked>, Refusal> {
    let lock = turn.pool().session(session).and_then(|found| found.lock.clone());
    let Some(SessionLock { token, lease_ms, .. }) = lock.filter(|held| held.op == *op) else {
        return Ok(None);
    };
    renew_lease(turn, session, token)?;
    Ok(Some(Locked { session, token, lease_ms, is_inside: false }))
}

/// Grants the lock, or adds the request to its wait queue.
fn enqueue(
    turn: &mut Turn<'_>,
    (session, ticket, force): (SessionId, Ticket, bool),
    lock: SessionLock,
    grant: oneshot::Sender<Result<Token, Refusal>>,
) -> Result<(), Refusal> {
    pool::session::get(turn.pool(), session)?;
    let purpose = lock.purpose.clone();
    match turn.volatile.locks.request_user_lock(session, ticket, &purpose, force) {
        Some(given) => {
            lock::grant_to_user(turn, session, (ticket, SessionLock { token: given.token, ..lock }));
            // If the client is gone, dropping its request gives the lock back.
            grant.send(Ok(given.token)).ok();
        }
        None => {
            turn.waiting.locks.insert(ticket, LockWaiter::User(Box::new(lock), grant));
            if force {
                // A forced request is first in the queue by now.
                lock::end_user_lock(turn, session, LockEnd::Revoked("taken over with --force"));
            }
        }
    }
    Ok(())
}

async fn timed_out(daemon: &Daemon, session: SessionId) -> Refusal {
    let held = move |turn: &mut Turn<'_>| lock::check_unlocked(turn, session, None).err();
    let why = match daemon.engine.turn(held).await {
        Ok(Some(refusal)) => refusal.message,
        _ => format!("the lock of {session} did not come free"),
    };
    Refusal::timeout(format!("the wait timed out: {why}"))
}

/// Extends the lease of a lock.
pub(super) async fn renew(daemon: &Arc<Daemon>, session: SessionId, token: Token) -> Reply {
    daemon.engine.turn(move |turn| renew_lease(turn, session, token)).await?
}

fn renew_lease(turn: &mut Turn<'_>, session: SessionId, token: Token) -> Reply {
    let lease = turn.pool().session(session).and_then(|s| s.lock.as_ref()).map(|lock| lock.lease_ms);
    let deadline = turn.mono().after(Duration::from_millis(lease.unwrap_or(LEASE_MS)));
    if turn.volatile.user_locks.renew(session, token, deadline) {
        return Ok(Response::Done);
    }
    pool::session::get(turn.pool(), session)?;
    Err(lock::not_held())
}

/// Releases a lock, if it is still held.
pub(super) async fn unlock(daemon: &Arc<Daemon>, session: SessionId, token: Token) -> Reply {
    let unlock = move |turn: &mut Turn<'_>| {
        if turn.volatile.user_locks.get(session).is_some_and(|lock| lock.token == token) {
            lock::end_user_lock(turn, session, LockEnd::Released("given back"));
        }
        Response::Done
    };
    daemon.engine.turn(unlock).await
}
