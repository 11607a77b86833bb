//! The settings of the core, as derived from the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use agents::screen::{Patterns, Screen, ScreenReading};
use agents::{Adapter, Confirm, screen};
use protocol::policy::{Naming, OnFailedTurn, OnInterrupted, RestartPolicy};
use protocol::reap::{Action, Leftovers, Rule};
use protocol::worker::WorkerSpec;
use protocol::{InDoubt, Limits, OsBytes, Size, Timestamp, env};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRules {
    /// Maximum number of pending messages in a session's queue.
    pub max_messages: u64,
    /// Maximum total size of their bodies in bytes.
    pub max_bytes: u64,
    /// Maximum number of pending messages in all queues.
    pub pool_max_messages: u64,
    /// Maximum total size of their bodies in bytes.
    pub pool_max_bytes: u64,
    /// Maximum number of attempts per message.
    pub max_attempts: u32,
    /// Time for which a claim holds without a heartbeat.
    pub lease: Duration,
    /// Pause before the second attempt; doubles with each further one.
    pub retry_backoff: Duration,
    /// Failures in a row after which a kind is held back; 0 for never.
    pub breaker_failures: u32,
    /// Time before the first probe; doubles with each failed one.
    pub breaker_pause: Duration,
    /// Time for which a kind of a session's messages may stand still; none for any.
    pub stuck_after: Option<Duration>,
    /// The treatment of messages in doubt that have none of their own.
    pub in_doubt: InDoubt,
    /// Retention of done, cancelled and expired messages.
    pub keep_done: Duration,
    /// Retention of dead messages.
    pub keep_dead: Duration,
    /// Maximum number of messages kept per session and list, dead and others.
    pub keep_count: u64,
}

impl Default for QueueRules {
    fn default() -> Self {
        Self {
            max_messages: 10_000,
            max_bytes: 64 << 20,
            pool_max_messages: 1_000_000,
            pool_max_bytes: 4 << 30,
            max_attempts: 5,
            lease: Duration::from_secs(60),
            retry_backoff: Duration::from_secs(1),
            breaker_failures: 3,
            breaker_pause: Duration::from_secs(60),
            stuck_after: Some(Duration::from_secs(10 * 60)),
            in_doubt: InDoubt::Hold,
            keep_done: Duration::from_secs(24 * 3600),
            keep_dead: Duration::from_secs(30 * 24 * 3600),
            keep_count: 100_000,
        }
    }
}

/// The settings of the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Number of slots: maximum number of running incarnations.
    pub max_sessions: usize,
    /// The way in which names are generated.
    pub naming: Naming,
    /// Size of a new terminal.
    pub size: Size,
    /// The directory that has a directory for each session, named by its id.
    pub sessions_dir: PathBuf,
    /// The agent kinds.
    pub agents: BTreeMap<String, Agent>,
    pub queue: QueueRules,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
    /// File mode creation mask of sessions' programs.
    pub umask: u32,
    /// The part of a caller's environment that is passed on.
    pub env: EnvFilter,
    /// The foreign tmux sessions that are adopted without being named.
    pub adoption: Adoption,
    /// The rules for automatic starts.
    pub restart: RestartRules,
    /// Idle time after which a session is parked, if that loses nothing; none for never.
    pub idle_timeout: Option<Duration>,
    /// Silence after which a program counts as idle.
    pub idle_quiet: Duration,
    /// Minimum time after an unconfirmed message before silence counts as idle.
    pub idle_settle: Duration,
    /// The limits that control groups can enforce now.
    pub enforceable: EnforceableLimits,
    pub reap: ReapRules,
    /// Time for which prompts wait after an attached client typed.
    pub typing_pause: Duration,
    /// Time after its start from which on an agent that reports nothing counts as ready.
    pub ready_limit: Duration,
    /// Maximum number of messages that the pool's workers have in work at a time.
    pub max_processes: usize,
    /// The workers of the configuration, by name.
    pub workers: BTreeMap<String, WorkerSettings>,
}

