//! Replies and everything else that `poold` sends.

mod agent;
mod life;
mod queue;

use serde::{Deserialize, Serialize};

use crate::activity::{Activity, Notes};
use crate::event::Stamped;
use crate::hook::Decision;
use crate::ids::{Epoch, ProcId, Seq, ServerId, SessionId};
use crate::life::Usage;
use crate::message::{Claimed, Message};
use crate::reap::{Candidate, Lease};
use crate::refusal::Refusal;
use crate::request::Observe;
use crate::session::Session;
use crate::text::OsBytes;
use crate::thought::Thought;
use crate::time::Timestamp;
use crate::tmux::Means;

pub use agent::{Asking, InboxItem, Terminal, Theme};
pub use life::{Explained, LockView, Locked, Pruned, Room, UsageView};
pub use queue::{BreakerView, Checked, GeneratorView, HeldView, Registered, Sent};

/// What a request came to. Transport errors are apart from refusals: they are `io::Error`s.
pub type Reply = Result<Response, Refusal>;

/// A frame from `poold`, after its welcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// The answer to a call; its last frame.
    Reply {
        /// The call's id.
        id: u64,
        /// What it came to.
        reply: Reply,
    },
    /// A part of a long answer; more frames with this id follow.
    Part {
        /// The call's id.
        id: u64,
        /// The part.
        part: Response,
    },
    /// Subscriber: an event; state that is sent first is marked as snapshot.
    Event {
        /// The event.
        stamped: Box<Stamped>,
        /// Whether it belongs to the state at the start.
        snapshot: bool,
    },
    /// Subscriber: the state at the start is complete.
    Synced {
        /// The event after which the changes follow.
        seq: Seq,
    },
    /// Subscriber: too slow, and cut. Subscribe again with `since: from`.
    Lagged {
        /// The last one sent.
        from: Seq,
        /// The newest.
        to: Seq,
    },
    /// Watcher: something is asked of it.
    Ask(Ask),
    /// Subscriber to tmux: what the watcher sent, first a snapshot of all that it sent before.
    Observed(Box<Observe>),
    /// Subscriber to a session's output: bytes of its log.
    Output {
        /// The offset of the first.
        offset: u64,
        /// The bytes.
        bytes: OsBytes,
    },
    /// Subscriber to a session's output: what was before this offset is not kept any more.
    Truncated {
        /// The offset of what comes next.
        offset: u64,
    },
    /// Subscriber to a session's output: the session is over, or was removed, and all it wrote was sent.
    Closed {
        /// The offset of its end.
        offset: u64,
    },
}

/// What `poold` asks of its watcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// First: what to watch.
    Watch(WatchSetup),
    /// A snapshot taken from now on, marked with this number.
    Snapshot {
        /// Its number.
        n: u64,
    },
}

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchSetup {
    /// The tmux program.
    pub binary: OsBytes,
    /// Its socket.
    pub socket: OsBytes,
    /// Longest time between two frames, in milliseconds.
    pub heartbeat_ms: u64,
    /// Whether it is the pool's own server: only there may the watcher make its hidden session.
    pub own: bool,
    /// How it is to learn of changes; the best way that works, where nothing is said.
    pub means: Option<Means>,
    /// Time between two whole listings, in milliseconds; by the number of panes, where nothing is said.
    pub sweep_ms: Option<u64>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// Done, and nothing to show.
    Done,
    /// A watcher must send a snapshot.
    SendSnapshot,
    /// Status.
    Status(Box<Status>),
    /// A snapshot was applied.
    Synced(Synced),
    /// A session.
    Session(Box<SessionView>),
    /// Sessions.
    Sessions(Vec<SessionView>),
    /// A message.
    Message(Box<Message>),
    /// Messages.
    Messages(Vec<Message>),
    /// How to attach.
    Attach(AttachCommand),
    /// A piece of a screen.
    Screen(OsBytes),
    /// Where logs are.
    Logs(LogFiles),
    /// Events.
    Events(Vec<Stamped>),
    /// Text.
    Text(String),
    /// Candidates.
    Candidates(Vec<Candidate>),
    /// A lease.
    Lease(Box<Lease>),
    /// A message is on disk.
    Sent(Box<Sent>),
    /// A generator is registered.
    Registered(Registered),
    /// Messages to work on.
    Claimed(Vec<Claimed>),
    /// So many messages were forgotten.
    Purged {
        /// How many.
        messages: u64,
    },
    /// Generators.
    Generators(Vec<GeneratorView>),
    /// A body.
    Body(OsBytes),
    /// What a check found.
    Checked(Checked),
    /// Space was given back.
    Compacted {
        /// Size of the file before, in bytes.
        before: u64,
        /// And after.
        after: u64,
    },
    /// What was pruned.
    Pruned(Pruned),
    /// What sessions use.
    Usage(Vec<UsageView>),
    /// A lock.
    Locked(Locked),
    /// What each rule says.
    Explained(Vec<Explained>),
    /// A request for a permission was decided.
    Decided(Decision),
    /// A terminal.
    Terminal(Box<Terminal>),
    /// All that waits for a person.
    Inbox(Vec<InboxItem>),
}

impl Response {
    /// Joins the next part of a long answer to this one. False where it is of another kind.
    #[must_use]
    pub fn append(&mut self, next: Self) -> bool {
        match (self, next) {
            (Self::Sessions(all), Self::Sessions(next)) => all.extend(next),
            (Self::Messages(all), Self::Messages(next)) => all.extend(next),
            (Self::Events(all), Self::Events(next)) => all.extend(next),
            (Self::Candidates(all), Self::Candidates(next)) => all.extend(next),
            (Self::Screen(all), Self::Screen(next)) => all.0.extend(next.0),
            (Self::Text(all), Self::Text(next)) => all.push_str(&next),
            (Self::Generators(all), Self::Generators(next)) => all.extend(next),
            (Self::Usage(all), Self::Usage(next)) => all.extend(next),
            (Self::Inbox(all), Self::Inbox(next)) => all.extend(next),
            (_, Self::Done) => {}
            _ => return false,
        }
        true
    }
}

