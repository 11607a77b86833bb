//! Requests: one struct a verb, named like the verb.

mod agent;
mod life;
mod queue;
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
use crate::tmux::{Means, TmuxState};

pub use agent::Approve;
pub use life::{Lock, New, Park, Pin, Prune, Restore, Update};
pub use queue::{
    Ack, CLAIM_MAX, Claim, Fail, Held, Messages, Purge, Register, Resolution, ResolveMessage, Send, Then,
};
pub use terminal::{Attach, Capture, Extent, INPUT_MAX, Input, Keys, Output, Resize};

/// One request on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Chosen by the client; the reply carries it. At most 64 calls of a connection are under way.
    pub id: u64,
    /// Makes a mutating request repeatable; required for those.
    pub op: Option<OpId>,
    /// The lock under which it is made, inside `poolctl lock`.
    pub lock: Option<Token>,
    /// What is asked.
    pub request: Request,
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Is the daemon there? Answered through the engine. → `Done`
    Ping,
    /// → `Status`
    Status,
    /// A full snapshot of tmux now, applied before the answer. → `Synced`
    Sync,
    /// Create a session. → `Session`, when it is verified running. Mutates.
    New(Box<New>),
    /// → `Sessions`, in parts
    List(List),
    /// → `Session`
    Show(SessionRef),
    /// → `Attach`
    Attach(Attach),
    /// Queue a message. → `Sent`, once it is on disk. Mutates.
    Send(Send),
    /// → `Message`
    ShowMessage(MessageId),
    /// → `Messages`, those of a session that are not final, and the newest that are
    ListMessages(SessionRef),
    /// End an in-doubt message. → `Message`. Mutates.
    ResolveMessage(ResolveMessage),
    /// Raw keys at once. → `Done`. Mutates.
    Keys(Keys),
    /// → `Screen`, in parts
    Capture(Capture),
    /// Where the session's logs are. → `Logs`
    Logs(SessionRef),
    /// End a session's incarnation, verified. → `Session`. Mutates.
    Kill(Kill),
    /// Remove a session's record. → `Done`. Mutates.
    Remove(Remove),
    /// → `Session`. Mutates.
    Rename(Rename),
    /// Set and remove labels. → `Session`. Mutates.
    Label(Label),
    /// End the incarnation, if one runs, and start another. → `Session`. Mutates.
    Restart(Restart),
    /// Block until it is so; looks first. → `Session` or `Message`
    Wait(Wait),
    /// A part of the journal. → `Events`, in parts
    Events(Events),
    /// Subscriber only: the state, then changes. Not answered; frames follow.
    Subscribe(Subscribe),
    /// The configuration in force, as TOML. → `Text`
    Config,
    /// Read the configuration file again. → `Text`: what changed and what needs a restart
    ConfigReload,
    /// What the reaper would do now. → `Candidates`
    Candidates,
    /// Reaper only: wait this long for a candidate. → `Candidates` (none or one)
    NextCandidate {
        /// At most this long, in milliseconds.
        wait_ms: u64,
    },
    /// Reaper only: take the lease on a candidate. → `Lease`
    TakeLease {
        /// The candidate's session.
        session: SessionId,
        /// The candidate's incarnation.
        tag: Tag,
    },
    /// Reaper only: report. → `Done`
    Settle(Verdict),
    /// Watcher only: what is seen. → `Done`, or `SendSnapshot` after a gap
    Observe(Observe),
    /// Watcher only: how it learns of changes. → `Done`
    WatchingBy(Means),
    /// Take in a tmux session that the pool did not create. → `Session`. Mutates.
    Adopt(Adopt),
    /// Subscriber only: tmux as `poold` has it, then what its watcher sends. Not answered; frames follow.
    Watch,
    /// Generator only, first: what it works. → `Registered`
    Register(Register),
    /// Take messages to work on, waiting for them. → `Claimed`, none where the wait ran out. With an
    /// operation id a repeat gets the same messages while they are held.
    Claim(Claim),
    /// Still at work on these: their leases begin anew. → `Done`, or conflict where a token is stale
    Heartbeat(Vec<Held>),
    /// It is worked. → `Message`; a repeat with the same token gets it again
    Ack(Ack),
    /// It is not. → `Message`; a repeat with the same token gets it again
    Fail(Fail),
    /// Cancel what waits, is in doubt, or is being worked. → `Message`. Mutates.
    Cancel(MessageId),
    /// Queue a dead, cancelled, expired or in-doubt message again, or one that waits for its next try at
    /// once; closes the breaker of its kind. → `Message`. Mutates.
    Retry(MessageId),
    /// Forget messages that are over. → `Purged`. Mutates.
    Purge(Purge),
    /// → `Generators`
    Generators,
    /// The messages of a session, with bodies only where one is asked for by its id. → `Messages`, in parts
    Messages(Messages),
    /// The body of a message. → `Body`
    Body(MessageId),
    /// The whole database as JSON lines. → `Text`, in parts
    Export,
    /// A consistent copy of the database, made while it is in use. → `Text`: what was written. The file must
    /// not be there yet.
    Backup {
        /// Its absolute path.
        path: OsBytes,
    },
    /// Read every record and compare it with what is in memory. → `Checked`
    Check,
    /// Give unused space of the database back. → `Compacted`. Nothing else is answered meanwhile.
    Compact,
    /// End a session's incarnation to free its slot; a prompt wakes it. → `Session`. Mutates.
    Park(Park),
    /// Start what was parked, lost or stopped. → `Session`, when it is verified running; for all that were
    /// lost `Sessions`, which are then started one after the other. Mutates.
    Restore(Restore),
    /// Take no more messages, finish what is queued, then stop. → `Session`, at once. Mutates.
    Drain(SessionRef),
    /// → `Session`. Mutates.
    Pin(Pin),
    /// Empty a session's log and its terminal's history. → `Done`. Mutates.
    Clear(SessionRef),
    /// Remove what is over, and directories that belong to nobody. → `Pruned`. Mutates.
    Prune(Prune),
    /// What running sessions use: one, or all. → `Usage`, in parts
    Usage(Option<SessionRef>),
    /// Hold a session's lock, waiting for it. → `Locked`, once it is on disk. A repeat with the same operation id
    /// gets the same lock while it is held. Mutates.
    Lock(Lock),
    /// Still holding this lock: its lease begins anew. → `Done`, or conflict where it is not valid any more
    RenewLock {
        /// Whose lock.
        session: SessionId,
        /// Which.
        token: Token,
    },
    /// Give a lock back; done already where it is not held any more. → `Done`
    Unlock {
        /// Whose lock.
        session: SessionId,
        /// Which.
        token: Token,
    },
    /// What each rule says of a session. → `Explained`
    Explain(SessionRef),
    /// Look now for what should be dead. → `Candidates`: what there is. Mutates.
    Reap {
        /// Let those that are named now be ended whatever the limit of kills a minute says.
        force: bool,
    },
    /// Change what becomes of a session. → `Session`. Mutates.
    Update(Update),
    /// What an agent's hook says. → `Done`, once it is taken in; for a request for a permission `Decided`, once
    /// somebody has decided, or `Done` where that is left to the terminal
    Hook(Box<Hook>),
    /// Answer the request for a permission that a session waits on. → `Session`. Mutates.
    Approve(Approve),
    /// Publish a thought. → `Session`, once it is on disk; an older one of its stream changes nothing. Mutates.
    Publish(Box<Publish>),
    /// Subscriber only: what a session writes, as bytes of its log. Not answered; frames follow.
    Output(Output),
    /// A session's terminal as it is now, to begin from. → `Terminal`
    Terminal(SessionRef),
    /// Bytes into a session's terminal, at once and as they are. → `Done`. Mutates.
    Input(Input),
    /// Another size for a session's terminal. → `Done`. Mutates.
    Resize(Resize),
    /// A hook has the decision that it waited for, and its agent took it. → `Done`
    DecisionTaken {
        /// Whose hook.
        session: SessionId,
        /// Of which request: the id of the hook's report.
        #[serde(with = "crate::wide")]
        ask: u64,
    },
    /// All that waits for a person. → `Inbox`, in parts
    Inbox,
}

