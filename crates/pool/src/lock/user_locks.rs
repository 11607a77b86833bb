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
    /// The lock inside which this one was requested: an action inside this lock is also inside that one.
    pub outer: Option<Token>,
}

/// All users' locks, at most one per session.
#[derive(Debug, Default)]
pub struct UserLocks(BTreeMap<SessionId, UserLock>);

impl UserLocks {
    pub fn get(&self, session: SessionId) -> Option<&UserLock> {
        self.0.get(&session)
    }

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
    pub fn is_held(&self, session: SessionId, token: Token) -> bool {
        self.0.get(&session).is_some_and(|lock| lock.token == token)
    }

    /// The token of the session's own lock if a caller with the token `carried` acts inside it: the carried
    /// lock is that lock, or was requested, directly or through others, inside it.
    pub fn through(&self, session: SessionId, carried: Option<Token>) -> Option<Token> {
        let own = self.0.get(&session)?.token;
        let mut token = carried;
        // The outer lock of a lock is always older, so this loop ends.
        while let Some(held) = token.filter(|held| *held != own) {
            token = self.0.values().find(|lock| lock.token == held).and_then(|lock| lock.outer);
        }
        token
    }

    /// The sessions whose locks were not renewed in time.
    pub fn lapsed(&self, by: Mono) -> Vec<SessionId> {
        let lapsed = self.0.iter().filter(|(_, lock)| lock.deadline <= by);
        lapsed.map(|(session, _)| *session).collect()
    }

    /// End of the first lease.
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use protocol::Epoch;

    use super::*;

    fn token(n: u64) -> Token {
        Token { epoch: Epoch(1), n }
    }

    /// A lock with the token of its number, whose lease ends at `deadline`, inside the lock `outer`.
    fn lock(n: u64, deadline: u64, outer: Option<u64>) -> UserLock {
        UserLock { ticket: Ticket(n), token: token(n), deadline: Mono(deadline), outer: outer.map(token) }
    }

    #[test]
    fn a_lock_lapses_at_the_end_of_its_lease_unless_it_is_renewed_under_its_own_token() {
        let (one, two) = (SessionId(1), SessionId(2));
        let mut locks = UserLocks::default();
        locks.grant(one, lock(1, 10, None));
        locks.grant(two, lock(2, 20, None));
        assert_eq!((locks.first_deadline(), locks.lapsed(Mono(9))), (Some(Mono(10)), vec![]));
        assert_eq!(locks.lapsed(Mono(20)), [one, two]);
        assert!(!locks.renew(one, token(2), Mono(30)), "the token of another lock");
        assert!(locks.renew(one, token(1), Mono(30)));
        assert_eq!((locks.first_deadline(), locks.lapsed(Mono(20))), (Some(Mono(20)), vec![two]));
        assert_eq!(locks.remove(two).map(|lock| lock.token), Some(token(2)));
        assert!(!locks.renew(two, token(2), Mono(30)) && !locks.is_held(two, token(2)));
        assert!(locks.is_held(one, token(1)) && !locks.is_held(one, token(2)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Against a walk from each lock to the ones that it was requested inside.
        #[test]
        fn a_caller_acts_inside_every_lock_that_its_own_was_requested_inside(
            outers in vec(any::<Option<prop::sample::Index>>(), 1..8),
            carried in 0_u64..9,
            session in 0_usize..8,
        ) {
            let mut locks = UserLocks::default();
            let mut inside_of: Vec<Vec<u64>> = Vec::new();
            for (n, outer) in outers.iter().enumerate() {
                // A lock is requested inside an older one.
                let outer = outer.filter(|_| n > 0).map(|index| index.index(n));
                let around = outer.map_or_else(Vec::new, |outer| inside_of[outer].clone());
                inside_of.push(around.into_iter().chain([n as u64]).collect());
                locks.grant(SessionId(n as u64), lock(n as u64, 0, outer.map(|outer| outer as u64)));
            }
            let own = session as u64;
            let is_inside = inside_of.get(usize::try_from(carried).unwrap()).is_some_and(|of| of.contains(&own));
            let mapped = locks.through(SessionId(own), Some(token(carried)));
            prop_assert_eq!(mapped, is_inside.then_some(token(own)));
            prop_assert_eq!(locks.through(SessionId(own), None), None);
        }
    }
}
