//! The durable record of a session, its lifecycle states and their reasons.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use crate::exit::Exit;
use crate::ids::{MessageId, OpId, ProcId, SessionId, Tag, Token};
use crate::limits::Limits;
use crate::policy::{Budget, DrainDeadline, Policy};
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;
use crate::usage::Account;
use crate::worker::WorkerSpec;

pub use crate::incarnation::Incarnation;
pub use crate::origin::Origin;

/// The durable record of a session. Its run in tmux is the [`Incarnation`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// The id, `sess_N`.
    pub id: SessionId,
    /// The name of the tmux session. Names and workspaces share one namespace.
    pub name: Name,
    /// The logical name under which it was requested. A workspace has at most one session.
    pub workspace: Name,
    /// The session's private directory.
    pub dir: OsBytes,
    /// The program and how to run it.
    pub spec: Spec,
    /// Arbitrary key-value pairs of the user.
    pub labels: BTreeMap<String, String>,
    /// The lifecycle state.
    pub lifecycle: Lifecycle,
    /// The reason for the state, if there is one.
    pub reason: Option<Reason>,
    /// A sentence for people about the reason.
    pub detail: Option<String>,
    /// The current or last run in tmux.
    pub incarnation: Option<Incarnation>,
    /// Number of incarnations so far.
    pub incarnations: u32,
    /// Number of incarnations that were restarts.
    pub restarts: u32,
    /// The exit status of the last program, if known exactly.
    pub exit: Option<Exit>,
    /// Number of messages ever sent to it.
    pub total_requests: u64,
    /// True if the running incarnation was found again after a restart of `poold`.
    pub recovered: bool,
    /// The way in which its record was created.
    pub origin: Origin,
    /// The time of the creation; of an adopted session that of its tmux session.
    pub created_at: Timestamp,
    /// The time of the last change of the lifecycle state.
    pub changed_at: Timestamp,
    /// The time of the last output, input or message.
    pub last_activity_at: Timestamp,
    /// The time at which tmux last confirmed this record.
    pub verified_at: Option<Timestamp>,
    /// The program in the foreground of its terminal.
    pub current_command: Option<OsBytes>,
    /// Number of attached clients.
    pub attached_clients: u32,
    /// The lifecycle policy.
    #[serde(default)]
    pub policy: Policy,
    /// The budget of automatic starts.
    #[serde(default)]
    pub budget: Budget,
    /// The conversation of its agent, if the agent can resume one.
    pub conversation: Option<Conversation>,
    /// The total resource usage of its last program.
    pub account: Option<Account>,
    /// The lock that a user holds on it (`poolctl lock`).
    pub lock: Option<SessionLock>,
    /// The deadline of its drain, while it drains.
    pub drain_deadline: Option<DrainDeadline>,
    /// The time between TERM and KILL that a user asked for, in milliseconds, while it is being ended.
    #[serde(default)]
    pub end_grace_ms: Option<u64>,
    /// The time at which keys were last pressed in its terminal by `poolctl keys` or `rpc input`, since it started.
    #[serde(default)]
    pub keys_at: Option<Timestamp>,
    /// True once a person was attached to its terminal, or pressed keys in it, since it started.
    #[serde(default)]
    pub attended: bool,
    /// The worker of the pool whose host this session runs. Such a session is hidden from users, and takes no
    /// slot.
    #[serde(default)]
    pub worker: Option<Box<WorkerSpec>>,
    /// The kinds of its messages that are known to stand still, each with the time since when.
    pub stuck: BTreeMap<String, Timestamp>,
}

/// A user's durable lock on a session: a lease that its holder renews.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLock {
    /// The fencing token.
    pub token: Token,
    /// The purpose, for people: the command.
    pub purpose: String,
    /// The process that holds it, if the system tells. Its proven death releases the lock at once.
    pub holder: Option<ProcId>,
    /// The lease, in milliseconds: the longest time without a renewal.
    pub lease_ms: u64,
    /// The time of the grant.
    pub since: Timestamp,
    /// The operation that requested it. A retry of the operation gets the same token.
    pub op: OpId,
    /// The prompts sent under the lock that are not over. While one of them is pending, it and those ahead of it are
    /// typed.
    pub prompts: BTreeSet<MessageId>,
    /// The lock under which this one was requested. What is done under this lock is done under the outer one, too.
    pub outer: Option<Token>,
}

impl Session {
    /// Its incarnation, if one runs, starts or ends.
    pub fn running(&self) -> Option<&Incarnation> {
        self.incarnation.as_ref().filter(|_| self.lifecycle.holds_slot())
    }

    /// The tag of its last incarnation.
    pub fn tag(&self) -> Option<Tag> {
        self.incarnation.as_ref().map(|run| run.tag)
    }

    /// True if its last incarnation has this tag.
    pub fn is_run(&self, tag: Tag) -> bool {
        self.tag() == Some(tag)
    }

    /// True if its incarnation is ending in order to be parked.
    pub fn is_being_parked(&self) -> bool {
        self.lifecycle == Lifecycle::Draining && self.reason.is_some_and(Reason::parks)
    }

    /// True if its program may still take prompts: it runs, or processes its queue before it ends.
    pub fn takes_prompts(&self) -> bool {
        let works_off = self.lifecycle == Lifecycle::Draining && self.reason == Some(Reason::Drained);
        self.lifecycle == Lifecycle::Live || works_off
    }

    /// The command with which a person starts it again: as a worker, if it is the host of one.
    pub fn start_command(&self) -> String {
        match &self.worker {
            Some(worker) => format!("poolctl worker start {}", worker.name),
            None => format!("poolctl restart {}", self.name),
        }
    }

