//! A session's durable record, and the words for its states.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{OpId, PaneId, ProcId, ServerId, SessionId, Tag, TmuxSessionId, Token};
use crate::life::{Account, Budget, Conversation, Limits, Policy};
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;

/// Everything the pool remembers of one session. The tmux session is only its running [`Incarnation`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// `sess_N`.
    pub id: SessionId,
    /// The tmux session's name. Names and workspaces share one namespace.
    pub name: Name,
    /// The logical name it was asked for; at most one session a workspace.
    pub workspace: Name,
    /// The session's private directory.
    pub dir: OsBytes,
    /// What it runs.
    pub spec: Spec,
    /// Free key-value pairs of the user's.
    pub labels: BTreeMap<String, String>,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// Why it is there, where there is a reason.
    pub reason: Option<Reason>,
    /// A sentence for people beside the reason.
    pub detail: Option<String>,
    /// The current or last run in tmux.
    pub incarnation: Option<Incarnation>,
    /// How many incarnations there have been.
    pub incarnations: u32,
    /// How many of them were restarts.
    pub restarts: u32,
    /// How the last program ended, where that is known exactly.
    pub exit: Option<Exit>,
    /// How many messages it was ever sent.
    pub total_requests: u64,
    /// Whether its running incarnation was found again after `poold` restarted.
    pub recovered: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its lifecycle last changed.
    pub changed_at: Timestamp,
    /// When it last did or was sent something.
    pub last_activity_at: Timestamp,
    /// When tmux last confirmed what is written here.
    pub verified_at: Option<Timestamp>,
    /// Name of the program in the foreground of its terminal.
    pub current_command: Option<OsBytes>,
    /// How many clients are attached.
    pub attached_clients: u32,
    /// What becomes of it.
    #[serde(default)]
    pub policy: Policy,
    /// Its starts by itself.
    #[serde(default)]
    pub budget: Budget,
    /// The conversation of its agent, where that can take one up again.
    pub conversation: Option<Conversation>,
    /// What its last program used in all.
    pub account: Option<Account>,
    /// The lock that somebody holds on it (`poolctl lock`).
    pub lock: Option<SessionLock>,
}

/// A durable lock on a session: a lease that its holder renews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLock {
    /// The fencing token.
    pub token: Token,
    /// What for, for people: the command.
    pub purpose: String,
    /// Who holds it, where the system tells: free at once when it is proved dead.
    pub holder: Option<ProcId>,
    /// How long it may be silent, in milliseconds.
    pub lease_ms: u64,
    /// Since when.
    pub since: Timestamp,
    /// The operation that asked for it: a repeat gets the same token.
    pub op: OpId,
    /// Whether a message was sent under it: then what is queued is delivered inside of it.
    pub fed: bool,
}

impl Session {
    /// Whether its incarnation is ending and it is put aside then, to be woken again.
    #[must_use]
    pub fn is_being_parked(&self) -> bool {
        self.lifecycle == Lifecycle::Draining && self.reason.is_some_and(Reason::parks)
    }

    /// Whether its program may still take prompts: it runs, or works off what it has before it ends.
    #[must_use]
    pub fn takes_prompts(&self) -> bool {
        let works_off = self.lifecycle == Lifecycle::Draining && self.reason == Some(Reason::Drained);
        self.lifecycle == Lifecycle::Live || works_off
    }

    /// One that was decided on with its first incarnation, and not seen yet. `names` are its own and its
    /// workspace's.
    #[must_use]
    pub fn intended(
        id: SessionId,
        names: (Name, Name),
        dir: OsBytes,
        spec: Spec,
        incarnation: Incarnation,
    ) -> Self {
        let now = incarnation.started_at;
        Self {
            id,
            name: names.0,
            workspace: names.1,
            dir,
            spec,
            labels: BTreeMap::new(),
            lifecycle: Lifecycle::Starting,
            reason: None,
            detail: None,
            incarnation: Some(incarnation),
            incarnations: 1,
            restarts: 0,
            exit: None,
            total_requests: 0,
            recovered: false,
            created_at: now,
            changed_at: now,
            last_activity_at: now,
            verified_at: None,
            current_command: None,
            attached_clients: 0,
            policy: Policy::default(),
            budget: Budget::default(),
            conversation: None,
            account: None,
            lock: None,
        }
    }
}

/// What a session runs, and how; the same for every incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The agent kind: a table of the configuration.
    pub agent: String,
    /// Program and arguments; at least one.
    pub command: Vec<OsBytes>,
    /// Directory it starts in.
    pub cwd: OsBytes,
    /// Environment asked for by the user and the agent's table, without what the pool adds. Secret:
    /// never shown, never in an argument list.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// Size of the terminal while nobody is attached.
    pub size: Size,
    /// Arguments that begin a conversation; `{conversation}` in them is its id.
    #[serde(default)]
    pub start_args: Vec<OsBytes>,
    /// Arguments that take one up again, in their place.
    #[serde(default)]
    pub resume_args: Vec<OsBytes>,
    /// What bounds its processes.
    #[serde(default)]
    pub limits: Limits,
    /// How many tokens its agent can keep in mind, where that is known.
    pub context_limit: Option<u64>,
}

