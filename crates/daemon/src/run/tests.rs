//! A daemon for unit tests of what it does outside of turns. Its tmux server is in memory, and the test says what the
//! process table holds. Its clocks run with tokio's, which the test pauses: then time passes only while all tasks wait.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pool::clock::Reading;
use pool::lock::{LockTable, Ticket};
use pool::{Volatile, queue};
use process::identity::{Process, State};
use process::inspect::resources::Resources;
use process::inspect::tty::{InputState, ReadDetector, ShellState};
use process::tree::Background;
use process::tree::marker_scan::{MarkedProcess, MarkerScanner};
use protocol::job::{JOB_VERSION, Started};
use protocol::paths::{Env, prepare_dir};
use protocol::request::New;
use protocol::{
    Event, Incarnation, Lifecycle, MessageId, MessageState, OsBytes, PROMPT, Paths, ProcId, ServerId,
    SessionId, Timestamp, Token, Usage, millis,
};
use tempfile::TempDir;
use tmux::fake::Fake;
use tmux::{Answer, Device, Driver, PaneRef, PaneSnapshot};
use tokio::sync::mpsc;
use tokio::time::Instant;
use world::clock::Clock;
use world::processes::{Exits, Foreground, Processes, SessionProcesses};
use world::random::SystemRandom;
use world::tasks::{Blocking, Tasks};
use world::{BoxFuture, World};

use crate::config::Config;
use crate::decide::lock::grant_to_user;
use crate::decide::lock::tests::user_lock;
use crate::engine::tests::{create_session, open_database, queue_message};
use crate::engine::{Daemon, Engine, EngineHandle, LoadedConfig, Publisher, Turn, pane_of};
use crate::run::setup::{EngineMode, Site};
use crate::run::{open, setup, start_engine};

/// A daemon of which no loop runs.
pub(crate) struct TestDaemon {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) tmux: Arc<Fake>,
    /// Its state directory, until this is dropped.
    _dir: TempDir,
}

/// A session with an agent (Claude Code) that runs in tmux.
pub(crate) struct Running {
    pub(crate) id: SessionId,
    pub(crate) run: Incarnation,
    pub(crate) pane: PaneRef,
}