/// A worker of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    pub spec: WorkerSpec,
    /// The working directory; that of its session if absent.
    pub cwd: Option<OsBytes>,
    pub env: Vec<(OsBytes, OsBytes)>,
    /// Resource limits of its host with all handlers.
    pub limits: Limits,
    /// See [`protocol::policy::Policy::max_restarts`].
    pub max_restarts: Option<u32>,
}

impl Settings {
    /// The table of a session's agent kind; that of a bare command if there is none.
    pub fn agent_of(&self, session: &protocol::Session) -> &Agent {
        self.agents.get(&session.spec.agent).unwrap_or(&BARE)
    }
}

/// A filter of environment variables by name. A pattern may end with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvFilter {
    /// Only variables that match one of these are passed.
    pub pass: Vec<String>,
    /// Variables that match one of these are not passed.
    pub drop: Vec<String>,
}

impl Default for EnvFilter {
    fn default() -> Self {
        Self { pass: vec!["*".to_owned()], drop: Vec::new() }
    }
}

impl EnvFilter {
    /// True if a variable with this name is passed.
    pub fn passes(&self, name: &[u8]) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| env::matches(pattern, name));
        any(&self.pass) && !any(&self.drop) && !env::is_stripped(name)
    }
}

/// The agent kind of a bare command: prompts are typed into it at once, except while it shows a full-screen program.
static BARE: LazyLock<Agent> = LazyLock::new(|| Agent { waits_for_screen: true, ..Agent::default() });

/// The thresholds and actions of the reaper's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReapRules {
    /// Silence after which a worker is stale, whatever it holds.
    pub stale_worker: Duration,
    /// Silence after which an agent with a message is stale.
    pub stale_agent: Duration,
    /// Standstill after which a session with something to do hangs.
    pub hung: Duration,
    /// Time without anything to do after which a session is idle.
    pub idle_session: Duration,
    /// Share of the machine's memory, in hundredths of a percent, whose use is a shortage; none for never.
    pub host_memory: Option<u32>,
    /// Share of time waiting for memory, in hundredths of a percent, that is a shortage; none for never.
    pub host_memory_pressure: Option<u32>,
    /// Share of the state directory's disk, in hundredths of a percent, whose use is a shortage; none for never.
    pub host_disk: Option<u32>,
    /// Time between the first KILL and giving up, in milliseconds.
    pub verify_ms: u64,
    /// Maximum number of kills by rules per minute.
    pub max_kills_per_minute: u32,
    /// Actions other than the default ones.
    pub actions: BTreeMap<Rule, Action>,
}

impl Default for ReapRules {
    fn default() -> Self {
        Self {
            stale_worker: Duration::from_secs(5 * 60),
            stale_agent: Duration::from_secs(30 * 60),
            hung: Duration::from_secs(10 * 60),
            idle_session: Duration::from_secs(15 * 60),
            host_memory: Some(9000),
            host_memory_pressure: None,
            host_disk: Some(9500),
            verify_ms: 5000,
            max_kills_per_minute: 30,
            actions: BTreeMap::new(),
        }
    }
}

/// The limits that control groups can enforce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnforceableLimits {
    pub memory: bool,
    /// Number of processes and threads.
    pub tasks: bool,
    /// Share of the processors.
    pub cpu: bool,
}

/// The rules for automatic starts: after an end, by policy, and to work messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartRules {
    /// The policy of sessions without one of their own.
    pub policy: RestartPolicy,
    /// Maximum number of starts within the window.
    pub max: u32,
    pub window: Duration,
    /// Pause before the first start; doubles with each failure in a row.
    pub backoff: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
}

impl Default for RestartRules {
    fn default() -> Self {
        Self {
            policy: RestartPolicy::No,
            max: 10,
            window: Duration::from_secs(600),
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
        }
    }
}

/// The foreign tmux sessions that are adopted without being named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adoption {
    /// None.
    Never,
    /// Sessions whose name has this prefix.
    Prefix(String),
    All,
}

