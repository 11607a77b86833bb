//! A single `poold`, as a child of the benchmark, for its memory, its kill and its restart.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use protocol::blocking::Connection;
use protocol::reply::Status;
use protocol::{Hello, Request, Response, Role};

use crate::child::Spawned;
use crate::pool::{self, Pool};
use crate::usage::{self, Memory};

/// Time for it to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running poold.
pub(super) struct Daemon {
    process: Spawned,
    connection: Connection,
    /// Time from its start until its first answer.
    pub(super) took: Duration,
}

impl Daemon {
    /// Starts it, and waits for its first answer.
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
    pub(super) fn kill(mut self) -> Result<()> {
        self.process.kill()
    }

    pub(super) fn memory(&self) -> Result<Memory> {
        usage::memory(self.process.id()?).context("this system does not report a process's memory")
    }

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
