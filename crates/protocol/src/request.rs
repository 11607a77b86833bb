//! Requests: one struct for each verb, mostly with the name of the verb; `ls` is `List`, `rm` is `Remove`,
//! `stats` is `Usage`.

mod agent;
mod lock;
mod observe;
mod queue;
mod read;
mod session;
mod terminal;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::activity::ActivityState;
use crate::hook::Hook;
use crate::ids::{MessageId, OpId, Seq, SessionId, Tag, Token};
use crate::reap::Verdict;
use crate::session::Lifecycle;
use crate::text::{OsBytes, SessionRef};
use crate::thought::Publish;
use crate::tmux::TmuxTransport;
use crate::variants;

pub use agent::Approve;
pub use lock::Lock;
pub use observe::{Observe, View};
pub use queue::{
    Ack, AddWorker, CLAIM_MAX, Claim, ClaimRef, Disposition, Fail, Messages, Purge, Register, Resolution,
    ResolveMessage, Send,
};
pub use session::{
    Adopt, ClearContext, Drain, Kill, Label, New, Park, Pin, Prune, Remove, Rename, Restart, Restore, Update,
};
pub use terminal::{Attach, Capture, Extent, INPUT_MAX, Input, Keys, Output, Resize};

/// One request on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The id chosen by the client, which the answer repeats. A connection has at most 64 calls in progress.
    pub id: u64,
    /// The operation id, which makes a mutating request repeatable; required for those.
    pub op: Option<OpId>,
    /// The token of the lock under which the request is made, as inside `poolctl lock`.
    pub lock: Option<Token>,
    /// The request.
    pub request: Request,
}

