//! Session locks: at most one holder, first come first served, each grant with a token that is
//! larger than every token before it. A lock belongs to an operation; whoever leaves the waiting
//! line only leaves the line.
//!
//! A user's lock is *open*: what is done under its token stands in a line of its own inside of it, as do
//! those of the pool's own operations that only carry out what is decided already. Given back or revoked, it
//! goes to the next when what is done inside is over. Who still waits inside under its token has come too late;
//! what is decided already waits for no user's lock, and for none to end.

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

/// What came of a place in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// It has the lock.
    Granted(Grant),
    /// It waited inside of a lock that is not held any more.
    TooLate(Ticket),
}

/// Under which lock something is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Under {
    /// None: it waits for whoever has the session's lock.
    Nobody,
    /// The open lock with this token. Where that is another session's, none.
    Token(Token),
    /// The open lock that there is, if there is one.
    Whoever,
}

/// That lock is not held any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale;

/// Who asks, and what for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// A ticket that was not used before.
    pub ticket: Ticket,
    /// What for, for those who wait for it.
    pub purpose: &'a str,
    /// Under which lock.
    pub under: Under,
}

/// A lock that is held, as it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held<'a> {
    /// Its token.
    pub token: Token,
    /// What for.
    pub purpose: &'a str,
    /// Whether it is a user's.
    pub open: bool,
    /// What is done inside of it.
    pub inner: Option<&'a str>,
    /// How many wait for it.
    pub waiting: usize,
}

#[derive(Debug)]
struct Place {
    ticket: Ticket,
    purpose: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A user's lock.
    Open,
    /// An operation that needs the lock, or the open lock under which it asked.
    Operation,
    /// One that carries out what is decided already: it goes inside of whatever lock is open.
    Decided,
}

#[derive(Debug)]
struct Line {
    holder: (Token, Place),
    /// It was given back, and what is done inside is not over.
    over: bool,
    waiting: VecDeque<Place>,
    inner: Option<Place>,
    inner_waiting: VecDeque<Place>,
}

impl Line {
    fn new(token: Token, place: Place) -> Self {
        let (waiting, inner_waiting) = (VecDeque::new(), VecDeque::new());
        Self { holder: (token, place), over: false, waiting, inner: None, inner_waiting }
    }

    fn is_open(&self) -> bool {
        self.holder.1.kind == Kind::Open && !self.over
    }
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

    /// Asks for a lock for an operation. The grant comes at once or from a later [`LockTable::release`].
    ///
    /// # Errors
    /// The lock under which it is asked for is not held any more.
    pub fn ask(&mut self, session: SessionId, asked: Ask<'_>) -> Result<Option<Grant>, Stale> {
        let Ask { ticket, purpose, under } = asked;
        let open = self.lines.get(&session).filter(|line| line.is_open()).map(|line| line.holder.0);
        let inside = match under {
            Under::Nobody => false,
            Under::Whoever => open.is_some(),
            Under::Token(token) if open == Some(token) => true,
            Under::Token(token) if self.is_held(token) => false,
            Under::Token(_) => return Err(Stale),
        };
        let kind = if under == Under::Whoever { Kind::Decided } else { Kind::Operation };
        let place = Place { ticket, purpose: purpose.to_owned(), kind };
        Ok(if inside { self.enter(session, place) } else { self.queue(session, place, false) })
    }

    /// Asks for a user's lock, behind all who wait, or before them.
    pub fn ask_open(
        &mut self,
        session: SessionId,
        ticket: Ticket,
        purpose: &str,
        first: bool,
    ) -> Option<Grant> {
        self.queue(session, Place { ticket, purpose: purpose.to_owned(), kind: Kind::Open }, first)
    }

    /// A user's lock that was held before this epoch, and is still.
    pub fn restore(&mut self, session: SessionId, ticket: Ticket, token: Token, purpose: &str) {
        let place = Place { ticket, purpose: purpose.to_owned(), kind: Kind::Open };
        self.lines.insert(session, Line::new(token, place));
    }