/// An agent kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agent {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables added to the environment.
    pub env: BTreeMap<String, String>,
    /// True if it may see which tmux it runs in.
    pub see_tmux: bool,
    /// Arguments that begin a conversation; `{conversation}` is its id.
    pub start_args: Vec<String>,
    /// Arguments that resume a conversation; empty if the agent cannot.
    pub resume_args: Vec<String>,
    /// True if it may be parked although it cannot resume.
    pub parkable: bool,
    pub limits: Limits,
    /// Size of its context window in tokens.
    pub context_limit: Option<u64>,
    /// Actions of the reaper's rules on its sessions.
    pub reap: BTreeMap<Rule, Action>,
    /// The treatment of processes that it leaves behind.
    pub leftovers: Leftovers,
    /// The adapter that translates its hooks and its screen.
    pub adapter: Adapter,
    /// The description of its screen, if the adapter does not know it.
    pub screen: Patterns,
    /// The way in which it confirms a prompt.
    pub confirm: Confirm,
    /// True if its hooks are wired when it is started.
    pub hooks: bool,
    /// Time for which its hook waits for an answer to a permission request; zero for not at all.
    pub approve_wait: Duration,
    /// The treatment of a prompt whose turn is interrupted.
    pub on_interrupted: OnInterrupted,
    /// The treatment of a prompt whose turn fails by an outage of the service.
    pub on_failed_turn: OnFailedTurn,
    /// Keys that answer a dialog at its start or about its usage limit, by the dialog's name. Any other
    /// dialog waits for a person.
    pub dialogs: BTreeMap<String, Vec<String>>,
    /// True if prompts wait while it shows a full-screen program.
    pub waits_for_screen: bool,
    /// True if each use of a tool becomes a message of kind `observation`.
    pub observations: bool,
    /// True if the end of each turn becomes a message of kind `summarize`.
    pub summaries: bool,
    /// The text that tells it to continue after a usage limit or an outage; none to tell it nothing.
    pub go_on: Option<String>,
    /// Its own command for a fresh context; none if it has none.
    pub clear: Option<String>,
    /// Regular expressions of the lines of its output that count as errors.
    pub error_patterns: Vec<String>,
}

impl Agent {
    /// True if the pool chooses its conversation: its id is among the arguments of a start.
    pub fn is_told_its_conversation(&self) -> bool {
        self.start_args.iter().any(|word| word.contains("{conversation}"))
    }

    /// True if the text is its own command for a fresh context.
    pub fn is_clear(&self, text: &[u8]) -> bool {
        self.clear.as_deref().is_some_and(|clear| text.trim_ascii() == clear.as_bytes())
    }

    /// True if the pool knows where on its screen prompts are typed.
    pub fn shows_composer(&self) -> bool {
        self.adapter.knows_screen() || self.screen.has_composer()
    }

    /// True if its screen is read by a description, built in or configured.
    pub fn is_described(&self) -> bool {
        !self.adapter.knows_screen()
    }

    /// True if the pool knows how its screen looks while it works.
    pub fn shows_work(&self) -> bool {
        self.adapter.knows_screen() || self.screen.works.is_some()
    }

    /// True if it requests bracketed pastes from its terminal before it accepts any. A described agent has
    /// to.
    pub fn asks_for_pastes(&self) -> bool {
        self.adapter.asks_for_pastes() || self.screen.has_composer()
    }

    /// Reads its screen. `cursor` is the column and row of the terminal's cursor, from 0.
    pub fn read_screen(&self, screen: &Screen, cursor: (u16, u16), at: Timestamp) -> ScreenReading {
        let adapter = self.adapter;
        if !adapter.knows_screen() {
            return self.screen.read(screen, cursor.1, at);
        }
        ScreenReading {
            at,
            composer: screen::composer(adapter, screen, cursor),
            dialog: screen::dialog(adapter, screen),
            works: screen::is_working(adapter, screen),
            background: screen::background(adapter, screen),
        }
    }
}
