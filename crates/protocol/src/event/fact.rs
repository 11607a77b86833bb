//! The event type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::agent::AgentEvent;
use super::lane::LaneEvent;
use crate::clock::Clock;
use crate::ids::{Epoch, GeneratorId, MessageId, OpId, ProcId, ServerId, SessionId, Tag, Token};
use crate::message::{Breaker, Message, MessageStatus};
use crate::policy::{Budget, DrainDeadline, Policy};
use crate::reap::{Action, CandidateKind, Outcome, Rule};
use crate::session::{Conversation, DeleteMode, Exit, Incarnation, Reason, Session, SessionLock};
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;
use crate::usage::Account;

/// A fact about the pool. Its variants never move: the encoding counts them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// `poold` started. All tokens of earlier epochs are smaller than those of this one.
    PoolStarted {
        /// The new epoch.
        epoch: Epoch,
        /// The daemon's version.
        build: String,
        /// The boot id of the machine.
        boot: String,
    },
    /// High-water mark of session ids: no lower id is ever issued again. Never in the journal.
    NextSession {
        /// The next `N` of `sess_N`.
        next: u64,
    },
    /// A session is to be created: its record, in state `starting`.
    SessionCreated(Box<Session>),
    /// Another incarnation of a session is to be started.
    SessionStarting {
        /// The session.
        session: SessionId,
        /// The incarnation to start.
        incarnation: Incarnation,
        /// Number of incarnations, including this one.
        incarnations: u32,
        /// Number of restarts, including this one.
        restarts: u32,
    },
    /// The session's incarnation was seen running.
    SessionLive {
        /// The session.
        session: SessionId,
        /// The incarnation with all its ids.
        incarnation: Incarnation,
        /// True if it was found again after a restart of `poold`.
        recovered: bool,
    },
    /// The session was renamed.
    SessionRenamed {
        /// The session.
        session: SessionId,
        /// The new name.
        name: Name,
    },
    /// The session's labels changed.
    SessionLabelled {
        /// The session.
        session: SessionId,
        /// All labels.
        labels: BTreeMap<String, String>,
    },
    /// The session's incarnation is ending.
    SessionDraining {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: Reason,
        /// The program's exit status, if known.
        exit: Option<Exit>,
        /// Time since which complete listings lack the incarnation.
        missing_since: Option<Timestamp>,
    },
    /// The session's incarnation is proved gone.
    SessionStopped {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: Reason,
        /// The program's exit status, if known.
        exit: Option<Exit>,
    },
    /// The session's tmux server is proved gone.
    SessionLost {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: Reason,
        /// The program's exit status, if known.
        exit: Option<Exit>,
    },
    /// The creation of the session failed.
    SessionFailed {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: Reason,
        /// A sentence for people.
        detail: String,
        /// The exit status, if the program could not be executed.
        exit: Option<Exit>,
    },
    /// The session's record was deleted.
    SessionDeleted {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: Reason,
        /// The way in which the record was removed.
        mode: DeleteMode,
        /// True if the tmux session continues to run.
        tmux_alive: bool,
    },
    /// Frequently changing properties, as seen in a listing. Updates the record only; never in the journal.
    SessionObserved {
        /// The session.
        session: SessionId,
        /// The time of the listing.
        at: Timestamp,
        /// True if the pane's terminal was closed.
        dead: bool,
        /// Number of attached clients.
        attached: u32,
        /// The program in the foreground.
        current_command: Option<OsBytes>,
    },
    /// An incarnation has ended: a pane that still carries its tag is a leftover.
    TagRetired {
        /// The tag of the incarnation.
        tag: Tag,
        /// The session that the incarnation belonged to.
        session: SessionId,
    },
    /// A message is on disk.
    MessageQueued(Box<Message>),
    /// The status of a message changed.
    MessageChanged {
        /// The message.
        id: MessageId,
        /// The session of the message.
        session: SessionId,
        /// The whole new status.
        status: Box<MessageStatus>,
    },
    /// The retention time of a message expired. Never in the journal.
    MessageForgotten {
        /// The message.
        id: MessageId,
        /// The session of the message.
        session: SessionId,
    },
    /// The reaper took a lease.
    ReapStarted {
        /// The session.
        session: SessionId,
        /// The kind of candidate.
        kind: CandidateKind,
        /// The incarnation to end.
        tag: Tag,
        /// The token of the lock.
        token: Token,
    },
    /// A lease was settled.
    ReapFinished {
        /// The session.
        session: SessionId,
        /// The kind of candidate.
        kind: CandidateKind,
        /// The incarnation.
        tag: Tag,
        /// The outcome.
        outcome: Outcome,
    },
    /// A watcher connected.
    WatcherConnected {
        /// The watcher's name and version.
        build: String,
    },
    /// The watcher disconnected. The state is unverified until another one connects.
    WatcherLost {
        /// The reason.
        reason: String,
    },
    /// Another tmux server answers, or none.
    TmuxServerChanged {
        /// The server that answers, if any.
        server: Option<ServerId>,
    },
    /// An operation was answered; a retry gets the same answer. Never in the journal.
    OperationDone {
        /// The operation id.
        op: OpId,
        /// Digest of the request.
        digest: u64,
        /// The encoded reply.
        reply: Vec<u8>,
        /// The time of the answer.
        at: Timestamp,
    },
    /// An operation began whose outcome depends on this session. Never in the journal.
    OperationBegun {
        /// The operation id.
        op: OpId,
        /// Digest of the request.
        digest: u64,
        /// The session that it creates or changes.
        session: SessionId,
        /// The time of the beginning.
        at: Timestamp,
    },
    /// The retention time of an operation id expired. Never in the journal.
    OperationForgotten {
        /// The operation id.
        op: OpId,
    },
    /// The ids of the incarnation in tmux are known, but not yet that it runs. Never in the journal.
    SessionPlaced {
        /// The session.
        session: SessionId,
        /// The incarnation with all ids known so far; its tag is the same.
        incarnation: Incarnation,
    },
    /// A tmux session outside of the pool appeared or was renamed. The pool never touches it.
    ForeignSeen {
        /// The id in tmux.
        tmux: crate::TmuxSessionId,
        /// The name as tmux shows it.
        name: String,
    },
    /// A tmux session outside of the pool disappeared, or was adopted by the pool.
    ForeignGone {
        /// The id in tmux.
        tmux: crate::TmuxSessionId,
        /// The last name.
        name: String,
    },
    /// A generator registered.
    GeneratorRegistered {
        /// The id: the sequence number of this event.
        id: GeneratorId,
        /// The session whose messages it works on; absent if it may be several.
        session: Option<SessionId>,
        /// The kinds of messages that it requests; empty for all except prompts.
        kinds: Vec<String>,
        /// The process, if the system tells.
        process: Option<ProcId>,
    },
    /// A generator ended or disconnected.
    GeneratorEnded {
        /// The id.
        id: GeneratorId,
        /// The session whose messages it worked on; absent if it may have been several.
        session: Option<SessionId>,
        /// The reason.
        reason: String,
    },
    /// The circuit breaker of a kind of messages changed. In the journal only if it opened or closed.
    BreakerChanged {
        /// The session of the messages.
        session: SessionId,
        /// The kind of messages.
        kind: String,
        /// The new state of the breaker; the default if no attempt failed.
        breaker: Breaker,
        /// True if the breaker opened or closed.
        turned: bool,
    },
    /// The session's incarnation is proved gone, and the session is parked until it is woken.
    SessionParked {
        /// The session.
        session: SessionId,
        /// The reason.
        reason: Reason,
        /// The program's exit status, if known.
        exit: Option<Exit>,
    },
    /// The session's policy changed.
    SessionPolicyChanged {
        /// The session.
        session: SessionId,
        /// The whole new policy.
        policy: Policy,
    },
    /// The session's restart budget changed. In the journal only if it is exhausted.
    BudgetChanged {
        /// The session.
        session: SessionId,
        /// The whole new budget.
        budget: Budget,
    },
    /// The agent's conversation began or was replaced. Never in the journal.
    ConversationChanged {
        /// The session.
        session: SessionId,
        /// The conversation.
        conversation: Option<Conversation>,
    },
    /// The total resource usage of the session's last program is known. Never in the journal.
    SessionAccounted(SessionId, Account),
    /// The session exceeded a limit.
    LimitExceeded {
        /// The session.
        session: SessionId,
        /// The limit: `memory`, `disk` or `run_time`.
        limit: String,
        /// The amount used, in bytes or milliseconds.
        used: u64,
        /// The amount allowed.
        allowed: u64,
        /// True if the session is ended because of it.
        ended: bool,
    },
    /// Another process took over writing the session's log, whose output may have a gap.
    LogResumed {
        /// The session.
        session: SessionId,
    },
    /// A user's lock on the session was granted.
    LockGranted {
        /// The session.
        session: SessionId,
        /// The lock.
        lock: SessionLock,
    },
    /// The session's lock was released, or its holder is proved dead.
    LockReleased {
        /// The session.
        session: SessionId,
        /// The token of the lock.
        token: Token,
        /// The reason.
        reason: String,
    },
    /// The session's lock was revoked: by force, or because its lease expired.
    LockRevoked {
        /// The session.
        session: SessionId,
        /// The token of the lock.
        token: Token,
        /// The reason.
        reason: String,
    },
    /// A reap rule applies.
    StaleFound {
        /// The session.
        session: SessionId,
        /// The rule.
        rule: Rule,
        /// The action taken.
        action: Action,
        /// A sentence of evidence.
        evidence: String,
    },
    /// A prompt was sent under the session's lock. Never in the journal.
    #[serde(rename = "lock_fed")]
    LockUsedForSend {
        /// The session.
        session: SessionId,
        /// The token of the lock.
        token: Token,
        /// The prompt.
        message: MessageId,
    },
    /// A fact about the session's agent.
    Agent(AgentEvent),
    /// No process or pane carries the tag of an ended incarnation any more. Never in the journal.
    TagForgotten(Tag),
    /// The clocks were read: see [`Clock::read_at`] for when. Never in the journal.
    ClockRead(Clock),
    /// The drain of the session got a deadline.
    DrainDeadlineSet(SessionId, DrainDeadline),
    /// A user asked for this time between TERM and KILL, in milliseconds, for an end. Never in the journal.
    GraceAsked(SessionId, u64),
    /// Keys were pressed in the session's terminal at the request of a user. Never in the journal.
    KeysPressed(SessionId),
    /// A worker of the pool was changed by the configuration. Never in the journal.
    WorkerChanged(Box<crate::session::WorkerChange>),
    /// The messages of a kind stand still, or move again.
    Lane(LaneEvent),
}
