//! The queue for slots: first come, first served.

use std::collections::VecDeque;

use protocol::SessionId;

/// A waiter for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiter {
    /// A request, by its ticket.
    Request(u64),
    /// A session that has something to do.
    Session(SessionId),
}

/// The waiters, in the order in which they came.
#[derive(Debug, Default)]
pub struct WaitQueue(VecDeque<Waiter>);

impl WaitQueue {
    /// Number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of waiters before this one; of all waiters if it does not wait.
    #[must_use]
    pub fn ahead(&self, waiter: Waiter) -> usize {
        self.0.iter().position(|waiting| *waiting == waiter).unwrap_or(self.0.len())
    }

    /// The position of a session, from 1.
    #[must_use]
    pub fn position(&self, session: SessionId) -> Option<u64> {
        let at = self.0.iter().position(|waiting| *waiting == Waiter::Session(session))?;
        Some(at as u64 + 1)
    }

    /// Adds a waiter at the end. Returns false if it waits already.
    pub fn join(&mut self, waiter: Waiter) -> bool {
        let is_new = !self.0.contains(&waiter);
        if is_new {
            self.0.push_back(waiter);
        }
        is_new
    }

    /// Removes a waiter. Returns true if it waited.
    pub fn leave(&mut self, waiter: Waiter) -> bool {
        let before = self.0.len();
        self.0.retain(|waiting| *waiting != waiter);
        self.0.len() != before
    }

    /// Sets the sessions that wait. New ones go to the end, in this order. Returns true if others have left.
    pub fn set_sessions(&mut self, wanting: &[SessionId]) -> bool {
        let before = self.0.len();
        self.0.retain(|waiting| match waiting {
            Waiter::Session(session) => wanting.contains(session),
            Waiter::Request(_) => true,
        });
        let have_left = self.0.len() != before;
        for session in wanting {
            self.join(Waiter::Session(*session));
        }
        have_left
    }

    /// The first session among the first `within` waiters.
    #[must_use]
    pub fn first_session(&self, within: usize) -> Option<SessionId> {
        self.0.iter().take(within).find_map(|waiting| match waiting {
            Waiter::Session(session) => Some(*session),
            Waiter::Request(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_served_first() {
        let mut queue = WaitQueue::default();
        let (a, b) = (Waiter::Request(1), Waiter::Request(2));
        assert_eq!(queue.ahead(a), 0, "nobody waits");
        assert!(queue.join(a) && !queue.join(a));
        assert!(!queue.set_sessions(&[SessionId(7), SessionId(8)]));
        assert!(queue.join(b));
        assert_eq!((queue.ahead(a), queue.ahead(b), queue.ahead(Waiter::Request(3))), (0, 3, 4));
        assert_eq!((queue.first_session(1), queue.first_session(2)), (None, Some(SessionId(7))));
        assert!(queue.set_sessions(&[SessionId(9), SessionId(8)]), "session 7 has left");
        assert_eq!((queue.position(SessionId(8)), queue.position(SessionId(9))), (Some(2), Some(4)));
        assert!(queue.leave(a) && !queue.leave(a));
        assert_eq!(queue.first_session(1), Some(SessionId(8)));
    }
}