/// `ls`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct List {
    /// Stopped, parked, lost and failed ones too.
    pub all: bool,
    /// Only those in this state.
    pub state: Option<Lifecycle>,
    /// Only those with all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Only those of this agent kind.
    pub agent: Option<String>,
}

/// `kill`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// Which session.
    pub session: SessionRef,
    /// Time between TERM and KILL, in milliseconds; defaults to the configuration's.
    pub grace_ms: Option<u64>,
}

/// `rm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remove {
    /// Which session.
    pub session: SessionRef,
    /// Forget it and let tmux keep it.
    pub keep_tmux: bool,
    /// Even with work in flight or a client attached.
    pub force: bool,
    /// Its directory too.
    pub purge: bool,
    /// First write what it leaves to an archive, and read that again.
    pub archive: bool,
}

/// `rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rename {
    /// Which session.
    pub session: SessionRef,
    /// The new name.
    pub name: String,
}

/// `label`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// Which session.
    pub session: SessionRef,
    /// Set these.
    pub set: BTreeMap<String, String>,
    /// Remove these.
    pub remove: Vec<String>,
}

/// `restart`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// Which session.
    pub session: SessionRef,
    /// Time between TERM and KILL, in milliseconds; defaults to the configuration's.
    pub grace_ms: Option<u64>,
    /// Begin a new conversation instead of taking up the last one.
    pub fresh: bool,
    /// How long to wait for a slot, in milliseconds; the configuration's time where nothing is said.
    pub wait_slot_ms: Option<u64>,
}

