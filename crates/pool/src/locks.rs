//! Session locks: at most one holder, first come first served, each grant with a token that is
//! larger than every token before it. A lock belongs to an operation; whoever leaves the waiting
//! line only leaves the line.

use std::collections::{BTreeMap, VecDeque};

use protocol::{Epoch, SessionId, Token};

/// Names a place in a waiting line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A lock that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub ticket: Ticket,
    /// The fencing token.
    pub token: Token,
}

#[derive(Debug)]
struct Line {
    holder: (Grant, String),
    waiting: VecDeque<(Ticket, String)>,
}

/// All session locks.
#[derive(Debug, Default)]
pub struct LockTable {
    epoch: Epoch,
    issued: u64,
    lines: BTreeMap<SessionId, Line>,
}

impl LockTable {
    /// An empty table whose tokens belong to this epoch.
    #[must_use]
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Asks for a lock with a ticket that was not used before; `purpose` is shown to those who wait
    /// for it. The grant comes at once or from a later [`LockTable::release`].
    pub fn ask(&mut self, session: SessionId, ticket: Ticket, purpose: &str) -> Option<Grant> {
        if let Some(line) = self.lines.get_mut(&session) {
            line.waiting.push_back((ticket, purpose.to_owned()));
            return None;
        }
        let grant = Grant { ticket, token: self.issue() };
        let line = Line { holder: (grant.clone(), purpose.to_owned()), waiting: VecDeque::new() };
        self.lines.insert(session, line);
        Some(grant)
    }

    /// Gives a lock back, or leaves the waiting line. Answers who holds it next, if that changed.
    pub fn release(&mut self, session: SessionId, ticket: Ticket) -> Option<Grant> {
        let line = self.lines.get_mut(&session)?;
        if line.holder.0.ticket != ticket {
            line.waiting.retain(|(waiting, _)| *waiting != ticket);
            return None;
        }
        let Some((next, purpose)) = line.waiting.pop_front() else {
            self.lines.remove(&session);
            return None;
        };
        self.issued += 1;
        let grant = Grant { ticket: next, token: Token { epoch: self.epoch, n: self.issued } };
        line.holder = (grant.clone(), purpose);
        Some(grant)
    }

    /// Who holds a lock, and what for.
    #[must_use]
    pub fn holder(&self, session: SessionId) -> Option<(Token, &str)> {
        self.lines.get(&session).map(|line| (line.holder.0.token, line.holder.1.as_str()))
    }

    /// Whether this token holds the lock now.
    #[must_use]
    pub fn holds(&self, session: SessionId, token: Token) -> bool {
        self.holder(session).is_some_and(|(held, _)| held == token)
    }

    /// A token that is larger than every one before: for a claim.
    pub fn issue(&mut self) -> Token {
        self.issued += 1;
        Token { epoch: self.epoch, n: self.issued }
    }
}
