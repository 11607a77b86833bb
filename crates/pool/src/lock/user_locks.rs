//! The volatile state of users' locks: leases and nesting. The locks themselves are on record.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{SessionId, Token};

use crate::deadlines::Mono;
use crate::lock::table::Ticket;
use crate::pool::Pool;

/// A user's lock.
#[derive(Debug, Clone, Copy)]
pub struct UserLock {
    /// The ticket in the lock table.
    pub ticket: Ticket,
    /// The fencing token.
    pub token: Token,
    /// End of its lease; a renewal moves it.
    pub deadline: Mono,
    /// The lock inside which it was requested: what is done inside this lock is done inside that one, too.
    pub outer: Option<Token>,
}

/// All users' locks, at most one per session.
#[derive(Debug, Default)]
pub struct UserLocks(BTreeMap<SessionId, UserLock>);

impl UserLocks {
    /// The lock on a session.
    #[must_use]
    pub fn get(&self, session: SessionId) -> Option<&UserLock> {
        self.0.get(&session)
    }

    /// Grants the lock on a session.
    pub fn grant(&mut self, session: SessionId, lock: UserLock) {
        self.0.insert(session, lock);
    }

    /// Ends the lock on a session.
    pub fn remove(&mut self, session: SessionId) -> Option<UserLock> {
        self.0.remove(&session)
    }

    /// Renews the lease of the lock on a session. Returns false if it is not held with this token.
    pub fn renew(&mut self, session: SessionId, token: Token, deadline: Mono) -> bool {
        let held = self.0.get_mut(&session).filter(|lock| lock.token == token);
        held.map(|lock| lock.deadline = deadline).is_some()
    }

    /// True if the lock on a session is held with this token.
    #[must_use]
    pub fn is_held(&self, session: SessionId, token: Token) -> bool {
        self.0.get(&session).is_some_and(|lock| lock.token == token)
    }

    /// Maps the token that a caller carries to that of the session's own lock, if the carried lock was
    /// requested, directly or through others, inside that one. Returns any other token as it is.
    #[must_use]
    pub fn through(&self, session: SessionId, under: Option<Token>) -> Option<Token> {
        let own = self.0.get(&session)?.token;
        let mut token = under;
        // Each lock was requested inside an older one, so this ends.
        while let Some(held) = token.filter(|held| *held != own) {
            token = self.0.values().find(|lock| lock.token == held).and_then(|lock| lock.outer);
        }
        token
    }

    /// The sessions whose locks were not renewed in time.
    #[must_use]
    pub fn lapsed(&self, by: Mono) -> Vec<SessionId> {
        let lapsed = self.0.iter().filter(|(_, lock)| lock.deadline <= by);
        lapsed.map(|(session, _)| *session).collect()
    }

    /// End of the first lease.
    #[must_use]
    pub fn first_deadline(&self) -> Option<Mono> {
        self.0.values().map(|lock| lock.deadline).min()
    }

    /// Gives all locks their whole lease again.
    pub fn restart_leases(&mut self, pool: &Pool, now: Mono) {
        for session in pool.sessions() {
            if let (Some(lock), Some(held)) = (&session.lock, self.0.get_mut(&session.id)) {
                held.deadline = now.after(Duration::from_millis(lock.lease_ms));
            }
        }
    }
}
