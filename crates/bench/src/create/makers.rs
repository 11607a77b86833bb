//! The ways of making a session that are compared.

use anyhow::{Result, ensure};
use protocol::request::{New, Remove};
use protocol::{Lifecycle, Request, Response, SessionRef};

use super::bare::{Bare, PROGRAM};
use super::{AT_A_TIME, many};
use crate::floors::Client;
use crate::pool::Pool;
use crate::report;

/// A way of making a session.
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

/// A pool and a bare server, with as many sessions each.
pub(super) struct Makers<'a> {
    pool: &'a Pool,
    bare: Bare<'a>,
}

impl<'a> Makers<'a> {
    /// Makes the sessions that are to be there already.
    ///
    /// # Errors
    /// One is not made.
    pub(super) fn new(pool: &'a Pool, existing: usize) -> Result<Self> {
        report(&format!("making {existing} sessions on each of two servers"));
        fill(pool, existing)?;
        Ok(Self { pool, bare: Bare::start(pool, existing)? })
    }

    /// Makes a session.
    ///
    /// # Errors
    /// It is not made, or does not run.
    pub(super) fn make(&self, maker: Maker, name: &str) -> Result<()> {
        match maker {
            Maker::Bare => self.bare.make(name),
            Maker::Pool => ask(self.pool, name),
            Maker::Poolctl => self.pool.new_session(name, &PROGRAM),
        }
    }

    /// Removes sessions.
    ///
    /// # Errors
    /// One stays.
    pub(super) fn remove(&self, maker: Maker, names: &[String]) -> Result<()> {
        if maker == Maker::Bare {
            return self.bare.remove(names);
        }
        let remove = |name: &str| {
            let session = SessionRef(name.to_owned());
            let (keep_tmux, force, purge, archive) = (false, true, true, false);
            let remove = Remove { session, keep_tmux, force, purge, archive };
            Client::connect(self.pool)?.call(Request::Remove(remove)).map(drop)
        };
        many(names, AT_A_TIME, remove).map(drop)
    }

    /// Ends the bare server; the pool is left.
    ///
    /// # Errors
    /// It does not end.
    pub(super) fn end(&self) -> Result<()> {
        self.bare.end()
    }
}

/// Makes so many sessions.
///
/// # Errors
/// One is not made.
pub(super) fn fill(pool: &Pool, count: usize) -> Result<()> {
    let names: Vec<String> = (0..count).map(|n| format!("old-{n}")).collect();
    many(&names, AT_A_TIME, |name| ask(pool, name)).map(drop)
}

/// Asks the pool for a session, which must run when it answers.
fn ask(pool: &Pool, name: &str) -> Result<()> {
    let command = PROGRAM.map(Into::into).into();
    let new = New { name: Some(name.to_owned()), command, ..New::default() };
    let Response::Session(view) = Client::connect(pool)?.call(Request::New(Box::new(new)))? else {
        anyhow::bail!("poold answers something else than a session");
    };
    ensure!(view.session.lifecycle == Lifecycle::Live, "{name} is {:?}", view.session.lifecycle);
    Ok(())
}
