//! The compared ways to create a session.

use anyhow::Result;
use protocol::request::New;

use super::bare::{Bare, PROGRAM};
use super::{AT_A_TIME, many};
use crate::floors::Client;
use crate::pool::Pool;
use crate::report;

/// A way to create a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// `tmux new-session`.
    Bare,
    /// A request, over a connection of its own.
    Pool,
    /// `poolctl new`.
    Poolctl,
}

impl Maker {
    pub(super) const ALL: [Self; 3] = [Self::Bare, Self::Pool, Self::Poolctl];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bare => "tmux new-session",
            Self::Pool => "the pool",
            Self::Poolctl => "poolctl new",
        }
    }
}

/// A pool and a bare server, with equal numbers of sessions.
pub(super) struct Makers<'a> {
    pool: &'a Pool,
    bare: Bare<'a>,
}

impl<'a> Makers<'a> {
    /// Creates the sessions that are present from the start.
    pub(super) fn new(pool: &'a Pool, existing: usize) -> Result<Self> {
        report(&format!("creating {existing} sessions on each of two servers"));
        fill(pool, existing)?;
        Ok(Self { pool, bare: Bare::start(pool, existing)? })
    }

    /// Creates a session.
    pub(super) fn make(&self, maker: Maker, name: &str) -> Result<()> {
        match maker {
            Maker::Bare => self.bare.make(name),
            Maker::Pool => ask(self.pool, name),
            Maker::Poolctl => self.pool.new_session(name, &PROGRAM),
        }
    }

    /// Removes sessions.
    pub(super) fn remove(&self, maker: Maker, names: &[String]) -> Result<()> {
        if maker == Maker::Bare {
            return self.bare.remove(names);
        }
        many(names, AT_A_TIME, |name| Client::connect(self.pool)?.remove(name)).map(drop)
    }

    /// Ends the bare server, but not the pool.
    pub(super) fn end(&self) -> Result<()> {
        self.bare.end()
    }
}

/// Creates this many sessions.
pub(super) fn fill(pool: &Pool, count: usize) -> Result<()> {
    let names: Vec<String> = (0..count).map(|n| format!("old-{n}")).collect();
    many(&names, AT_A_TIME, |name| ask(pool, name)).map(drop)
}

/// Requests a session from the pool, which must run when the reply comes.
fn ask(pool: &Pool, name: &str) -> Result<()> {
    let command = PROGRAM.map(Into::into).into();
    let new = New { name: Some(name.to_owned()), command, ..New::default() };
    Client::connect(pool)?.start(new).map(drop)
}
