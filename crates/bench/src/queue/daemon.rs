//! `poold` by itself, as a process of the benchmark: for what it takes alone, and for its end and new start.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use protocol::blocking::Connection;
use protocol::reply::Status;
use protocol::{Hello, Request, Response, Role};

use crate::child::Spawned;
use crate::pool::{self, Pool};
use crate::usage::{self, Memory};

/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running one.
pub(super) struct Daemon {
    process: Spawned,
    connection: Connection,
    /// From its start until it answered.
    pub(super) took: Duration,
}

impl Daemon {
    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    /// It does not start or answer.
    pub(super) fn start(pool: &Pool) -> Result<Self> {
        let (socket, log) = (pool.socket(), pool.dir().join("poold.out"));
        let began = Instant::now();
        let process = Spawned::server(&mut pool.command("poold"), &socket, &log)?;
        let hello = Hello::new(Role::Client, pool::NAME, "bench");
        let (connection, _welcome) = Connection::connect_within(&socket, &hello, Some(PATIENCE))?;
        let mut daemon = Self { process, connection, took: Duration::ZERO };
        daemon.ask(Request::Ping)?;
        Ok(Self { took: began.elapsed(), ..daemon })
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn kill(mut self) -> Result<()> {
        self.process.kill()
    }

    /// Its memory.
    ///
    /// # Errors
    /// The system does not tell.
    pub(super) fn memory(&self) -> Result<Memory> {
        usage::memory(self.process.id()?).context("this system does not tell how much memory a process takes")
    }

    /// Its status.
    ///
    /// # Errors
    /// No answer.
    pub(super) fn status(&mut self) -> Result<Box<Status>> {
        match self.ask(Request::Status)? {
            Response::Status(status) => Ok(status),
            other => bail!("poold answers {other:?}"),
        }
    }

    fn ask(&mut self, request: Request) -> Result<Response> {
        match self.connection.call(None, None, request)? {
            Ok(response) => Ok(response),
            Err(refusal) => bail!("{refusal}"),
        }
    }
}
