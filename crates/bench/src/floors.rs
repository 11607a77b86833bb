//! The floors of the way from a change in tmux to its event: what each part of it costs at least.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use protocol::blocking::Connection;
use protocol::request::Label;
use protocol::tmux::Means;
use protocol::{Hello, OpId, Request, Response, Role, SessionId};
use tmux::Device;
use tmux::live::{Ask, Heard, Live};
use tokio::runtime::{Builder, Runtime};

use crate::pool::{self, Pool};

/// Longer than this nothing here takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is appended: a page.
const PAGE: [u8; 4096] = [7; 4096];

/// A control connection in tmux's own protocol, as a watcher has it.
pub(crate) struct Control {
    runtime: Runtime,
    live: Live,
}

impl Control {
    /// Connects to the pool's server.
    ///
    /// # Errors
    /// This server cannot be spoken to in that way.
    pub(crate) fn open(pool: &Pool) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let device = Device { own: true, ..Device::new("tmux", pool.tmux_socket()) };
        let live = runtime.block_on(Live::open(&device, Means::Native))?;
        Ok(Self { runtime, live })
    }

    /// The time of a round trip.
    ///
    /// # Errors
    /// No answer.
    pub(crate) fn round_trip(&mut self) -> Result<Duration> {
        // What was noticed since the last time comes before the first answer.
        self.ask()?;
        let began = Instant::now();
        self.ask()?;
        Ok(began.elapsed())
    }

    fn ask(&mut self) -> Result<()> {
        self.live.ask(Ask::Alive);
        let answered = async {
            while !matches!(self.live.hear().await?, Heard::Read(Ask::Alive, _)) {}
            anyhow::Ok(())
        };
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, answered).await })?
    }
}

/// From the signal that ends a process until its pidfd (on macOS: kqueue) tells.
///
/// # Errors
/// It is not started or does not end.
pub(crate) fn exit_of_a_process() -> Result<Duration> {
    let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().context("sleep")?;
    let killed = kill(child.id());
    if killed.is_err() {
        child.kill()?;
    }
    child.wait()?;
    killed
}

fn kill(pid: u32) -> Result<Duration> {
    let handle = identity::identify(pid)?.map(Handle::open).transpose()?.flatten();
    let handle = handle.context("sleep has ended")?;
    let began = Instant::now();
    handle.signal(Signal::SIGKILL)?;
    ensure!(handle.wait(PATIENCE)?, "sleep does not end");
    Ok(began.elapsed())
}

/// A file to which pages are appended.
pub(crate) struct Journal(File);

impl Journal {
    /// Beside the pool's database, so that it is the same disk.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn create(pool: &Pool) -> Result<Self> {
        Ok(Self(File::create(pool.state().join("bench.journal"))?))
    }

    /// Until a page is on disk.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn append(&mut self) -> Result<Duration> {
        let began = Instant::now();
        self.0.write_all(&PAGE)?;
        self.0.sync_data()?;
        Ok(began.elapsed())
    }
}

/// A client of the pool.
pub(crate) struct Client {
    connection: Connection,
}

/// Of all clients.
static CALLS: AtomicU64 = AtomicU64::new(1);

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// There is no daemon.
    pub(crate) fn connect(pool: &Pool) -> Result<Self> {
        let hello = Hello::new(Role::Client, pool::NAME, "bench");
        let (connection, _welcome) = Connection::connect(&pool.socket(), &hello)?;
        Ok(Self { connection })
    }

    /// Asks.
    ///
    /// # Errors
    /// A refusal, or no answer.
    pub(crate) fn call(&mut self, request: Request) -> Result<Response> {
        // Unique in this pool, which nobody else uses.
        let op = OpId::Random(u128::from(CALLS.fetch_add(1, Ordering::Relaxed)).to_be_bytes());
        match self.connection.call(Some(op), None, request)? {
            Ok(response) => Ok(response),
            Err(refusal) => bail!("{refusal}"),
        }
    }

    /// Changes a label: the smallest request that is committed before it is answered.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub(crate) fn commit(&mut self, session: SessionId) -> Result<Duration> {
        let set = BTreeMap::from([("bench".to_owned(), CALLS.load(Ordering::Relaxed).to_string())]);
        let label = Label { session: session.into(), set, remove: Vec::new() };
        let began = Instant::now();
        self.call(Request::Label(label))?;
        Ok(began.elapsed())
    }
}
