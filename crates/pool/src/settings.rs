//! What the configuration tells the core.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use agents::screen::{self, Patterns, Screen, ScreenState};
use agents::{Adapter, Confirm};
use protocol::Timestamp;
use protocol::env;
use protocol::limits::Limits;
use protocol::policy::RestartPolicy;
use protocol::reap::Leftovers;
use protocol::reap::{Action, Rule};
use protocol::session::Size;

use crate::activity::Look;

/// What the configuration tells the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How many sessions may have a running incarnation.
    pub max_sessions: usize,
    /// How names are made where none is given.
    pub naming: Naming,
    /// Size of a new terminal.
    pub size: Size,
    /// Below it, each session has a directory named by its id.
    pub sessions_dir: PathBuf,
    /// Agent kinds.
    pub agents: BTreeMap<String, Agent>,
    /// Queues.
    pub queue: crate::queue::Rules,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
    /// File mode creation mask of what sessions run.
    pub umask: u32,
    /// What of a caller's environment goes along.
    pub env: Passing,
    /// Which foreign tmux sessions are taken in without being asked for.
    pub adoption: Adoption,
    /// Starts by themselves.
    pub restart: RestartRules,
    /// After being idle for so long a session is parked, where it may be; `None` for never.
    pub idle_timeout: Option<Duration>,
    /// A program that has written nothing for so long is taken for idle.
    pub idle_quiet: Duration,
    /// But not before so long after it was given a message that nothing confirmed.
    pub idle_settle: Duration,
    /// What can be bounded by control groups now.
    pub bounds: Bounds,
    /// What should be dead, and what becomes of it.
    pub reap: ReapRules,
    /// After an attached client typed something, prompts wait for so long.
    pub typing_pause: Duration,
    /// An agent that says nothing of itself is taken for ready so long after its start.
    pub ready_limit: Duration,
}

impl Settings {
    /// The table of a session's agent kind; an empty one where there is none.
    #[must_use]
    pub fn agent_of(&self, session: &protocol::Session) -> &Agent {
        self.agents.get(&session.spec.agent).unwrap_or(&BARE)
    }
}

/// What of a caller's environment goes along: names, or beginnings with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passing {
    /// Only what one of these stands for.
    pub pass: Vec<String>,
    /// But not what one of these stands for.
    pub drop: Vec<String>,
}

impl Default for Passing {
    fn default() -> Self {
        Self { pass: vec!["*".to_owned()], drop: Vec::new() }
    }
}

impl Passing {
    /// Whether a variable of this name goes along.
    #[must_use]
    pub fn passes(&self, name: &[u8]) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| env::matches(pattern, name));
        any(&self.pass) && !any(&self.drop) && !env::is_stripped(name)
    }
}

/// A bare command. What it makes of text is its user's to know, a full-screen one's least of all.
static BARE: LazyLock<Agent> = LazyLock::new(|| Agent { waits_for_screen: true, ..Agent::default() });

/// When the rules of the reaper apply, and what becomes of what they find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReapRules {
    /// A worker of which nothing was heard for longer than this is stale, whatever it holds.
    pub stale_worker: Duration,
    /// An agent that holds a message and of which nothing is seen for so long is stale.
    pub stale_agent: Duration,
    /// A session that has something to do and in which nothing moves for so long hangs.
    pub hung: Duration,
    /// A session that has had nothing to do for so long is idle.
    pub idle_session: Duration,
    /// Between the first KILL and giving up, in milliseconds.
    pub verify_ms: u64,
    /// So many are ended by rules in a minute, at most.
    pub max_kills_per_minute: u32,
    /// What becomes of what a rule finds, where the default is not meant.
    pub actions: BTreeMap<Rule, Action>,
}

impl Default for ReapRules {
    fn default() -> Self {
        Self {
            stale_worker: Duration::from_secs(5 * 60),
            stale_agent: Duration::from_secs(30 * 60),
            hung: Duration::from_secs(10 * 60),
            idle_session: Duration::from_secs(15 * 60),
            verify_ms: 5000,
            max_kills_per_minute: 30,
            actions: BTreeMap::new(),
        }
    }
}

/// What can be bounded by control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Memory.
    pub memory: bool,
    /// Processes and threads.
    pub tasks: bool,
    /// Share of the processors.
    pub cpu: bool,
}