impl TestDaemon {
    /// Starts a daemon with an empty pool, within a test's runtime.
    pub(crate) fn start(processes: TestProcesses) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let home = Some(dir.path().to_owned());
        let paths = Paths::new(&Env { state_dir: Some(state.into()), home, ..Env::default() }).unwrap();
        for part in [&paths.state, &paths.run, &paths.sessions] {
            prepare_dir(part).unwrap();
        }
        let world = World {
            clock: Arc::new(TestClock(Instant::now())),
            random: Arc::new(SystemRandom),
            tasks: Arc::new(TestTasks),
            processes: Arc::new(processes),
        };
        let begun = open::begin(&paths, &world, open_database(&paths.database)).unwrap();
        let open::Begun { store, pool, database_was_missing, timeline, .. } = begun;
        let config = config(&paths);
        let (clock, started) = (Arc::clone(&world.clock), Instant::now());
        let reading = Reading { wall: pool.clock().read_at, awake_ms: pool.clock().awake_ms };
        let volatile = Volatile::new(LockTable::new(pool.epoch()), clock.now());
        let (publish, retention) = (Publisher::new(), config.journal_retention());
        let owned = (pool, store, volatile);
        let engine = Engine::new(owned, publish.clone(), retention, (clock, reading, started));
        let (queue, end) = start_engine(engine, EngineMode::Task, &world).unwrap();
        let (holders, held) = mpsc::unbounded_channel();
        drop((end, held));
        let engine = EngineHandle::new(queue, publish);
        let tmux = Arc::new(Fake::default());
        let mut device = Device::new("tmux", &paths.tmux_socket);
        (device.own, device.start_server) = (true, true);
        let site = Site {
            reaper_program: paths.state.join("reaper"),
            paths,
            config,
            world,
            tmux: tmux.clone(),
            device,
            polls_dirs: true,
        };
        let parts = setup::Parts { engine, holders, started, database_was_missing, timeline };
        Self { daemon: Arc::new(setup::daemon(site, parts).unwrap()), tmux, _dir: dir }
    }

    /// Runs `work` within a turn.
    pub(crate) async fn turn<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
    ) -> R {
        self.daemon.engine.turn(work).await.unwrap()
    }

    /// Creates a session with an agent, whose program has not begun.
    pub(crate) async fn create(&self, name: &str) -> SessionId {
        let agent = Some("claude".to_owned());
        let asked = New { name: Some(name.to_owned()), agent, ..New::default() };
        let settings = self.daemon.settings();
        self.turn(move |turn| create_session(turn, &settings, &asked)).await
    }

    /// Creates a session with an agent, and runs it.
    pub(crate) async fn run(&self, name: &str) -> Running {
        let id = self.create(name).await;
        let intended = self.daemon.incarnation(id).await.unwrap();
        let (session, pane) = self.tmux.add_program(name, init_of(id).pid).unwrap();
        self.tmux.change(pane, |pane| pane.tag = Some(intended.tag));
        let server = self.tmux.observe().await.unwrap().server;
        let process = ProcId { pid: server.pid, start: 1 };
        let run = Incarnation {
            server: Some(ServerId { process, started_at: server.started_at }),
            session: Some(session),
            pane: Some(pane),
            init: Some(init_of(id)),
            agent: Some(program_of(id)),
            ..intended
        };
        let incarnation = run.clone();
        self.turn(move |turn| turn.emit(Event::SessionLive { session: id, incarnation, recovered: false }))
            .await;
        let pane = pane_of(&run).unwrap();
        Running { id, run, pane }
    }

    /// Writes what the init of a starting session reports: it has claimed the job, and the program runs.
    pub(crate) fn report_start(&self, (id, run): (SessionId, &Incarnation)) {
        let (init, agent, at) = (init_of(id), program_of(id), run.started_at);
        let started = Started { version: JOB_VERSION, init, agent, at, unenforced: Vec::new() };
        let path = |what: &str| self.daemon.paths.run.join(format!("{}.{what}", run.tag));
        std::fs::write(path("taken"), serde_json::to_vec(&init).unwrap()).unwrap();
        std::fs::write(path("started"), serde_json::to_vec(&started).unwrap()).unwrap();
    }

    /// Queues a prompt, and records that it is being typed.
    pub(crate) async fn begin_typing(&self, to: SessionId, text: &str) -> (MessageId, Token) {
        let text = text.to_owned();
        let begin = move |turn: &mut Turn<'_>| {
            let id = queue_message(turn, to, (PROMPT, &text));
            let token = turn.volatile.locks.issue_token();
            let open = turn.pool().pending_message(to, id).unwrap();
            let typing = queue::begin_typing(&open, token, turn.now());
            turn.emit(typing);
            (id, token)
        };
        self.turn(begin).await
    }

    /// Moves a prompt to another state.
    pub(crate) async fn advance(&self, (session, id): (SessionId, MessageId), state: MessageState) {
        let advance = move |turn: &mut Turn<'_>| {
            let open = turn.pool().pending_message(session, id).unwrap();
            let event = queue::transition(&open, state, None, turn.now());
            turn.emit(event);
        };
        self.turn(advance).await;
    }

    /// Gives a user the lock of a session.
    pub(crate) async fn lock_for_user(&self, session: SessionId) {
        let ticket = Ticket(self.daemon.engine.ticket());
        let grant = move |turn: &mut Turn<'_>| {
            let granted = turn.volatile.locks.request_user_lock(session, ticket, "deploy", false).unwrap();
            grant_to_user(turn, session, (ticket, user_lock(granted.token)));
        };
        self.turn(grant).await;
    }

    /// Shows a recorded screen of the agent in a pane.
    pub(crate) fn show(&self, pane: PaneRef, name: &str) {
        let screens = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agents/tests/screens");
        let screen = std::fs::read(screens.join(format!("{name}.ansi"))).unwrap();
        let done = PaneSnapshot::refused(Answer::Done);
        self.tmux.show(pane.pane, PaneSnapshot { screen, cursor_shown: true, bracketed: Some(true), ..done });
    }

    /// True if tmux was called by this name.
    pub(crate) fn has_called(&self, name: &str) -> bool {
        self.tmux.calls().contains(&name)
    }

    pub(crate) async fn lifecycle(&self, session: SessionId) -> Lifecycle {
        self.turn(move |turn| turn.pool().session(session).unwrap().lifecycle).await
    }
}

/// Returns the configuration: the default one, without control groups.
fn config(paths: &Paths) -> LoadedConfig {
    let config = Config::parse("[pool]\ncgroup = 'off'").unwrap();
    let settings = Arc::new(config.settings(&paths.sessions, 0o022).unwrap());
    let daemon = config.daemon_settings().unwrap();
    LoadedConfig { config, settings, daemon }
}

