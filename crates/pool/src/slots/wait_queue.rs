//! The queue for slots: first come, first served. Waiters for the same session want one slot together.

use std::collections::BTreeSet;

use protocol::SessionId;

use crate::pool::Pool;

/// A waiter for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiter {
    /// A request, by its ticket.
    Request(u64),
    /// A session that has something to do.
    Session(SessionId),
}

/// The session for which a slot is wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// A session that there is.
    Session(SessionId),
    /// A session of this workspace or name, which the first waiter creates.
    Name(String),
    /// A session of its own, for the request with this ticket.
    New(u64),
}

impl Wanted {
    /// The same want; but if a session has the wanted name by now, that session.
    pub fn resolve(&self, pool: &Pool) -> Self {
        let session = match self {
            Self::Name(name) => pool.named(name),
            Self::Session(_) | Self::New(_) => None,
        };
        session.map_or_else(|| self.clone(), |session| Self::Session(session.id))
    }

    /// True if the session has no slot yet. One that has got a slot stays queued until its waiter looks again.
    fn lacks_slot(&self, pool: &Pool) -> bool {
        let session = match self {
            Self::Session(id) => pool.session(*id),
            Self::Name(name) => pool.named(name),
            Self::New(_) => None,
        };
        session.is_none_or(|session| !session.lifecycle.holds_slot())
    }
}

/// The waiters, in the order in which they came.
#[derive(Debug, Default)]
pub struct WaitQueue(Vec<(Waiter, Wanted)>);

impl WaitQueue {
    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn slots_wanted(&self, pool: &Pool) -> usize {
        slots_for(&self.0, pool)
    }

    /// Number of slots wanted ahead of this waiter, or another one for the same; of the whole queue if there is none.
    pub fn ahead(&self, pool: &Pool, waiter: Waiter, wanted: &Wanted) -> usize {
        let at = self.0.iter().position(|(waiting, other)| *waiting == waiter || other == wanted);
        slots_for(&self.0[..at.unwrap_or(self.0.len())], pool)
    }

    /// The position of a session, from 1.
    pub fn position(&self, session: SessionId) -> Option<u64> {
        let at = self.0.iter().position(|(waiting, _)| *waiting == Waiter::Session(session))?;
        Some(at as u64 + 1)
    }

    /// Adds a waiter at the end. Returns false if it waits already.
    pub fn join(&mut self, waiter: Waiter, wanted: Wanted) -> bool {
        let is_new = !self.0.iter().any(|(waiting, _)| *waiting == waiter);
        if is_new {
            self.0.push((waiter, wanted));
        }
        is_new
    }

    /// Removes a waiter. Returns true if it waited.
    pub fn leave(&mut self, waiter: Waiter) -> bool {
        let before = self.0.len();
        self.0.retain(|(waiting, _)| *waiting != waiter);
        self.0.len() != before
    }

    /// Sets the sessions that wait. New ones go to the end, in this order. Returns true if others have left.
    pub(crate) fn set_sessions(&mut self, wanting: &[SessionId]) -> bool {
        let before = self.0.len();
        self.0.retain(|(waiting, _)| match waiting {
            Waiter::Session(session) => wanting.contains(session),
            Waiter::Request(_) => true,
        });
        let have_left = self.0.len() != before;
        for session in wanting {
            self.join(Waiter::Session(*session), Wanted::Session(*session));
        }
        have_left
    }

    /// The first session that is wanted among the first `within` slots.
    pub(crate) fn first_session(&self, pool: &Pool, within: usize) -> Option<SessionId> {
        let mut wanted_so_far = BTreeSet::new();
        for (waiting, wanted) in self.0.iter().filter(|(_, wanted)| wanted.lacks_slot(pool)) {
            wanted_so_far.insert(wanted);
            match waiting {
                _ if wanted_so_far.len() > within => return None,
                Waiter::Session(session) => return Some(*session),
                Waiter::Request(_) => {}
            }
        }
        None
    }
}

fn slots_for(waiters: &[(Waiter, Wanted)], pool: &Pool) -> usize {
    let lacking = waiters.iter().map(|(_, wanted)| wanted).filter(|wanted| wanted.lacks_slot(pool));
    lacking.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ticket: u64) -> (Waiter, Wanted) {
        (Waiter::Request(ticket), Wanted::New(ticket))
    }

    #[test]
    fn who_comes_first_is_served_first() {
        let (mut queue, pool) = (WaitQueue::default(), Pool::default());
        let [a, b, c] = [1, 2, 3].map(Waiter::Request);
        let ahead = |queue: &WaitQueue, ticket| queue.ahead(&pool, request(ticket).0, &request(ticket).1);
        assert_eq!(ahead(&queue, 1), 0, "nobody waits");
        assert!(queue.join(a, request(1).1) && !queue.join(a, request(1).1));
        assert!(!queue.set_sessions(&[SessionId(7), SessionId(8)]));
        assert!(queue.join(b, request(2).1));
        assert_eq!((ahead(&queue, 1), ahead(&queue, 2), ahead(&queue, 3)), (0, 3, 4));
        assert_eq!(
            (queue.first_session(&pool, 1), queue.first_session(&pool, 2)),
            (None, Some(SessionId(7)))
        );
        assert!(queue.set_sessions(&[SessionId(9), SessionId(8)]), "session 7 has left");
        assert_eq!((queue.position(SessionId(8)), queue.position(SessionId(9))), (Some(2), Some(4)));
        assert!(queue.leave(a) && !queue.leave(a) && !queue.leave(c));
        assert_eq!(queue.first_session(&pool, 1), Some(SessionId(8)));
    }

    #[test]
    fn waiters_for_the_same_session_want_one_slot() {
        let (mut queue, pool) = (WaitQueue::default(), Pool::default());
        let name = || Wanted::Name("web".to_owned());
        let waiters = [1, 2, 3].map(Waiter::Request);
        for waiter in waiters {
            queue.join(waiter, name());
        }
        queue.join(request(4).0, request(4).1);
        assert_eq!((queue.len(), queue.slots_wanted(&pool)), (4, 2));
        assert_eq!(waiters.map(|waiter| queue.ahead(&pool, waiter, &name())), [0, 0, 0]);
        assert_eq!(queue.ahead(&pool, request(4).0, &request(4).1), 1);
        // A session that has something to do, and a request that starts it.
        queue.join(Waiter::Request(5), Wanted::Session(SessionId(7)));
        queue.set_sessions(&[SessionId(7), SessionId(8)]);
        assert_eq!((queue.len(), queue.slots_wanted(&pool)), (7, 4));
        assert_eq!(
            (queue.first_session(&pool, 2), queue.first_session(&pool, 3)),
            (None, Some(SessionId(7)))
        );
        queue.set_sessions(&[SessionId(8)]);
        assert_eq!(
            (queue.first_session(&pool, 3), queue.first_session(&pool, 4)),
            (None, Some(SessionId(8)))
        );
    }
}