/// A session as it is shown: its record and what is derived from the rest of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The record; its environment is left out.
    pub session: Session,
    /// Counts of its messages.
    pub queue: QueueCounts,
    /// Where its tmux server listens.
    pub tmux_socket: OsBytes,
    /// Who holds its lock, if somebody does.
    pub lock: Option<LockView>,
    /// Working directory of the program in the foreground of its terminal, as last seen.
    pub current_dir: Option<OsBytes>,
    /// The processes of its incarnation, parents first; only where one session is shown.
    pub processes: Vec<TreeProcess>,
    /// What they use; only where one session is shown.
    pub usage: Option<Usage>,
    /// Whether it may be parked to make room for another: its agent can resume, or is said to be parkable.
    pub parkable: bool,
    /// Its place among those that wait for a slot, from 1.
    pub slot_wait: Option<u64>,
    /// What its agent does; unknown where it does not run.
    pub activity: Activity,
    /// What else is known of its agent.
    pub notes: Notes,
    /// What was last published of it.
    pub thought: Option<Thought>,
    /// Why its next prompt is not typed yet, where one waits.
    pub waits: Option<String>,
    /// How its agent's prompts are confirmed: `hook`, `echo`, `prompt`, `none`.
    pub confirm: String,
    /// The colours of its repository; only where one session is shown.
    pub theme: Option<Theme>,
}

/// A process of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeProcess {
    /// Which.
    pub process: ProcId,
    /// Its parent's number.
    pub parent: u32,
    /// Its name as the kernel keeps it.
    pub command: OsBytes,
}

/// Counts of a session's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Waiting.
    pub queued: u64,
    /// In flight.
    pub claimed: u64,
    /// In doubt.
    pub in_doubt: u64,
    /// Dead.
    pub dead: u64,
    /// When the oldest waiting one was queued.
    pub oldest_at: Option<Timestamp>,
}

/// `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The pool's name.
    pub pool: String,
    /// The daemon's name and version.
    pub build: String,
    /// The daemon's process.
    pub process: ProcId,
    /// The daemon's start number.
    pub epoch: Epoch,
    /// The last event committed.
    pub seq: Seq,
    /// When the daemon started.
    pub started_at: Timestamp,
    /// The other components.
    pub components: Vec<Component>,
    /// The tmux server.
    pub tmux: TmuxStatus,
    /// Sessions in each lifecycle state, by its word.
    pub sessions: Vec<(String, u64)>,
    /// Slots taken.
    pub slots_used: u64,
    /// Slots there are.
    pub slots_max: u64,
    /// Counts over all queues.
    pub queue: QueueCounts,
    /// tmux sessions on the socket that are not the pool's, which are never touched.
    pub foreign: Vec<String>,
    /// Size of the database file in bytes.
    pub database_bytes: u64,
    /// Records that could not be read and were put aside.
    pub quarantined: u64,
    /// Free space where the database is, in bytes, where the system tells.
    pub free_bytes: Option<u64>,
    /// Kinds of messages that are held back.
    pub breakers: Vec<BreakerView>,
    /// Generators that are connected.
    pub generators: u64,
    /// Where the state is.
    pub state_dir: OsBytes,
    /// What is wrong, each a sentence with what to do. Healthy is when there is none.
    pub problems: Vec<String>,
    /// What room there is for sessions, and how they can be bounded.
    pub room: Room,
    /// Sessions that wait for a person, the longest waiting first. Nothing is wrong with them.
    pub asking: Vec<Asking>,
    /// How much waits for a person in all: `inbox`.
    pub inbox: u64,
}

/// A component of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// `tmux-watch`, `reaper`.
    pub name: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Its build, while it is.
    pub build: Option<String>,
    /// Its pid, where the system tells.
    pub pid: Option<u32>,
    /// Since when it is as it is.
    pub since: Timestamp,
}

/// The tmux server, as last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TmuxStatus {
    /// Its socket.
    pub socket: OsBytes,
    /// `up`, `replaced` (another one answers and that of some sessions lives), `absent`, or what is the
    /// matter: `stopped`, `spinning`, `unreachable`, `full`, `forbidden`, `no_tmux`, `unknown`.
    pub state: String,
    /// Why it is so, and what to do.
    pub detail: Option<String>,
    /// How the watcher learns of changes, while there is one.
    pub means: Option<Means>,
    /// Files that the server has open, and how many it may have, where the system tells.
    pub open_files: Option<(u64, u64)>,
    /// Which server.
    pub server: Option<ServerId>,
    /// When it was last seen.
    pub seen_at: Option<Timestamp>,
}

/// `sync`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// Who took the snapshot: `tmux-watch` or `poold`.
    pub by: String,
    /// tmux sessions seen.
    pub sessions: u64,
    /// Panes seen.
    pub panes: u64,
    /// How many of them are not the pool's.
    pub foreign: u64,
    /// Pool sessions whose record changed.
    pub changed: Vec<SessionId>,
}

/// `attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachCommand {
    /// The command line to become.
    pub argv: Vec<OsBytes>,
    /// A sentence for people before it starts (nesting).
    pub hint: Option<String>,
}

/// `logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFiles {
    /// The directory that they are in, as [`crate::logs`] has it.
    pub dir: OsBytes,
}