    fn queue(&mut self, session: SessionId, place: Place, first: bool) -> Option<Grant> {
        if let Some(line) = self.lines.get_mut(&session) {
            if first {
                line.waiting.push_front(place);
            } else {
                line.waiting.push_back(place);
            }
            return None;
        }
        let grant = Grant { ticket: place.ticket, token: self.issue() };
        self.lines.insert(session, Line::new(grant.token, place));
        Some(grant)
    }

    fn enter(&mut self, session: SessionId, place: Place) -> Option<Grant> {
        self.lines.get_mut(&session)?.inner_waiting.push_back(place);
        self.next_inside(session)
    }

    /// Gives a lock back, or leaves the waiting line. Answers what comes of it for others, in the order of their tokens.
    pub fn release(&mut self, session: SessionId, ticket: Ticket) -> Vec<Given> {
        let Some(line) = self.lines.get_mut(&session) else { return Vec::new() };
        if line.holder.1.ticket == ticket && !line.over {
            line.over = true;
            let inside: Vec<Place> = line.inner_waiting.drain(..).collect();
            let (decided, late): (Vec<_>, Vec<_>) = inside.into_iter().partition(|p| p.kind == Kind::Decided);
            line.waiting = decided.into_iter().chain(line.waiting.drain(..)).collect();
            let late = late.into_iter().map(|place| Given::TooLate(place.ticket));
            return late.chain(self.next(session)).collect();
        }
        if line.inner.as_ref().is_some_and(|inner| inner.ticket == ticket) {
            line.inner = None;
            return self.next(session);
        }
        line.waiting.retain(|place| place.ticket != ticket);
        line.inner_waiting.retain(|place| place.ticket != ticket);
        Vec::new()
    }

    /// The next that waits: for a lock that was given back and in which nothing is done, or inside of one.
    fn next(&mut self, session: SessionId) -> Vec<Given> {
        let Some(line) = self.lines.get_mut(&session) else { return Vec::new() };
        let mut grants = Vec::new();
        if line.over && line.inner.is_none() {
            let mut waiting = std::mem::take(&mut line.waiting);
            self.lines.remove(&session);
            let Some(next) = waiting.pop_front() else { return Vec::new() };
            let grant = Grant { ticket: next.ticket, token: self.issue() };
            let mut line = Line::new(grant.token, next);
            let is_inside = line.is_open();
            (line.inner_waiting, line.waiting) =
                waiting.into_iter().partition(|place| is_inside && place.kind == Kind::Decided);
            self.lines.insert(session, line);
            grants.push(grant);
        }
        grants.extend(self.next_inside(session));
        grants.into_iter().map(Given::Granted).collect()
    }

    /// The next that waits inside of a lock in which nothing is done.
    fn next_inside(&mut self, session: SessionId) -> Option<Grant> {
        let line = self.lines.get_mut(&session).filter(|line| line.inner.is_none())?;
        let place = line.inner_waiting.pop_front()?;
        let ticket = place.ticket;
        line.inner = Some(place);
        Some(Grant { ticket, token: self.issue() })
    }

    /// Who holds a lock, and what for.
    #[must_use]
    pub fn holder(&self, session: SessionId) -> Option<Held<'_>> {
        self.lines.get(&session).map(|line| Held {
            token: line.holder.0,
            purpose: &line.holder.1.purpose,
            open: line.is_open(),
            inner: line.inner.as_ref().map(|inner| inner.purpose.as_str()),
            waiting: line.waiting.len(),
        })
    }

    /// The ticket of the user's lock that is held with this token.
    #[must_use]
    pub fn open_ticket(&self, session: SessionId, token: Token) -> Option<Ticket> {
        let line = self.lines.get(&session).filter(|line| line.is_open() && line.holder.0 == token)?;
        Some(line.holder.1.ticket)
    }

    /// Whether a user's lock is held with this token, whatever session it is of.
    #[must_use]
    pub fn is_held(&self, token: Token) -> bool {
        self.lines.values().any(|line| line.is_open() && line.holder.0 == token)
    }

    /// A token that is larger than every one before: for a claim.
    pub fn issue(&mut self) -> Token {
        self.issued += 1;
        Token { epoch: self.epoch, n: self.issued }
    }
}
