//! Session locks: at most one holder, first come, first served, each grant with a token that is larger than
//! all before.
//!
//! A lock belongs to an operation. A user's lock is held by a command instead, and operations nest inside it: those
//! that carry its token, and the pool's own that carry out a decision already made (*decided*). After its release or
//! revocation a user's lock goes to the next waiter once the operation inside it is over. Operations that wait inside
//! it are then refused if they carry its token. A decided operation never waits for a user's lock: it runs inside the
//! lock of whoever holds it.

use std::collections::{BTreeMap, VecDeque};

use protocol::{Epoch, SessionId, Token};

/// Identifies a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A granted lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The waiter that it was granted to.
    pub ticket: Ticket,
    /// The fencing token.
    pub token: Token,
}

/// The outcome for a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaiterOutcome {
    /// The lock was granted.
    Granted(Grant),
    /// The user's lock inside which it waited is no longer held.
    OuterReleased(Ticket),
}

/// The user's lock inside which a lock is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OuterLock {
    /// No user's lock: the request waits until nobody holds the session's lock.
    None,
    /// The user's lock with this token. The token of another session's lock counts as none.
    Token(Token),
    /// The user's lock that is held now, if any.
    Current,
}

/// The user's lock inside which a lock was requested is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotHeld;

#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// An unused ticket.
    pub ticket: Ticket,
    /// The purpose, shown to others that wait.
    pub purpose: &'a str,
    /// The user's lock inside which it is requested.
    pub outer: OuterLock,
}

/// A held lock, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockStatus<'a> {
    pub token: Token,
    pub purpose: &'a str,
    /// True for a user's lock.
    pub is_user_lock: bool,
    /// The purpose of the operation inside it.
    pub inside: Option<&'a str>,
    pub waiting: usize,
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    purpose: String,
    kind: WaiterKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaiterKind {
    /// A user's lock.
    UserLock,
    /// An operation that needs the lock.
    Operation,
    /// An operation that needs the session's lock or, with the token of a user's lock, nests inside that one.
    Nested,
    /// An operation that carries out a decision already made: it nests inside any user's lock.
    Decided,
}

#[derive(Debug)]
struct SessionLocks {
    holder: (Token, Waiter),
    /// True for a released lock with an operation still inside.
    released: bool,
    waiting: VecDeque<Waiter>,
    inside: Option<Waiter>,
    waiting_inside: VecDeque<Waiter>,
}

impl SessionLocks {
    fn new(token: Token, waiter: Waiter) -> Self {
        let (waiting, waiting_inside) = (VecDeque::new(), VecDeque::new());
        Self { holder: (token, waiter), released: false, waiting, inside: None, waiting_inside }
    }

    fn is_user_lock(&self) -> bool {
        self.holder.1.kind == WaiterKind::UserLock && !self.released
    }
}

/// The locks of all sessions.
#[derive(Debug, Default)]
pub struct LockTable {
    epoch: Epoch,
    issued: u64,
    sessions: BTreeMap<SessionId, SessionLocks>,
}

impl LockTable {
    /// An empty table whose tokens belong to this epoch.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Requests a lock for an operation. It is granted at once, or by a later [`LockTable::release`].
    ///
    /// # Errors
    /// The user's lock inside which it is requested is no longer held.
    pub fn request(&mut self, session: SessionId, asked: LockRequest<'_>) -> Result<Option<Grant>, NotHeld> {
        let LockRequest { ticket, purpose, outer } = asked;
        let user_lock =
            self.sessions.get(&session).filter(|locks| locks.is_user_lock()).map(|locks| locks.holder.0);
        let inside = match outer {
            OuterLock::None => false,
            OuterLock::Current => user_lock.is_some(),
            OuterLock::Token(token) if user_lock == Some(token) => true,
            OuterLock::Token(token) if self.is_held(token) => false,
            OuterLock::Token(_) => return Err(NotHeld),
        };
        let kind = match outer {
            OuterLock::None => WaiterKind::Operation,
            OuterLock::Token(_) => WaiterKind::Nested,
            OuterLock::Current => WaiterKind::Decided,
        };
        let waiter = Waiter { ticket, purpose: purpose.to_owned(), kind };
        Ok(if inside { self.enter(session, waiter) } else { self.queue(session, waiter, false) })
    }

    /// Requests a user's lock, behind all waiters, or before them if `first`.
    pub fn request_user_lock(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        purpose: &str,
        first: bool,
    ) -> Option<Grant> {
        self.queue(session, Waiter { ticket, purpose: purpose.to_owned(), kind: WaiterKind::UserLock }, first)
    }

    /// Restores a user's lock that was granted in an earlier epoch.
    pub fn restore(&mut self, session: SessionId, ticket: Ticket, token: Token, purpose: &str) {
        let waiter = Waiter { ticket, purpose: purpose.to_owned(), kind: WaiterKind::UserLock };
        self.sessions.insert(session, SessionLocks::new(token, waiter));
    }

