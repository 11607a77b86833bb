//! Events: the one type for facts. The core returns them, the store commits them, every reader folds them. They
//! carry new values, never changes of values, so that applying one twice is applying it once.

mod agent;
mod facts;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::ids::{
    Epoch, GeneratorId, MessageId, OpId, ProcId, ServerId, SessionId, Tag, TmuxSessionId, Token,
};
use crate::life::{Account, Budget, Conversation, Policy};
use crate::message::{Breaker, Message, MessageStatus};
use crate::reap::{Action, CandidateKind, Outcome, Rule};
use crate::session::{DeleteMode, Exit, Incarnation, Reason, Session, SessionLock};
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;

pub use agent::AgentEvent;
pub use facts::Stamped;

/// A fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// `poold` started; every token of an earlier epoch is smaller than any of this one.
    PoolStarted {
        /// The new epoch.
        epoch: Epoch,
        /// The daemon's version.
        build: String,
        /// Identity of the machine's boot.
        boot: String,
    },
    /// High-water mark: no session id below this is ever given out again. Never in the journal: the
    /// creation that raises it is.
    NextSession {
        /// The next `N` of `sess_N`.
        next: u64,
    },
    /// A session was decided upon: its record, `starting`.
    SessionCreated(Box<Session>),
    /// A further incarnation was decided upon.
    SessionStarting {
        /// Which session.
        session: SessionId,
        /// The incarnation to be.
        incarnation: Incarnation,
        /// Incarnations so far, this one included.
        incarnations: u32,
        /// Restarts so far, this one included.
        restarts: u32,
    },
    /// Its incarnation was seen running.
    SessionLive {
        /// Which session.
        session: SessionId,
        /// The incarnation, with all its identities.
        incarnation: Incarnation,
        /// Whether it was found again after a restart of `poold`.
        recovered: bool,
    },
    /// It has a new name.
    SessionRenamed {
        /// Which session.
        session: SessionId,
        /// The new name.
        name: Name,
    },
    /// It has these labels now.
    SessionLabelled {
        /// Which session.
        session: SessionId,
        /// All of its labels.
        labels: BTreeMap<String, String>,
    },
    /// Its incarnation is ending.
    SessionDraining {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: Reason,
        /// How its program ended, where that is known.
        exit: Option<Exit>,
        /// Since when complete listings lack it.
        missing_since: Option<Timestamp>,
    },
    /// Its incarnation is proved gone.
    SessionStopped {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: Reason,
        /// How its program ended, where that is known.
        exit: Option<Exit>,
    },
    /// Its tmux server is proved gone.
    SessionLost {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: Reason,
        /// How its program ended, where that is known.
        exit: Option<Exit>,
    },
    /// Its creation failed.
    SessionFailed {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: Reason,
        /// A sentence for people.
        detail: String,
        /// How its program ended, where it could not be executed.
        exit: Option<Exit>,
    },
    /// Its record is gone.
    SessionDeleted {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: Reason,
        /// How.
        mode: DeleteMode,
        /// Whether its tmux session lives on.
        tmux_alive: bool,
    },
    /// What changes often, seen at a listing. Goes to the row, never to the journal.
    SessionObserved {
        /// Which session.
        session: SessionId,
        /// When it was seen.
        at: Timestamp,
        /// Its pane's terminal was closed.
        dead: bool,
        /// Clients attached.
        attached: u32,
        /// Foreground program.
        current_command: Option<OsBytes>,
    },
    /// The agent's process became known.
    AgentStarted {
        /// Which session.
        session: SessionId,
        /// The incarnation it belongs to.
        tag: Tag,
        /// The init.
        init: ProcId,
        /// The agent.
        agent: ProcId,
    },
    /// An incarnation is over: a pane that still carries its tag is its remains.
    TagRetired {
        /// The tag.
        tag: Tag,
        /// Whose it was.
        session: SessionId,
    },
    /// A message is on disk.
    MessageQueued(Box<Message>),
    /// A message moved on.
    MessageChanged {
        /// Which message.
        id: MessageId,
        /// Whose it is.
        session: SessionId,
        /// How it is now.
        status: Box<MessageStatus>,
    },
    /// A message's record went out of retention. Never in the journal.
    MessageForgotten {
        /// Which message.
        id: MessageId,
        /// Whose it was.
        session: SessionId,
    },
    /// The reaper took a lease.
    ReapStarted {
        /// The session.
        session: SessionId,
        /// Why it is a candidate.
        kind: CandidateKind,
        /// The incarnation to end.
        tag: Tag,
        /// The lock's token.
        token: Token,
    },
    /// A lease was settled.
    ReapFinished {
        /// The session.
        session: SessionId,
        /// Why it was a candidate.
        kind: CandidateKind,
        /// The incarnation.
        tag: Tag,
        /// What came of it.
        outcome: Outcome,
    },
    /// A watcher connected.
    WatcherConnected {
        /// Its build.
        build: String,
    },
    /// The watcher is gone; what follows is unverified until one comes.
    WatcherLost {
        /// Why.
        reason: String,
    },
    /// Another tmux server than before answers, or none.
    TmuxServerChanged {
        /// The server, if one answers.
        server: Option<ServerId>,
    },
    /// An operation was answered; a repeat gets the same answer. Never in the journal.
    OperationDone {
        /// Its id.
        op: OpId,
        /// Digest of its content.
        digest: u64,
        /// The encoded reply.
        reply: Vec<u8>,
        /// When.
        at: Timestamp,
    },
    /// An operation was begun and its outcome hangs on this session. Never in the journal.
    OperationBegun {
        /// Its id.
        op: OpId,
        /// Digest of its content.
        digest: u64,
        /// The session it creates or changes.
        session: SessionId,
        /// When.
        at: Timestamp,
    },
    /// An operation id went out of retention. Never in the journal.
    OperationForgotten {
        /// Its id.
        op: OpId,
    },
    /// More is known of where its incarnation is, though not yet whether it runs. Never in the journal.
    SessionPlaced {
        /// Which session.
        session: SessionId,
        /// The incarnation with what is known of it; of the same tag.
        incarnation: Incarnation,
    },
    /// A tmux session that is not the pool's appeared, or has another name now. It is left alone.
    ForeignSeen {
        /// Its id in tmux.
        tmux: TmuxSessionId,
        /// Its name as tmux shows it.
        name: String,
    },
    /// A tmux session that was not the pool's is gone, or became the pool's.
    ForeignGone {
        /// Its id in tmux.
        tmux: TmuxSessionId,
        /// Its last name.
        name: String,
    },
    /// A generator registered.
    GeneratorRegistered {
        /// Its number: the place of this event.
        id: GeneratorId,
        /// The session whose messages it works.
        session: SessionId,
        /// The kinds that it asks for; none for all but prompts.
        kinds: Vec<String>,
        /// Its process, where the system tells.
        process: Option<ProcId>,
    },
    /// A generator is gone, or left.
    GeneratorEnded {
        /// Its number.
        id: GeneratorId,
        /// The session whose messages it worked.
        session: SessionId,
        /// Why.
        reason: String,
    },
    /// The failures of a kind of messages changed; only opening and closing are in the journal.
    BreakerChanged {
        /// Whose messages.
        session: SessionId,
        /// Their kind.
        kind: String,
        /// How it is now; the default when all is well.
        breaker: Breaker,
        /// Whether it opened or closed with this.
        turned: bool,
    },
    /// Its incarnation is proved gone, and it is put aside to be woken again.
    SessionParked {
        /// Which session.
        session: SessionId,
        /// Why.
        reason: Reason,
        /// How its program ended, where that is known.
        exit: Option<Exit>,
    },
    /// What becomes of it is decided anew.
    SessionPolicyChanged {
        /// Which session.
        session: SessionId,
        /// All of its policy.
        policy: Policy,
    },
    /// Its starts by itself changed. In the journal only where they are used up.
    BudgetChanged {
        /// Which session.
        session: SessionId,
        /// All of its budget.
        budget: Budget,
    },
    /// The conversation of its agent began, or is another one. Never in the journal.
    ConversationChanged {
        /// Which session.
        session: SessionId,
        /// The conversation.
        conversation: Option<Conversation>,
    },
    /// What its program used in all is known. Never in the journal.
    SessionAccounted {
        /// Which session.
        session: SessionId,
        /// What it used.
        account: Account,
    },
    /// It went over a limit.
    LimitExceeded {
        /// Which session.
        session: SessionId,
        /// Which limit: `memory`, `disk`, `run_time`.
        limit: String,
        /// What it uses: bytes, or milliseconds.
        used: u64,
        /// What it may.
        allowed: u64,
        /// Whether it is ended for it.
        ended: bool,
    },
    /// The writer of its log was lost and another one takes over: something may be missing between them.
    LogResumed {
        /// Which session.
        session: SessionId,
    },
    /// Somebody has its lock.
    LockGranted {
        /// Which session.
        session: SessionId,
        /// The lock.
        lock: SessionLock,
    },
    /// Its lock was given back, or its holder is proved dead.
    LockReleased {
        /// Which session.
        session: SessionId,
        /// Which lock.
        token: Token,
        /// Why.
        reason: String,
    },
    /// Its lock was taken away: by force, or because its holder was silent for too long.
    LockRevoked {
        /// Which session.
        session: SessionId,
        /// Which lock.
        token: Token,
        /// Why.
        reason: String,
    },
    /// A rule found something that should be dead.
    StaleFound {
        /// Whose it is.
        session: SessionId,
        /// Which rule.
        rule: Rule,
        /// What is done about it.
        action: Action,
        /// What speaks for it, a sentence.
        evidence: String,
    },
    /// A message was sent under its lock. Never in the journal.
    LockFed {
        /// Which session.
        session: SessionId,
        /// Which lock.
        token: Token,
    },
    /// Something about its agent.
    Agent(AgentEvent),
    /// Nothing bears the mark of an ended incarnation any more. Never in the journal.
    TagForgotten(Tag),
    /// The clock was read at a start, set, or the machine slept. Never in the journal.
    ClockRead(Clock),
}