/// `wait`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// For which session.
    pub session: SessionRef,
    /// For what: the first of these that is so.
    pub until: Vec<Until>,
    /// At most this long, in milliseconds; without it, for ever.
    pub timeout_ms: Option<u64>,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// Its program ended and everything it wrote is in the log.
    Exit,
    /// Nothing waits or is in flight in its queue.
    QueueEmpty,
    /// This message is final.
    Message(MessageId),
    /// This message was taken: its agent confirmed it, or it is further.
    Accepted(MessageId),
    /// It runs, or it is over and nobody is about to start it.
    Started,
    /// Its agent does this. One that cannot any more, because the session is over, is refused.
    Activity(ActivityState),
    /// It runs, and its agent has begun: its start hook was heard, or its screen shows where it takes prompts, or what it
    /// asks. At once for programs of which nothing such is known. Or it is over and nobody is about to start it.
    Ready,
}

/// `events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Those after this one.
    pub since: Seq,
    /// At most so many.
    pub limit: u32,
}

/// `events --follow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribe {
    /// Those after this one; without it the state comes first.
    pub since: Option<Seq>,
}

/// `adopt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// A pane (`%3`), a tmux session (`$3`), or the exact name of one, which then has one pane only.
    pub target: String,
    /// The workspace; defaults to the name.
    pub workspace: Option<String>,
}

/// A watcher's frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// Random per run of a watcher.
    pub watcher: u64,
    /// Counts from 1 within the run; a gap makes `poold` ask for a snapshot.
    pub seq: u64,
    /// The number of the [`crate::reply::Ask::Snapshot`] that this answers, or 0.
    pub asked: u64,
    /// How long before this was sent the look began, in milliseconds: what is younger may be missing in it.
    pub age_ms: u64,
    /// Whether it comes of a listing of the whole server: then what is not in it is absent. Else only
    /// what a diff names was looked at.
    pub complete: bool,
    /// What is seen.
    pub view: View,
}

/// A whole observation, or what changed since the last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// A snapshot. One that does not fit a frame comes in parts, joined before it is applied.
    Snapshot {
        /// The whole, or this part of it.
        state: TmuxState,
        /// Which part it is, from 0: without an earlier one it is no snapshot.
        part: u32,
        /// Whether further parts follow.
        more: bool,
    },
    /// Changes since the last frame.
    Diff(Vec<crate::diff::Change>),
    /// Nothing changed; a complete listing was taken.
    Unchanged,
    /// The server answers; nothing was listed.
    Alive,
}
