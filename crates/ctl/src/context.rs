//! What a command knows before it does anything: which pool, how to show, how long to wait.

use std::path::PathBuf;
use std::time::Duration;

use protocol::socket::{Env, Paths};
use protocol::{SessionRef, Token};

use crate::cli::{Colour, Global, Limit};
use crate::client::Client;
use crate::error::Error;
use crate::show::out::{self, Style};
use crate::show::progress::Progress;

/// How long an answer may take where nobody says, as the contract has it.
const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// The surroundings of one command.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// Where the pool is.
    pub paths: Paths,
    /// How output looks.
    pub style: Style,
    /// Say more on standard error.
    pub verbose: bool,
    /// The token that `poolctl lock` gave to what it runs.
    pub lock: Option<Token>,
    limit: Option<Limit>,
    current: Option<String>,
}

impl Context {
    /// From flags and environment.
    ///
    /// # Errors
    /// A pool, path or token that is none.
    pub(crate) fn new(global: &Global) -> Result<Self, Error> {
        let mut env = Env::from_environment();
        if let Some(pool) = &global.pool {
            env.pool = Some(pool.clone());
        }
        if let Some(socket) = &global.socket {
            env.socket = Some(absolute(socket)?.into());
        }
        let paths = Paths::new(&env).map_err(|error| Error::usage(error.to_string()))?;
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let token = variable("POOL_LOCK_TOKEN").map(|token| token.parse::<Token>());
        let lock = token.transpose().map_err(|error| Error::usage(format!("POOL_LOCK_TOKEN: {error}")))?;
        Ok(Self {
            paths,
            style: style(global, variable("NO_COLOR").is_some()),
            verbose: global.verbose > 0,
            lock,
            limit: global.timeout,
            current: variable("POOL_SESSION"),
        })
    }

    /// A client that gives up in time.
    #[must_use]
    pub(crate) fn client(&self) -> Client {
        self.client_within(Duration::ZERO)
    }

    /// The same for what is known to take this much longer.
    #[must_use]
    pub(crate) fn client_within(&self, longer: Duration) -> Client {
        Client::new(self, self.limit.unwrap_or(Limit(Some(DEFAULT_LIMIT.saturating_add(longer)))).0)
    }

    /// A client for what may have to wait for a slot first, and takes this much longer besides.
    #[must_use]
    pub(crate) fn client_for_slot(&self, wait_slot: Option<Duration>, longer: Duration) -> Client {
        if waits(wait_slot) { self.patient_client() } else { self.client_within(longer) }
    }

    /// A client that waits for ever unless it was told otherwise.
    #[must_use]
    pub(crate) fn patient_client(&self) -> Client {
        Client::new(self, self.waiting_limit())
    }

    /// How long a verb that waits or follows may do so.
    #[must_use]
    pub(crate) fn waiting_limit(&self) -> Option<Duration> {
        self.limit.and_then(|limit| limit.0)
    }

    /// How long anything else may take; `None` is for ever.
    #[must_use]
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit.unwrap_or(Limit(Some(DEFAULT_LIMIT))).0
    }

    /// The session that a user means; `-` is the one this shell runs in.
    ///
    /// # Errors
    /// `-` outside any session.
    pub(crate) fn session(&self, text: &str) -> Result<SessionRef, Error> {
        if text != "-" {
            return Ok(SessionRef(text.to_owned()));
        }
        let current = self.current.clone().map(SessionRef);
        current.ok_or_else(|| {
            Error::usage("- is the session this shell runs in, and it runs in none (POOL_SESSION is not set)")
        })
    }

    /// Who acts: the session that this shell runs in, or a person.
    #[must_use]
    pub(crate) fn origin(&self) -> String {
        self.current.as_ref().map_or_else(|| "cli".to_owned(), |session| format!("session:{session}"))
    }

    /// Shows on a terminal that something takes long, until it is dropped.
    #[must_use]
    pub(crate) fn progress(&self, what: &str) -> Progress {
        Progress::start(what, self.style.quiet || self.style.json)
    }

    /// The same of what changes meanwhile.
    #[must_use]
    pub(crate) fn progress_of(&self, what: impl FnMut() -> String + Send + 'static) -> Progress {
        Progress::follow(what, self.style.quiet || self.style.json)
    }

    /// Prints a line for people: not in JSON, not when quiet.
    ///
    /// # Errors
    /// As [`out::line`].
    pub(crate) fn say(&self, line: &str) -> Result<(), Error> {
        if self.style.json || self.style.quiet { Ok(()) } else { out::line(line) }
    }

    /// A remark on standard error, where more was asked for.
    pub(crate) fn remark(&self, text: &str) {
        if self.verbose {
            out::note(text);
        }
    }
}

/// Whether it is a wait for a slot that has its own end.
fn waits(wait_slot: Option<Duration>) -> bool {
    wait_slot.is_some_and(|wait| !wait.is_zero())
}

/// The path seen from this directory.
///
/// # Errors
/// There is no current directory, or the path is empty.
pub(crate) fn absolute(path: &std::path::Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|error| Error::usage(format!("{}: {error}", path.display())))
}

fn style(global: &Global, no_color: bool) -> Style {
    let terminal = out::is_terminal();
    let colour = match global.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => terminal && !no_color,
    };
    Style { json: global.json, quiet: global.quiet, terminal, colour }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_for_a_slot_outlasts_the_usual_time() {
        assert!(waits(Some(Duration::from_millis(1))));
        assert!(!waits(None) && !waits(Some(Duration::ZERO)));
    }
}
