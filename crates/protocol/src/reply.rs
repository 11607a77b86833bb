//! Replies and all other frames that `poold` sends.

mod agent;
mod lock;
mod queue;
mod reap;
mod session;
mod status;
mod terminal;
mod usage;

use serde::{Deserialize, Serialize};

use crate::event::Stamped;
use crate::hook::Decision;
use crate::ids::{Seq, ServerId, SessionId};
use crate::message::{Claimed, Message};
use crate::reap::{Candidate, Lease};
use crate::refusal::Refusal;
use crate::request::Observe;
use crate::text::OsBytes;
use crate::tmux::TmuxTransport;

pub use agent::{InboxItem, Theme};
pub use lock::{LockView, Locked};
pub use queue::{BreakerView, Checked, ClaimView, GeneratorView, QueueCounts, Registered, Sent};
pub use reap::{Explained, Pruned};
pub use session::{
    DROWSY_AFTER_MS, PaneObservation, REPLAY_CHARS, SessionView, TransportHealth, TreeProcess,
};
pub use status::{Capacity, Component, PendingAsk, Status, TmuxStatus};
pub use terminal::{AttachCommand, Terminal};
pub use usage::UsageView;

/// The outcome of a request. Transport errors are separate: see [`crate::TransportError`].
pub type Reply = Result<Response, Refusal>;

/// A frame from `poold` after its welcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// The last frame of the answer to a call.
    Reply {
        /// The call's id.
        id: u64,
        /// The outcome.
        reply: Reply,
    },
    /// A part of a long answer. More frames with this id follow.
    Part {
        /// The call's id.
        id: u64,
        /// The part.
        part: Response,
    },
    /// To a subscriber: an event.
    Event {
        /// The event.
        stamped: Box<Stamped>,
        /// True if the event is part of the initial state.
        snapshot: bool,
    },
    /// To a subscriber: the initial state is complete.
    Synced {
        /// The last event included in the state. The changes after it follow.
        seq: Seq,
    },
    /// To a subscriber: it was too slow and is disconnected. It subscribes again with `since: from`.
    Lagged {
        /// The last event sent.
        from: Seq,
        /// The first event after those that it missed.
        to: Seq,
    },
    /// To a watcher: a command.
    #[serde(rename = "ask")]
    Command(WatcherCommand),
    /// To a subscriber of tmux: the frames of the watcher, beginning with a snapshot of their sum so far.
    Observed(Box<Observe>),
    /// To a subscriber of a session's output: bytes of its log.
    Output {
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        bytes: OsBytes,
    },
    /// To a subscriber of a session's output: earlier bytes are no longer kept.
    Truncated {
        /// The offset of the next byte sent.
        offset: u64,
    },
    /// To a subscriber of a session's output: the session ended or was removed, and its whole output was
    /// sent.
    Closed {
        /// The offset of the end of the log.
        offset: u64,
    },
}

/// A command of `poold` to its watcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatcherCommand {
    /// The first command: the tmux server to watch.
    Watch(WatchSetup),
    /// Take a snapshot from a listing that begins now.
    Snapshot {
        /// The number with which the answer is marked.
        n: u64,
    },
}

/// The parameters of watching.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchSetup {
    /// The tmux program.
    pub binary: OsBytes,
    /// The tmux server's socket.
    pub socket: OsBytes,
    /// Maximum time between two frames, in milliseconds.
    pub heartbeat_ms: u64,
    /// True if it is the pool's own server. Only there may the watcher create its hidden session.
    pub own: bool,
    /// The transport to use; defaults to the best that works.
    pub means: Option<TmuxTransport>,
    /// Time between two complete listings, in milliseconds; by default it depends on the number of panes.
    pub sweep_ms: Option<u64>,
    /// The server on record, unless it is proved dead. It may live although nothing answers at the socket.
    pub server: Option<ServerId>,
}

/// The answer to a successful request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// Success without a value.
    Done,
    /// The watcher must send a snapshot.
    SendSnapshot,
    /// The status of the pool.
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
    /// The command that attaches.
    Attach(AttachCommand),
    /// A piece of a screen.
    Screen(OsBytes),
    /// The location of log files.
    Logs(LogFiles),
    /// Events.
    Events(Vec<Stamped>),
    /// A text.
    Text(String),
    /// Candidates of the reaper.
    Candidates(Vec<Candidate>),
    /// A lease of the reaper.
    Lease(Box<Lease>),
    /// A message is on disk.
    Sent(Box<Sent>),
    /// A generator is registered.
    Registered(Registered),
    /// Claimed messages.
    Claimed(Vec<Claimed>),
    /// Messages were purged.
    Purged {
        /// Number of messages.
        messages: u64,
    },
    /// Generators.
    Generators(Vec<GeneratorView>),
    /// The body of a message.
    Body(OsBytes),
    /// The result of a check of the database.
    Checked(Checked),
    /// The database was compacted.
    Compacted {
        /// Size of the file before, in bytes.
        before: u64,
        /// Size of the file after, in bytes.
        after: u64,
    },
    /// The result of a pruning.
    Pruned(Pruned),
    /// Resource usage of sessions.
    Usage(Vec<UsageView>),
    /// A lock was granted.
    Locked(Locked),
    /// The result of each reap rule.
    Explained(Vec<Explained>),
    /// The decision on a permission request.
    Decided(Decision),
    /// A terminal.
    Terminal(Box<Terminal>),
    /// Everything that waits for a person.
    Inbox(Vec<InboxItem>),
}

impl Response {
    /// Appends the next part of a long answer. False if it is of another kind.
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

/// The answer to `sync`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// The program that took the snapshot: `tmux-watch` or `poold`.
    pub by: String,
    /// Number of tmux sessions seen.
    pub sessions: u64,
    /// Number of panes seen.
    pub panes: u64,
    /// Number of tmux sessions seen that are outside of the pool.
    pub foreign: u64,
    /// Sessions of the pool whose records changed.
    pub changed: Vec<SessionId>,
}

/// The answer to `logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFiles {
    /// The directory of the log files; see [`crate::logs`].
    pub dir: OsBytes,
}