/// Starts of sessions by themselves: after their ends, by policy, and to work messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartRules {
    /// The policy of sessions that say nothing.
    pub policy: RestartPolicy,
    /// Starts within the window, before a session stays as it is.
    pub max: u32,
    /// The window.
    pub window: Duration,
    /// Pause before the first; doubles with each failure in a row.
    pub backoff: Duration,
    /// The longest pause.
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

/// Which foreign tmux sessions are taken in without being asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adoption {
    /// None.
    Never,
    /// Those whose name begins so.
    Prefix(String),
    /// All.
    All,
}

/// How names are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Agent, date and time: sortable, unique within a second, then with a number behind.
    Timestamp,
    /// One more than the highest number that is a name.
    Numeric,
}

/// An agent kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agent {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// Whether it may see which tmux it runs in.
    pub see_tmux: bool,
    /// Arguments that begin a conversation; `{conversation}` is its id.
    pub start_args: Vec<String>,
    /// Arguments that take one up again; none where the agent cannot.
    pub resume_args: Vec<String>,
    /// Whether it may be parked although it cannot.
    pub parkable: bool,
    /// What bounds it.
    pub limits: Limits,
    /// How many tokens it can keep in mind.
    pub context_limit: Option<u64>,
    /// What becomes of its sessions where a rule applies.
    pub reap: BTreeMap<Rule, Action>,
    /// What becomes of what it detached, at its end.
    pub leftovers: Leftovers,
    /// How to speak with it.
    pub adapter: Adapter,
    /// How its screen looks, where the adapter does not know it.
    pub screen: Patterns,
    /// How it is known that it took a prompt.
    pub confirm: Confirm,
    /// Whether its hooks are wired when it is started.
    pub hooks: bool,
    /// How long its hook waits for an answer to a request for a permission; zero for not at all.
    pub approve_wait: Duration,
    /// What becomes of a prompt whose turn somebody interrupts.
    pub on_interrupted: OnInterrupted,
    /// What becomes of a prompt whose turn fails by an outage of the service.
    pub on_failed_turn: OnFailedTurn,
    /// The keys that answer a dialog of its start or about its usage limit, by the dialog's name. Any other waits for a
    /// person.
    pub dialogs: BTreeMap<String, Vec<String>>,
    /// Whether a prompt waits while it shows a full-screen program.
    pub waits_for_screen: bool,
    /// Whether each use of a tool becomes a message of kind `observation`.
    pub observe: bool,
    /// Whether the end of each turn becomes a message of kind `summarize`.
    pub summarize: bool,
    /// What is said to it once a usage limit or an outage is over; none for nothing.
    pub go_on: Option<String>,
}

impl Agent {
    /// Whether the pool chooses its conversation: it is told the id at its start.
    #[must_use]
    pub fn is_told_its_conversation(&self) -> bool {
        self.start_args.iter().any(|word| word.contains("{conversation}"))
    }

    /// Whether it is known where on its screen prompts are typed.
    #[must_use]
    pub fn shows_composer(&self) -> bool {
        self.adapter.knows_screen() || self.screen.has_composer()
    }

    /// Whether it asks its terminal for bracketed pastes before it takes any. One that somebody described has to.
    #[must_use]
    pub fn asks_for_pastes(&self) -> bool {
        self.adapter.asks_for_pastes() || self.screen.has_composer()
    }

    /// How a screen of it looks. `cursor` is the column and the row of the terminal's cursor, from 0.
    #[must_use]
    pub fn look(&self, screen: &Screen, cursor: (u16, u16), at: Timestamp) -> Look {
        let adapter = self.adapter;
        let ScreenState { composer, dialog, works, background } = if adapter.knows_screen() {
            ScreenState {
                composer: screen::composer(adapter, screen, cursor),
                dialog: screen::dialog(adapter, screen),
                works: screen::is_working(adapter, screen),
                background: screen::background(adapter, screen),
            }
        } else {
            self.screen.read(screen, cursor.1)
        };
        Look { at, composer, dialog, works, background }
    }
}

/// What becomes of a prompt whose turn fails by an outage of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailedTurn {
    /// Its lane is held, and its agent is told to go on, with growing pauses, until the service is back.
    #[default]
    Hold,
    /// It is over, and the next one goes.
    Next,
    /// It is sent again, as often as a message is tried.
    Retry,
}

/// What becomes of a prompt whose turn somebody interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnInterrupted {
    /// It is over.
    #[default]
    Dead,
    /// It is sent again.
    Retry,
}
