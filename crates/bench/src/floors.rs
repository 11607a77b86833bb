//! Floors of the latency from a change in tmux to its event: the minimum cost of each step.

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
use protocol::reply::Status;
use protocol::request::{Label, New, Remove};
use protocol::tmux::TmuxTransport;
use protocol::{Hello, Lifecycle, OpId, Request, Response, Role, Session, SessionId, SessionRef};
use tmux::Device;
use tmux::live::{Live, LiveEvent, Scope};
use tokio::runtime::{Builder, Runtime};

use crate::pool::{self, Pool};

/// Time limit of every step.
const PATIENCE: Duration = Duration::from_secs(10);
/// Appended data: one page.
const PAGE: [u8; 4096] = [7; 4096];

/// A native control connection, as the watcher's.
pub(crate) struct Control {
    runtime: Runtime,
    live: Live,
}

impl Control {
    /// Connects to the pool's server.
    pub(crate) fn open(pool: &Pool) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let device = Device { own: true, ..Device::new("tmux", pool.tmux_socket()) };
        let live = runtime.block_on(Live::open(&device, TmuxTransport::Native))?;
        Ok(Self { runtime, live })
    }

    /// Measures a round trip.
    pub(crate) fn round_trip(&mut self) -> Result<Duration> {
        // Notifications since the last call come before the first answer.
        self.ask()?;
        let began = Instant::now();
        self.ask()?;
        Ok(began.elapsed())
    }

    fn ask(&mut self) -> Result<()> {
        self.live.request(Scope::Alive);
        let answered = async {
            while !matches!(self.live.next().await?, LiveEvent::Read(Scope::Alive, _)) {}
            anyhow::Ok(())
        };
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, answered).await })?
    }
}

/// Measures the time from the signal that ends a process until its pidfd (on macOS: kqueue) reports the
/// exit.
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
    let handle = handle.context("sleep exited")?;
    let began = Instant::now();
    handle.signal(Signal::SIGKILL)?;
    ensure!(handle.wait(PATIENCE)?, "sleep does not exit");
    Ok(began.elapsed())
}

/// A file that pages are appended to.
pub(crate) struct Journal(File);

impl Journal {
    /// Creates it beside the pool's database, hence on the same disk.
    pub(crate) fn create(pool: &Pool) -> Result<Self> {
        Ok(Self(File::create(pool.state().join("bench.journal"))?))
    }

    /// Measures appending and syncing a page.
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

/// Number of calls of all clients.
static CALLS: AtomicU64 = AtomicU64::new(1);

impl Client {
    /// Connects as a client.
    pub(crate) fn connect(pool: &Pool) -> Result<Self> {
        let hello = Hello::new(Role::Client, pool::NAME, "bench");
        let (connection, _welcome) = Connection::connect(&pool.socket(), &hello)?;
        Ok(Self { connection })
    }

    /// Sends a request, and returns its response.
    pub(crate) fn call(&mut self, request: Request) -> Result<Response> {
        // Unique in this pool, which has no other users.
        let op = OpId::Random(u128::from(CALLS.fetch_add(1, Ordering::Relaxed)).to_be_bytes());
        match self.connection.call(Some(op), None, request)? {
            Ok(response) => Ok(response),
            Err(refusal) => bail!("{refusal}"),
        }
    }

    pub(crate) fn status(&mut self) -> Result<Box<Status>> {
        match self.call(Request::Status)? {
            Response::Status(status) => Ok(status),
            other => bail!("poold answers {other:?}"),
        }
    }

    /// Sends a request that is answered by a session.
    pub(crate) fn session(&mut self, request: Request) -> Result<Session> {
        match self.call(request)? {
            Response::Session(view) => Ok(view.session),
            other => bail!("poold answers {other:?}"),
        }
    }

    pub(crate) fn start(&mut self, new: New) -> Result<Session> {
        let session = self.session(Request::New(Box::new(new)))?;
        ensure!(session.lifecycle == Lifecycle::Live, "{} is {:?}", session.name, session.lifecycle);
        Ok(session)
    }

    /// Removes a session, with all that it has.
    pub(crate) fn remove(&mut self, name: &str) -> Result<()> {
        let session = SessionRef(name.to_owned());
        let (keep_tmux, force, purge, archive) = (false, true, true, false);
        let remove = Remove { session, keep_tmux, force, purge, archive, only_ended: false };
        self.call(Request::Remove(remove)).map(drop)
    }

    /// Measures changing a label: the smallest request that is committed before its reply.
    pub(crate) fn commit(&mut self, session: SessionId) -> Result<Duration> {
        let set = BTreeMap::from([("bench".to_owned(), CALLS.load(Ordering::Relaxed).to_string())]);
        let label = Label { session: session.into(), set, remove: Vec::new() };
        let began = Instant::now();
        self.call(Request::Label(label))?;
        Ok(began.elapsed())
    }
}