/// The requests. `→` names the variant of [`crate::Response`] that answers; "Mutates" means that an operation
/// id is required.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Check that the daemon and its engine answer. → `Done`
    Ping,
    /// Get the status of the pool. → `Status`
    Status,
    /// Take a snapshot of tmux and apply it. → `Synced`
    Sync,
    /// Create a session. → `Session`, once it is verified running. Mutates.
    New(Box<New>),
    /// List sessions. → `Sessions`, in parts
    List(List),
    /// Show a session. → `Session`
    Show(SessionRef),
    /// Get the command that attaches to a session. → `Attach`
    Attach(Attach),
    /// Queue a message. → `Sent`, once it is on disk. Mutates.
    Send(Send),
    /// Show a message. → `Message`
    ShowMessage(MessageId),
    /// List the messages of a session: all that are not final, and the newest of the others. → `Messages`
    ListMessages(SessionRef),
    /// End an in-doubt message. → `Message`. Mutates.
    ResolveMessage(ResolveMessage),
    /// Send raw keys to the terminal at once. → `Done`. Mutates.
    Keys(Keys),
    /// Get the text of a screen. → `Screen`, in parts
    Capture(Capture),
    /// Locate a session's log files. → `Logs`
    Logs(SessionRef),
    /// End a session's incarnation, verified. → `Session`. Mutates.
    Kill(Kill),
    /// Remove a session's record. → `Done`. Mutates.
    Remove(Remove),
    /// Rename a session. → `Session`. Mutates.
    Rename(Rename),
    /// Set and remove labels. → `Session`. Mutates.
    Label(Label),
    /// End the incarnation, if one runs, and start another. → `Session`. Mutates.
    Restart(Restart),
    /// Wait until a condition is true, which may be now. → `Session` or `Message`
    Wait(Wait),
    /// Read a part of the journal. → `Events`, in parts
    Events(Events),
    /// Subscriber only: the state, then all changes. Not answered; frames follow.
    Subscribe(Subscribe),
    /// Get the configuration in force, as TOML. → `Text`
    Config,
    /// Read the configuration file again. → `Text`: the changes, and those that need a restart
    ConfigReload,
    /// List the current candidates of the reaper. → `Candidates`
    Candidates,
    /// Reaper only: wait for a candidate. → `Candidates` (none or one)
    NextCandidate {
        /// Maximum waiting time, in milliseconds.
        wait_ms: u64,
    },
    /// Reaper only: take the lease on a candidate, or read the one that this connection holds. → `Lease`
    TakeLease {
        /// The candidate's session.
        session: SessionId,
        /// The candidate's incarnation.
        tag: Tag,
    },
    /// Reaper only: report the verdict on a lease. → `Done`
    Settle(Verdict),
    /// Watcher only: report an observation. → `Done`, or `SendSnapshot` after a gap
    Observe(Observe),
    /// Watcher only: report the transport in use. → `Done`
    WatchingBy(TmuxTransport),
    /// Adopt a tmux session that the pool did not create. → `Session`. Mutates.
    Adopt(Adopt),
    /// Subscriber only: the state of tmux, then the frames of the watcher. Not answered; frames follow.
    Watch,
    /// Generator only, as the first request: register for messages. → `Registered`
    Register(Register),
    /// Claim messages, waiting for them. → `Claimed`, empty if the wait timed out. With an operation id, a
    /// retry gets the same messages while they are held.
    Claim(Claim),
    /// Extend the leases of claims. → `Done`, or a `conflict` if a token is stale
    Heartbeat(Vec<ClaimRef>),
    /// Report that a message was processed. → `Message`, the same for a retry with the same token
    Ack(Ack),
    /// Report that a message was not processed. → `Message`, the same for a retry with the same token
    Fail(Fail),
    /// Cancel a message that waits, is in doubt or is in flight. → `Message`. Mutates.
    Cancel(MessageId),
    /// Queue a dead, cancelled, expired or in-doubt message again, or end its wait for the next attempt.
    /// Closes the circuit breaker of its kind. → `Message`. Mutates.
    Retry(MessageId),
    /// Delete final messages. → `Purged`. Mutates.
    Purge(Purge),
    /// List generators and their claims. → `Generators`
    Generators,
    /// List messages of a session, without bodies (see [`Request::Body`]). → `Messages`, in parts
    Messages(Messages),
    /// Get the body of a message. → `Body`
    Body(MessageId),
    /// Export the whole database as JSON lines. → `Text`, in parts
    Export,
    /// Make a consistent copy of the database while it is in use. → `Text`: a description of the copy
    Backup {
        /// The absolute path of the copy. The file must not exist.
        path: OsBytes,
    },
    /// Read every record and compare it with memory. → `Checked`
    Check,
    /// Return unused space of the database to the file system. → `Compacted`. Nothing else is answered
    /// meanwhile.
    Compact,
    /// End a session's incarnation to free its slot; a prompt wakes it. → `Session`. Mutates.
    Park(Park),
    /// Start a parked, lost or stopped session. → `Session`, once it is verified running. For all lost
    /// sessions → `Sessions`, before they are started one after the other. Mutates.
    Restore(Restore),
    /// Refuse further messages, process the queued ones, then stop. → `Session`, at once. Mutates.
    Drain(Drain),
    /// Pin or unpin a session. → `Session`. Mutates.
    Pin(Pin),
    /// Empty a session's log and its terminal's history. → `Done`. Mutates.
    Clear(SessionRef),
    /// Remove ended sessions, and directories that belong to none. → `Pruned`. Mutates.
    Prune(Prune),
    /// Get the resource usage of one or all running sessions. → `Usage`, in parts
    Usage(Option<SessionRef>),
    /// Acquire a session's lock, waiting for it. → `Locked`, once it is on disk. A retry with the same
    /// operation id gets the same lock while it is held. Mutates.
    Lock(Lock),
    /// Extend the lease of a lock. → `Done`, or a `conflict` if it is not valid any more
    RenewLock {
        /// The session.
        session: SessionId,
        /// The token of the lock.
        token: Token,
    },
    /// Release a lock. → `Done`, even if it is not held any more
    Unlock {
        /// The session.
        session: SessionId,
        /// The token of the lock.
        token: Token,
    },
    /// Explain the result of each reap rule for a session. → `Explained`
    Explain(SessionRef),
    /// Evaluate the reap rules now. → `Candidates`: those found. Mutates.
    Reap {
        /// Ends the candidates found now regardless of the limit of kills per minute.
        force: bool,
    },
    /// Change a session's policy. → `Session`. Mutates.
    Update(Update),
    /// Report an event of an agent's hook. → `Done`, once it is processed. For a permission request →
    /// `Decided`, once it is decided, or `Done` if it is left to the terminal
    Hook(Box<Hook>),
    /// Answer the permission request of a session. → `Session`. Mutates.
    Approve(Approve),
    /// Publish a thought. → `Session`, once it is on disk. One that is older in its stream changes nothing.
    /// Mutates.
    Publish(Box<Publish>),
    /// Subscriber only: a session's output, as bytes of its log. Not answered; frames follow.
    Output(Output),
    /// Get the state of a session's terminal, for a viewer to begin with. → `Terminal`
    Terminal(SessionRef),
    /// Write bytes to a session's terminal, at once and unchanged. → `Done`. Mutates.
    Input(Input),
    /// Resize a session's terminal. → `Done`. Mutates.
    Resize(Resize),
    /// Report that a hook has received its decision and that its agent took it. → `Done`
    DecisionTaken {
        /// The session of the hook.
        session: SessionId,
        /// The id of the hook's report.
        #[serde(with = "crate::u64_string")]
        ask: u64,
    },
    /// List everything that waits for a person. → `Inbox`, in parts
    Inbox,
    /// Queue the agent's own command for a fresh context, as a prompt. → `Sent`, once it is on disk. Mutates.
    ClearContext(ClearContext),
    /// List sessions as [`Request::List`] does, each with the colours of its repository and the end of its
    /// output. → `Sessions`, in parts
    Snapshot(List),
    /// Dismiss what a session's agent asks: this occurrence is no longer listed as waiting for a person, and
    /// a bell ends. → `Session`. Mutates.
    Dismiss(SessionRef),
    /// Add a worker that the pool starts by itself. → `Session`: the hidden session of its host. Mutates.
    AddWorker(Box<AddWorker>),
    /// Give up the wait for a slot of the request with this operation id, which is refused then. It goes on if it has a
    /// slot. → `Done`
    Withdraw(OpId),
    /// Start no session for as long as this connection lives, as the pool is about to be stopped. → `Done`
    HoldStarts,
}