    fn queue(&mut self, session: SessionId, waiter: Waiter, first: bool) -> Option<Grant> {
        if let Some(locks) = self.sessions.get_mut(&session) {
            if first {
                locks.waiting.push_front(waiter);
            } else {
                locks.waiting.push_back(waiter);
            }
            return None;
        }
        let grant = Grant { ticket: waiter.ticket, token: self.issue_token() };
        self.sessions.insert(session, SessionLocks::new(grant.token, waiter));
        Some(grant)
    }

    fn enter(&mut self, session: SessionId, waiter: Waiter) -> Option<Grant> {
        self.sessions.get_mut(&session)?.waiting_inside.push_back(waiter);
        self.next_inside(session)
    }

    /// Releases a lock, or leaves the queue. Returns the outcomes for other waiters, in the order of their
    /// tokens.
    pub fn release(&mut self, session: SessionId, ticket: Ticket) -> Vec<WaiterOutcome> {
        let Some(locks) = self.sessions.get_mut(&session) else { return Vec::new() };
        if locks.holder.1.ticket == ticket && !locks.released {
            locks.released = true;
            let inside: Vec<Waiter> = locks.waiting_inside.drain(..).collect();
            let (decided, late): (Vec<_>, Vec<_>) =
                inside.into_iter().partition(|p| p.kind == WaiterKind::Decided);
            locks.waiting = decided.into_iter().chain(locks.waiting.drain(..)).collect();
            let late = late.into_iter().map(|waiter| WaiterOutcome::OuterReleased(waiter.ticket));
            return late.chain(self.next(session)).collect();
        }
        if locks.inside.as_ref().is_some_and(|inside| inside.ticket == ticket) {
            locks.inside = None;
            return self.next(session);
        }
        locks.waiting.retain(|waiter| waiter.ticket != ticket);
        locks.waiting_inside.retain(|waiter| waiter.ticket != ticket);
        Vec::new()
    }

    /// Grants the lock to the next waiter if it is released and empty, or to the next waiter inside a user's
    /// lock.
    fn next(&mut self, session: SessionId) -> Vec<WaiterOutcome> {
        let Some(locks) = self.sessions.get_mut(&session) else { return Vec::new() };
        let mut grants = Vec::new();
        if locks.released && locks.inside.is_none() {
            let mut waiting = std::mem::take(&mut locks.waiting);
            self.sessions.remove(&session);
            let Some(next) = waiting.pop_front() else { return Vec::new() };
            let grant = Grant { ticket: next.ticket, token: self.issue_token() };
            let mut locks = SessionLocks::new(grant.token, next);
            let is_inside = locks.is_user_lock();
            (locks.waiting_inside, locks.waiting) =
                waiting.into_iter().partition(|waiter| is_inside && waiter.kind == WaiterKind::Decided);
            self.sessions.insert(session, locks);
            grants.push(grant);
        }
        grants.extend(self.next_inside(session));
        grants.into_iter().map(WaiterOutcome::Granted).collect()
    }

    /// Withdraws the operations that wait without a token behind a user's lock. The caller refuses them, like
    /// operations that come while the lock is held.
    pub fn withdraw_operations(&mut self, session: SessionId) -> Vec<Ticket> {
        let Some(locks) = self.sessions.get_mut(&session).filter(|locks| locks.is_user_lock()) else {
            return Vec::new();
        };
        let is_operation = |waiter: &Waiter| waiter.kind == WaiterKind::Operation;
        let withdrawn =
            locks.waiting.iter().filter(|waiter| is_operation(waiter)).map(|waiter| waiter.ticket);
        let withdrawn = withdrawn.collect();
        locks.waiting.retain(|waiter| !is_operation(waiter));
        withdrawn
    }

    /// Grants to the next waiter inside a user's lock in which no operation is.
    fn next_inside(&mut self, session: SessionId) -> Option<Grant> {
        let locks = self.sessions.get_mut(&session).filter(|locks| locks.inside.is_none())?;
        let waiter = locks.waiting_inside.pop_front()?;
        let ticket = waiter.ticket;
        locks.inside = Some(waiter);
        Some(Grant { ticket, token: self.issue_token() })
    }

    pub fn holder(&self, session: SessionId) -> Option<LockStatus<'_>> {
        self.sessions.get(&session).map(|locks| LockStatus {
            token: locks.holder.0,
            purpose: &locks.holder.1.purpose,
            is_user_lock: locks.is_user_lock(),
            inside: locks.inside.as_ref().map(|inside| inside.purpose.as_str()),
            waiting: locks.waiting.len(),
        })
    }

    /// The ticket of a session's user's lock with this token.
    #[must_use]
    pub fn user_lock_ticket(&self, session: SessionId, token: Token) -> Option<Ticket> {
        let locks =
            self.sessions.get(&session).filter(|locks| locks.is_user_lock() && locks.holder.0 == token)?;
        Some(locks.holder.1.ticket)
    }

    /// True if a user's lock of any session is held with this token.
    pub fn is_held(&self, token: Token) -> bool {
        self.sessions.values().any(|locks| locks.is_user_lock() && locks.holder.0 == token)
    }

    /// Issues a token that is larger than all before, for a claim.
    pub fn issue_token(&mut self) -> Token {
        self.issued += 1;
        Token { epoch: self.epoch, n: self.issued }
    }
}
