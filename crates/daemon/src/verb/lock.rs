//! `lock`: a user's lock on a session, a durable lease.

use crate::engine::waiting::LockWaiter;
use std::sync::Arc;
use std::time::Duration;

use pool::locks::Ticket;
use protocol::reply::Locked;
use protocol::request::Lock;
use protocol::session::SessionLock;
use protocol::{ErrorCode, OpId, Refusal, Reply, Response, SessionId, Token};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::decide::lock::End;
use crate::decide::{idempotency, lock};
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::engine::handle::{Handle, in_doubt};
use crate::verb::claim::Peer;
use crate::verb::shown;

/// How long a holder may be silent, where it does not say.
const LEASE_MS: u64 = 60_000;

/// The shortest and the longest lease.
const LEASE: std::ops::RangeInclusive<u64> = 1_000..=24 * 3600 * 1000;

/// The longest purpose that is kept, in bytes.
const PURPOSE_MAX: usize = 1000;

/// Answers once the lock is held, and that is on disk.
pub(crate) async fn lock(
    daemon: &Arc<Daemon>,
    peer: Peer,
    (op, under): (Option<OpId>, Option<Token>),
    asked: Lock,
) -> Reply {
    let op = idempotency::usable(op)?;
    if asked.purpose.len() > PURPOSE_MAX {
        return Err(Refusal::new(ErrorCode::Usage, format!("the purpose is over {PURPOSE_MAX} bytes")));
    }
    let session = shown::find(daemon, asked.session.clone()).await?.id;
    let lease_ms = asked.lease_ms.unwrap_or(LEASE_MS).clamp(*LEASE.start(), *LEASE.end());
    let ticket = Ticket(daemon.engine.ticket());
    let mut leaving = Leaving { handle: daemon.engine.clone(), place: Some((session, ticket)) };
    let lock = SessionLock {
        token: Token::default(),
        purpose: asked.purpose.clone(),
        holder: peer.process,
        lease_ms,
        since: daemon.started_at,
        op,
        used_for_send: false,
    };
    let (grant, granted) = oneshot::channel();
    let force = asked.force;
    let ask = move |turn: &mut Turn<'_>| {
        may_ask(turn, session, under)?;
        stand_in_line(turn, (session, ticket, force), (lock, under), grant)
    };
    if let Some(token) = daemon.engine.turn(ask).await?? {
        // It has it already.
        leaving.place = None;
        return Ok(Response::Locked(Locked { session, token, lease_ms }));
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
    // The grant is on disk when a later turn is over.
    daemon.engine.turn(|_| ()).await?;
    leaving.place = None;
    if let Some(process) = peer.process {
        // Dropped only with the daemon.
        daemon.holders.send(process).ok();
    }
    Ok(Response::Locked(Locked { session, token, lease_ms }))
}

/// Whoever has it would wait for itself.
fn may_ask(turn: &Turn<'_>, session: SessionId, under: Option<Token>) -> Result<(), Refusal> {
    let Some(token) = under else { return Ok(()) };
    if !turn.volatile.locks.is_held(token) {
        return Err(lock::stale());
    }
    let its_own = turn.volatile.user_locks.through(session, under).is_some();
    let why = "it is held already, by what this is done under";
    if its_own { Err(Refusal::new(ErrorCode::Conflict, why)) } else { Ok(()) }
}

/// Answers with the token where the same operation has the lock already.
fn stand_in_line(
    turn: &mut Turn<'_>,
    (session, ticket, force): (SessionId, Ticket, bool),
    (lock, under): (SessionLock, Option<Token>),
    grant: oneshot::Sender<Result<Token, Refusal>>,
) -> Result<Option<Token>, Refusal> {
    let Some(record) = turn.pool().session(session) else {
        return Err(pool::admit::not_found(turn.pool(), &session.to_string()));
    };
    if let Some(held) = record.lock.clone().filter(|held| held.op == lock.op) {
        renew(turn, session, held.token)?;
        return Ok(Some(held.token));
    }
    let purpose = lock.purpose.clone();
    match turn.volatile.locks.ask_open(session, ticket, &purpose, force) {
        Some(given) => {
            lock::hold(turn, session, (ticket, SessionLock { token: given.token, ..lock }, under));
            // Whoever left meanwhile gives it back when its place is dropped.
            grant.send(Ok(given.token)).ok();
        }
        None => {
            turn.waiting.locks.insert(ticket, LockWaiter::User(Box::new(lock), under, grant));
            if force {
                // Whoever forces is first in line by now.
                lock::end(turn, session, End::Revoked("somebody else took it by force"));
            }
        }
    }
    Ok(None)
}

async fn timed_out(daemon: &Daemon, session: SessionId) -> Refusal {
    let held = move |turn: &mut Turn<'_>| lock::free_for(turn, session, None).err();
    let why = match daemon.engine.turn(held).await {
        Ok(Some(refusal)) => refusal.message,
        _ => format!("the lock of {session} did not come free"),
    };
    Refusal::new(ErrorCode::Timeout, format!("the wait ran out: {why}"))
}

/// A place in the line, left when dropped.
struct Leaving {
    handle: Handle,
    place: Option<(SessionId, Ticket)>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((session, ticket)) = self.place.take() {
            self.handle.post(move |turn| lock::release(turn, session, ticket));
        }
    }
}

/// Its lease begins anew.
pub(super) async fn renewed(daemon: &Arc<Daemon>, session: SessionId, token: Token) -> Reply {
    daemon.engine.turn(move |turn| renew(turn, session, token)).await?
}

fn renew(turn: &mut Turn<'_>, session: SessionId, token: Token) -> Reply {
    let lease = turn.pool().session(session).and_then(|s| s.lock.as_ref()).map(|lock| lock.lease_ms);
    let deadline = turn.mono().after(Duration::from_millis(lease.unwrap_or(LEASE_MS)));
    if turn.volatile.user_locks.renew(session, token, deadline) {
        return Ok(Response::Done);
    }
    match turn.pool().session(session) {
        Some(_) => Err(lock::stale()),
        None => Err(pool::admit::not_found(turn.pool(), &session.to_string())),
    }
}

/// It is given back, if it is still held.
pub(super) async fn unlocked(daemon: &Arc<Daemon>, session: SessionId, token: Token) -> Reply {
    let unlock = move |turn: &mut Turn<'_>| {
        if turn.volatile.user_locks.get(session).is_some_and(|lock| lock.token == token) {
            lock::end(turn, session, End::Released("given back"));
        }
        Response::Done
    };
    daemon.engine.turn(unlock).await
}