/// A terminal's size in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns, 1 to 10,000 (tmux's own bounds).
    pub cols: u16,
    /// Rows, likewise.
    pub rows: u16,
}

/// One run of a session in tmux.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// Its random mark.
    pub tag: Tag,
    /// The tmux server it runs in, once known.
    pub server: Option<ServerId>,
    /// Its tmux session, once known.
    pub session: Option<TmuxSessionId>,
    /// The pane that the pool owns, once known.
    pub pane: Option<PaneId>,
    /// The pane's process (`reaper exec`), once known.
    pub init: Option<ProcId>,
    /// The agent, once known.
    pub agent: Option<ProcId>,
    /// When its creation was decided.
    pub started_at: Timestamp,
    /// Since when complete listings lack it, while that is not yet proof that it is gone.
    pub missing_since: Option<Timestamp>,
    /// Whether its terminal was closed (`pane_dead`).
    pub dead: bool,
    /// Its control group, where it has one.
    pub cgroup: Option<OsBytes>,
    /// Limits that do not hold, and why, each a sentence.
    #[serde(default)]
    pub unenforced: Vec<String>,
    /// Whether it took up the conversation of an earlier one.
    #[serde(default)]
    pub resumed: bool,
}

impl Incarnation {
    /// One that was decided and not seen yet.
    #[must_use]
    pub fn intended(tag: Tag, started_at: Timestamp) -> Self {
        Self {
            tag,
            server: None,
            session: None,
            pane: None,
            init: None,
            agent: None,
            started_at,
            missing_since: None,
            dead: false,
            cgroup: None,
            unenforced: Vec::new(),
            resumed: false,
        }
    }

    /// Whether it was adopted: its program has no init of ours, and is its own.
    #[must_use]
    pub fn is_adopted(&self) -> bool {
        self.init.is_some() && self.init == self.agent
    }
}

/// Where a session is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Its creation was decided; its outcome is not known yet.
    Starting,
    /// Its incarnation runs.
    Live,
    /// Its incarnation is ending: the program ended or is being ended, and its remains are not proved gone.
    Draining,
    /// Put aside to free its slot; a prompt wakes it.
    Parked,
    /// Its program is over.
    Stopped,
    /// Its tmux server went away under it.
    Lost,
    /// Its creation failed.
    Failed,
}

impl Lifecycle {
    /// Whether an incarnation may be running: it holds a slot.
    #[must_use]
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::Starting | Self::Live | Self::Draining)
    }
}

/// Why a session left a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Its program ended by itself.
    Exited,
    /// A user killed it.
    Killed,
    /// It is being restarted.
    Restarted,
    /// Parked for another session.
    Evicted,
    /// Parked after its idle time.
    Idle,
    /// It worked off its queue and was closed.
    Drained,
    /// Its pane vanished from a living server.
    TmuxGone,
    /// Its server died.
    ServerGone,
    /// It was not in tmux when `poold` started.
    StartupMissingTmux,
    /// A user deleted it.
    ApiDelete,
    /// Its program could not be executed.
    ExecFailed,
    /// tmux refused or did not answer when it was created.
    TmuxFailed,
    /// Its directories or files could not be made.
    Setup,
    /// tmux has a session of that name that is not the pool's.
    NameTaken,
    /// A user parked it.
    Parked,
    /// It used more memory than it may.
    MemoryLimit,
    /// It used more of the disk than it may.
    DiskLimit,
    /// It ran for as long as it may.
    RunTime,
    /// It was kept for as long as it was to be.
    Ttl,
    /// It was to be removed at its end.
    Ephemeral,
    /// It had something to do, and neither wrote anything nor used the processor.
    Hung,
    /// It held a message, and nothing was heard of it.
    StaleAgent,
    /// It had nothing to do for longer than it may.
    TooIdle,
    /// Its agent has used up what it may for now.
    Limited,
}

impl Reason {
    /// Whether what ends for this reason is put aside, not over.
    #[must_use]
    pub fn parks(self) -> bool {
        matches!(self, Self::Evicted | Self::Idle | Self::Parked | Self::Limited)
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, where it exited.
    pub code: Option<i32>,
    /// Signal number, where a signal ended it.
    pub signal: Option<i32>,
    /// When.
    pub at: Timestamp,
}

impl Exit {
    /// The code a shell would show: the exit code, or 128 and the signal.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        let code = self.code.or_else(|| self.signal.map(|s| 128 + s)).unwrap_or(255);
        u8::try_from(code).unwrap_or(255)
    }
}

/// How a record was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeleteMode {
    /// Its tmux session was ended, or had ended before.
    KillTmux,
    /// The pool forgot it; tmux keeps it.
    Detach,
}