impl Request {
    /// True if the request needs an operation id, or for a claim, if a retry under one gets the same answer.
    pub fn needs_operation_id(&self) -> bool {
        match self {
            variants!(Self:
                New Send ResolveMessage Keys Kill Remove Rename Label Restart Adopt Claim Cancel Retry Purge
                Park Restore Drain Pin Clear Prune Lock Reap Update Approve Publish Input Resize ClearContext
                Dismiss AddWorker
            ) => true,
            variants!(Self:
                Ping Status Sync List Show Attach ShowMessage ListMessages Capture Logs Wait Events Subscribe
                Config ConfigReload Candidates NextCandidate TakeLease Settle Observe WatchingBy Watch
                Register Heartbeat Ack Fail Generators Messages Body Export Backup Check Compact Usage
                RenewLock Unlock Explain Hook Output Terminal DecisionTaken Inbox Snapshot Withdraw HoldStarts
            ) => false,
        }
    }
}

/// `ls`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct List {
    /// Includes stopped, parked, lost and failed sessions.
    pub all: bool,
    /// Selects sessions in this state.
    pub state: Option<Lifecycle>,
    /// Selects sessions with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Selects sessions of this agent kind.
    pub agent: Option<String>,
    /// Lists the hidden sessions of the pool's workers instead.
    #[serde(default)]
    pub workers: bool,
}

/// `wait`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// The session.
    pub session: SessionRef,
    /// The conditions. The wait ends with the first one that is true.
    pub until: Vec<Until>,
    /// Maximum waiting time, in milliseconds; unlimited if absent.
    pub timeout_ms: Option<u64>,
}

/// A condition to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The session's program has ended, and its whole output is in the log.
    Exit,
    /// No message of the session waits or is in flight. Refused if only a person can move its prompt on.
    QueueEmpty,
    /// The message is final. Refused if only a person can make it so.
    Message(MessageId),
    /// The message was confirmed by the agent, is past that, or is left to a person.
    Accepted(MessageId),
    /// The session runs, or it has ended and no start is due.
    Started,
    /// The agent is in this state. Refused if the session has ended, so that the state cannot be reached.
    Activity(ActivityState),
    /// The session runs and its agent is ready: its start hook reported, or its screen shows the composer or
    /// a question. True at once for programs without such signs. Also true if the session has ended and no
    /// start is due.
    Ready,
}

/// `events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Selects the events after this one.
    pub since: Seq,
    /// Maximum number of events.
    pub limit: u32,
}

/// `events --follow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    /// The event after which to begin; if absent, the whole state comes first.
    pub since: Option<Seq>,
}