fn process(pid: u32) -> ProcId {
    ProcId { pid, start: 1 }
}

fn pid_of(id: SessionId) -> u32 {
    u32::try_from(id.0).unwrap() * 10
}

/// The init of a session.
fn init_of(id: SessionId) -> ProcId {
    process(5000 + pid_of(id))
}

/// The program of a session.
fn program_of(id: SessionId) -> ProcId {
    process(5001 + pid_of(id))
}

/// Clocks that run with tokio's.
struct TestClock(Instant);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_700_000_000_000 + millis(self.awake()))
    }

    fn awake(&self) -> Duration {
        Duration::from_secs(1000) + self.0.elapsed()
    }
}

/// Tasks of tokio's runtime. Blocking work runs at once: a paused clock would not wait for a thread.
struct TestTasks;

impl Tasks for TestTasks {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }

    fn block(&self, work: Blocking) {
        work();
    }
}

/// The process table of a test. Every process lives, and only what the test says is known of it.
#[derive(Default)]
pub(crate) struct TestProcesses {
    /// The parent of each process that can be read.
    pub(crate) parents: BTreeMap<u32, u32>,
    /// The work of each program in the background; `None` if it cannot be read.
    pub(crate) background: Option<Vec<Background>>,
    /// The state of each shell.
    pub(crate) shell: Option<ShellState>,
    /// The states of the input, one a look.
    pub(crate) inputs: Mutex<VecDeque<InputState>>,
    /// The process that listens at a socket.
    pub(crate) listener: Option<u32>,
}

impl Processes for TestProcesses {
    fn me(&self) -> io::Result<ProcId> {
        Ok(process(2))
    }

    fn boot_id(&self) -> Option<String> {
        Some("boot".to_owned())
    }

    fn read(&self, pid: u32) -> io::Result<Option<Process>> {
        let ppid = *self.parents.get(&pid).ok_or(io::ErrorKind::PermissionDenied)?;
        let (id, state, comm) = (process(pid), State::Running, OsBytes::from("program"));
        Ok(Some(Process { id, ppid, pgid: pid, sid: pid, uid: 0, tpgid: None, state, comm }))
    }

    fn identify(&self, pid: u32) -> Option<ProcId> {
        Some(process(pid))
    }

    fn has_exited(&self, _: ProcId) -> bool {
        false
    }

    fn watch_exits(&self) -> io::Result<Box<dyn Exits>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn descendants(&self, _: ProcId) -> Vec<Process> {
        Vec::new()
    }

    fn background(&self, _: (ProcId, ProcId), _: bool) -> Option<Vec<Background>> {
        self.background.clone()
    }

    fn usage(&self, sessions: &[SessionProcesses]) -> Vec<Option<Usage>> {
        sessions.iter().map(|_| None).collect()
    }

    fn foreground(&self, _: u32) -> Option<Foreground> {
        None
    }

    fn argv(&self, _: ProcId) -> Option<Vec<OsBytes>> {
        None
    }

    fn current_dir(&self, _: u32) -> Option<OsBytes> {
        None
    }

    fn unread_input(&self, _: ProcId) -> Option<u32> {
        None
    }

    fn shell_state(&self, _: ProcId) -> Option<ShellState> {
        self.shell
    }

    fn arm_read_detector(&self, _: ProcId) -> Option<ReadDetector> {
        Some(ReadDetector::default())
    }

    fn input_state(&self, _: ProcId, _: ReadDetector, _: bool) -> Option<InputState> {
        self.inputs.lock().unwrap().pop_front()
    }

    fn resources(&self, _: ProcId) -> Option<Resources> {
        None
    }

    fn available_memory(&self) -> Option<u64> {
        None
    }

    fn total_memory(&self) -> Option<u64> {
        None
    }

    fn memory_pressure(&self) -> Option<u32> {
        None
    }

    fn disk_use(&self, _: &Path) -> Option<(u64, u64)> {
        None
    }

    fn free_disk(&self, _: &Path) -> Option<u64> {
        None
    }

    fn terminals(&self) -> Option<(u64, u64)> {
        None
    }

    fn marked(&self, _: &mut MarkerScanner) -> io::Result<Vec<MarkedProcess>> {
        Ok(Vec::new())
    }

    fn has_log_writer(&self, _: &Path) -> bool {
        false
    }

    fn listening_path(&self, process: ProcId, _: &Path) -> Option<String> {
        self.listener.filter(|pid| *pid == process.pid).map(|_| "/socket".to_owned())
    }
}
