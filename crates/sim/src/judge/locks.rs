//! Locks of sessions: one holder at a time, with tokens that grow.

use std::time::Duration;

use protocol::{SessionId, Token};
use tokio::time::Instant;

use super::Judge;

impl Judge {
    /// Notes that a client has got a lock for this time, `forced` if it took it away from another one.
    pub(crate) fn locked(&self, session: SessionId, token: Token, lease: Duration, forced: bool) {
        let mut state = self.state();
        let until = Instant::now() + lease;
        let before = state.locks.insert(session, (token, until));
        drop(state);
        self.holds_lock(session, token, until);
        let Some((old, ends)) = before else { return };
        if old > token {
            self.violated(format!("L2: the tokens of the lock of {session} went back"));
        }
        if old != token && !forced && Instant::now() < ends {
            self.violated(format!("L2: the lock of {session} has two holders"));
        }
    }

    /// Notes that a client is about to release a lock.
    pub(crate) fn unlocked(&self, session: SessionId, token: Token) {
        let mut state = self.state();
        if let Some((held, ends)) = state.locks.get_mut(&session)
            && *held == token
        {
            *ends = Instant::now();
        }
        state.held.remove(&session);
    }
}
