//! The line of those who wait for a slot.

use std::collections::VecDeque;

use protocol::SessionId;

/// Somebody who waits for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A request, by its number.
    Client(u64),
    /// A session that has something to do.
    Session(SessionId),
}

/// Those who wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Line(VecDeque<Waiting>);

impl Line {
    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many wait before it: all, where it does not wait yet.
    pub(crate) fn ahead(&self, who: Waiting) -> usize {
        self.0.iter().position(|waiting| *waiting == who).unwrap_or(self.0.len())
    }

    /// Its place, from 1.
    pub(crate) fn place(&self, session: SessionId) -> Option<u64> {
        let at = self.0.iter().position(|waiting| *waiting == Waiting::Session(session))?;
        Some(at as u64 + 1)
    }

    /// Waits from now on. Whether it did not before.
    pub(crate) fn join(&mut self, who: Waiting) -> bool {
        let new = !self.0.contains(&who);
        if new {
            self.0.push_back(who);
        }
        new
    }

    /// Waits no longer. Whether it did before.
    pub(crate) fn leave(&mut self, who: Waiting) -> bool {
        let before = self.0.len();
        self.0.retain(|waiting| *waiting != who);
        self.0.len() != before
    }

    /// Exactly these sessions wait, those that came first before the others.
    pub(crate) fn sessions(&mut self, wanting: &[SessionId]) {
        self.0.retain(|waiting| match waiting {
            Waiting::Session(session) => wanting.contains(session),
            Waiting::Client(_) => true,
        });
        for session in wanting {
            self.join(Waiting::Session(*session));
        }
    }

    /// The first session among the first so many.
    pub(crate) fn first_session(&self, within: usize) -> Option<SessionId> {
        self.0.iter().take(within).find_map(|waiting| match waiting {
            Waiting::Session(session) => Some(*session),
            Waiting::Client(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_first_is_served_first() {
        let mut line = Line::default();
        let (a, b) = (Waiting::Client(1), Waiting::Client(2));
        assert_eq!(line.ahead(a), 0, "nobody waits");
        assert!(line.join(a) && !line.join(a));
        line.sessions(&[SessionId(7), SessionId(8)]);
        assert!(line.join(b));
        assert_eq!((line.ahead(a), line.ahead(b), line.ahead(Waiting::Client(3))), (0, 3, 4));
        assert_eq!((line.first_session(1), line.first_session(2)), (None, Some(SessionId(7))));
        line.sessions(&[SessionId(9), SessionId(8)]);
        assert_eq!((line.place(SessionId(8)), line.place(SessionId(9))), (Some(2), Some(4)));
        assert!(line.leave(a) && !line.leave(a));
        assert_eq!(line.first_session(1), Some(SessionId(8)));
    }
}
