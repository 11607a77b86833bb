//! Locks of sessions: one holder at a time, with tokens that grow.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{MessageId, Refusal, SessionId, Token};
use tokio::time::Instant;

use super::{Judge, State};

/// Words of the refusals for want of a lock.
const WANTS_LOCK: [&str; 2] = ["that lock is no longer held", " is locked"];

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

    /// Notes that a client asks for a lock by force: nobody knows how long others still hold theirs.
    pub(crate) fn forces_lock(&self) {
        let mut state = self.state();
        state.forcing += 1;
        state.held.clear();
    }

    /// Notes that such a request is over.
    pub(crate) fn has_forced_lock(&self) {
        let mut state = self.state();
        state.forcing = state.forcing.saturating_sub(1);
        state.held.clear();
    }

    /// Returns the locks that their clients hold now.
    pub(crate) fn held_locks(&self) -> BTreeMap<SessionId, Token> {
        let (state, now) = (self.state(), Instant::now());
        let held = state.held.iter().filter(|(_, (_, until))| now < *until);
        held.map(|(session, (token, _))| (*session, *token)).collect()
    }

    /// True if a lock is surely held.
    pub(crate) fn holds(&self, (session, token): (SessionId, Token)) -> bool {
        self.held_locks().get(&session) == Some(&token)
    }

    /// Checks that the holder of a lock is not refused for want of it.
    pub(crate) fn check_inside(&self, (session, token): (SessionId, Token), refusal: &Refusal) {
        let wants_lock = WANTS_LOCK.iter().any(|words| refusal.message.contains(words));
        if wants_lock && self.holds((session, token)) {
            self.violated(format!("L5: the holder of the lock of {session} is refused: {}", refusal.message));
        }
    }

    /// Notes that the holder of a lock is about to let something start inside of it.
    pub(crate) fn used_inside(&self, token: Token) {
        self.state().used_inside.insert(token);
    }

    /// True if the holder of a lock may have let something start inside of it.
    pub(crate) fn is_used_inside(&self, token: Token) -> bool {
        self.state().used_inside.contains(&token)
    }

    /// Notes that the holder of a lock is about to send a prompt inside of it.
    pub(crate) fn feeds(&self, token: Token) {
        let mut state = self.state();
        state.used_inside.insert(token);
        state.fed.insert(token, None);
    }

    /// Notes that such a prompt was acknowledged.
    pub(crate) fn fed(&self, token: Token, id: MessageId) {
        self.state().fed.insert(token, Some(id));
    }
}

/// True if a prompt may be typed under a lock: its holder has sent this one or a later one inside of it.
pub(super) fn is_fed(state: &State, token: Token, text: &str) -> bool {
    let Some(newest) = state.fed.get(&token).copied() else { return false };
    let mut sent = state.acknowledged.iter().filter(|(_, (_, body))| body == text).map(|(id, _)| *id);
    newest.zip(sent.next()).is_none_or(|(newest, id)| id <= newest) || state.cut_short.contains_key(text)
}