    /// Creates the record of a session that is to be created, with its first incarnation. `names` are the
    /// session's name and its workspace.
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
            origin: Origin::ApiCreate,
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
            drain_deadline: None,
            end_grace_ms: None,
            keys_at: None,
            attended: false,
            worker: None,
            stuck: BTreeMap::new(),
        }
    }
}

/// The program of a session and how to run it. The same for every incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The agent kind, which is a table of the configuration.
    pub agent: String,
    /// Program and arguments; at least one.
    pub command: Vec<OsBytes>,
    /// The working directory.
    pub cwd: OsBytes,
    /// The environment from the user and from the agent's table, without the pool's additions. Secret: it is
    /// never shown and never part of an argument list.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// Size of the terminal while no client is attached.
    pub size: Size,
    /// Arguments that begin a conversation. `{conversation}` in them stands for its id.
    #[serde(default)]
    pub start_args: Vec<OsBytes>,
    /// Arguments that resume a conversation, in place of the start arguments.
    #[serde(default)]
    pub resume_args: Vec<OsBytes>,
    /// Resource limits of its processes.
    #[serde(default)]
    pub limits: Limits,
    /// Size of its agent's context window in tokens, if known.
    pub context_limit: Option<u64>,
    /// True if its program's standard error goes to a log of its own, not to the terminal.
    pub separate_stderr: bool,
}

/// A change of a worker by the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerChange {
    /// The session of its host.
    pub session: SessionId,
    /// The whole new worker.
    pub worker: WorkerSpec,
    /// The program of its host, from the next start on.
    pub spec: Spec,
    /// See [`Policy::max_restarts`].
    pub max_restarts: Option<u32>,
}

/// A terminal's size in character cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns, 1 to 10,000 (tmux's own limits).
    pub cols: u16,
    /// Rows, 1 to 10,000.
    pub rows: u16,
}

impl Size {
    /// True if tmux takes it.
    pub fn is_valid(&self) -> bool {
        let fits = |n: u16| (1..=10_000).contains(&n);
        fits(self.cols) && fits(self.rows)
    }
}

crate::names! {
    /// The lifecycle states of a session.
    pub enum Lifecycle {
        /// The creation was decided; the outcome is not known yet.
        Starting = "starting",
        /// The incarnation runs.
        Live = "live",
        /// The incarnation is ending: the program has ended or is being ended, and its processes and pane are not
        /// proved gone.
        Draining = "draining",
        /// The incarnation was ended to free the slot; a prompt wakes the session.
        Parked = "parked",
        /// The program has ended.
        Stopped = "stopped",
        /// The tmux server died.
        Lost = "lost",
        /// The creation failed.
        Failed = "failed",
    }
}

impl Lifecycle {
    /// True if an incarnation may be running, which takes a slot.
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::Starting | Self::Live | Self::Draining)
    }

    /// True if the session does not run, and is not parked: its program ended, was lost, or did not start.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Stopped | Self::Lost | Self::Failed)
    }
}

/// The reasons for leaving a lifecycle state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The program ended by itself.
    Exited,
    /// A user killed the session.
    Killed,
    /// The session is being restarted.
    Restarted,
    /// The session was parked to free its slot for another one.
    Evicted,
    /// The session was parked after its idle timeout.
    Idle,
    /// The session was drained: its queue is empty and it takes no more messages.
    Drained,
    /// The pane vanished from a running server.
    TmuxGone,
    /// The tmux server died.
    ServerGone,
    /// The session was not in tmux when `poold` started.
    StartupMissingTmux,
    /// A user deleted the session.
    ApiDelete,
    /// The program could not be executed.
    ExecFailed,
    /// tmux refused the creation or did not answer.
    TmuxFailed,
    /// The session's directories or files could not be created.
    Setup,
    /// tmux has another session of that name, outside of the pool.
    NameTaken,
    /// A user parked the session.
    Parked,
    /// The memory limit was exceeded.
    MemoryLimit,
    /// The disk limit was exceeded.
    DiskLimit,
    /// The maximum run time was reached.
    RunTime,
    /// The time to live after its end expired.
    Ttl,
    /// The session was to be removed at its end.
    Ephemeral,
    /// The session had work, but wrote nothing and used no CPU.
    Hung,
    /// The agent held a message and showed no activity.
    StaleAgent,
    /// The session had no work for longer than the reap rule allows.
    TooIdle,
    /// The agent reached a usage limit.
    Limited,
    /// The session was parked because the machine was short of memory.
    HostMemory,
    /// The session was parked because the disk of the state directory was nearly full.
    HostDisk,
    /// The session was ended while it drained: by the deadline of its drain, a limit or a rule.
    DrainDeadline,
    /// The pool's database was replaced by a copy: a backup, an export, or the database of another pool. The
    /// session ran when the copy was made; its program was not touched.
    DatabaseReplaced,
}

impl Reason {
    /// True if a session that ends for this reason is parked instead of stopped.
    pub fn parks(self) -> bool {
        use Reason::{Evicted, HostDisk, HostMemory, Idle, Limited, Parked};
        matches!(self, Evicted | Idle | Parked | Limited | HostMemory | HostDisk)
    }

    /// True if a user or the pool ended the session, and no failure of its program.
    pub fn is_order(self) -> bool {
        use Reason::{ApiDelete, DrainDeadline, Killed, Restarted};
        self.parks() || matches!(self, Killed | Restarted | DrainDeadline | ApiDelete)
    }
}

/// The conversation of an agent that can resume one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The id chosen by the pool: a version-4 UUID.
    pub id: String,
    /// True if the conversation has content, so that it can be resumed.
    pub begun: bool,
}

/// The ways to remove a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeleteMode {
    /// The tmux session was ended, or had ended before.
    KillTmux,
    /// The pool forgets the session; tmux keeps it.
    Detach,
}
