//! The view of a session: its record and what is derived from the rest of the pool.

use serde::{Deserialize, Serialize};

use super::agent::Theme;
use super::lock::LockView;
use super::queue::QueueCounts;
use crate::activity::{Activity, ActivityState, Notes};
use crate::ids::ProcId;
use crate::session::{Lifecycle, Session};
use crate::text::OsBytes;
use crate::thought::{RestState, Thought, ThoughtState};
use crate::time::Timestamp;
use crate::tmux::TmuxTransport;
use crate::usage::Usage;

/// Idle time after which a session is drowsy, in milliseconds.
pub const DROWSY_AFTER_MS: u64 = 30_000;

/// The view of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The record without its environment.
    pub session: Session,
    /// Counts of its messages.
    pub queue: QueueCounts,
    /// The socket of its tmux server.
    pub tmux_socket: OsBytes,
    /// The holder of its lock.
    pub lock: Option<LockView>,
    /// Working directory of the foreground program, as last seen.
    pub current_dir: Option<OsBytes>,
    /// The processes of its incarnation, parents first. Filled in only where a single session is shown.
    pub processes: Vec<TreeProcess>,
    /// The resource usage of these processes. Filled in only where a single session is shown.
    pub usage: Option<Usage>,
    /// True if it may be parked to free its slot: its agent can resume, or is declared parkable.
    pub parkable: bool,
    /// The position in the queue for a slot, from 1.
    pub slot_wait: Option<u64>,
    /// The activity of its agent; unknown while the agent does not run.
    pub activity: Activity,
    /// Further facts about its agent.
    pub notes: Notes,
    /// The last published thought.
    pub thought: Option<Thought>,
    /// The reason why its next prompt is not typed yet.
    pub waits: Option<String>,
    /// The way in which its agent's prompts are confirmed: `hook`, `echo`, `prompt`, `none`.
    pub confirm: String,
    /// The colours of its repository. Filled in by [`crate::Request::Show`] and [`crate::Request::Snapshot`].
    pub theme: Option<Theme>,
    /// Regular expressions of the lines of its output that count as errors.
    pub error_patterns: Vec<String>,
    /// The last [`REPLAY_CHARS`] characters of its output, without control sequences. Filled in by
    /// [`crate::Request::Snapshot`].
    pub replay: Option<String>,
    /// The state of the observation of its pane.
    pub transport_health: TransportHealth,
    /// The plan that its agent last proposed. Filled in by [`crate::Request::Show`].
    pub plan: Option<String>,
    /// The files that its agent wrote, the last one first. Filled in by [`crate::Request::Show`].
    pub files: Vec<String>,
}

/// Characters of the end of a session's output that are shown.
pub const REPLAY_CHARS: usize = 500;

/// The observation of a session's pane: its state, the watcher's means, and the last trouble.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TransportHealth {
    /// The state.
    pub state: PaneObservation,
    /// The watcher's way of noticing changes; none without a watcher.
    pub means: Option<TmuxTransport>,
    /// The time since which the state holds; for [`PaneObservation::Stale`] that of the last observation.
    pub since: Option<Timestamp>,
    /// The last trouble of observing the tmux server since the daemon's start, which may be over.
    pub last_error: Option<String>,
    /// The time of that trouble.
    pub last_error_at: Option<Timestamp>,
}

/// The states of the observation of a pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaneObservation {
    /// A watcher sees the pane and reports its changes.
    Observed,
    /// The pane's state dates from an earlier observation.
    Stale,
    /// The pane was not seen, or the session has none.
    #[default]
    Unobserved,
}

impl SessionView {
    /// True if its agent works, or a message waits or is in flight.
    pub fn has_work(&self) -> bool {
        let queue = &self.queue;
        self.activity.state == ActivityState::Busy || queue.queued + queue.claimed + queue.in_doubt > 0
    }

    /// Returns its status while it is live or draining: `active`, `idle` or `draining`.
    pub fn status(&self) -> Option<&'static str> {
        match self.session.lifecycle {
            Lifecycle::Live if self.has_work() => Some("active"),
            Lifecycle::Live => Some("idle"),
            Lifecycle::Draining => Some("draining"),
            _ => None,
        }
    }

    /// Returns its rest state. A parked session sleeps, because a prompt wakes it; any other that does not
    /// run is in deep sleep. A session that works or waits for a person does not rest. For an idle session
    /// the last thought decides, or without one the idle time, which never makes it sleep. An idle time that
    /// begins in the future counts as zero.
    pub fn rest_state(&self, now: Timestamp) -> RestState {
        match self.session.lifecycle {
            Lifecycle::Parked => return RestState::Sleeping,
            Lifecycle::Stopped | Lifecycle::Lost | Lifecycle::Failed => return RestState::DeepSleep,
            Lifecycle::Starting | Lifecycle::Draining => return RestState::Active,
            Lifecycle::Live => {}
        }
        let idle_since = match self.activity.state {
            ActivityState::Idle => self.activity.since,
            ActivityState::Unknown => self.session.last_activity_at,
            ActivityState::Busy | ActivityState::Attention | ActivityState::Error => {
                return RestState::Active;
            }
        };
        if self.has_work() {
            return RestState::Active;
        }
        let long_idle = now.0.saturating_sub(idle_since.0) >= DROWSY_AFTER_MS;
        let by_time = if long_idle { RestState::Drowsy } else { RestState::Active };
        let Some(thought) = &self.thought else { return by_time };
        thought.rest_state.unwrap_or(match thought.state {
            ThoughtState::Active => by_time,
            ThoughtState::Holding => RestState::Drowsy,
            ThoughtState::Sleeping => RestState::Sleeping,
        })
    }

    /// Returns the number of tokens in its agent's conversation: the published one, else the observed one.
    pub fn tokens(&self) -> Option<u64> {
        let published = self.thought.as_ref().map(|thought| thought.token_count).filter(|tokens| *tokens > 0);
        published.or(self.notes.tokens)
    }

    /// Returns the size of its agent's context window in tokens: the published one, else the configured one.
    pub fn context_limit(&self) -> Option<u64> {
        let published = self.thought.as_ref().map(|thought| thought.context_limit).filter(|limit| *limit > 0);
        published.or(self.session.spec.context_limit)
    }
}

/// A process of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeProcess {
    /// The process.
    pub process: ProcId,
    /// The pid of its parent.
    pub parent: u32,
    /// The name in the kernel.
    pub command: OsBytes,
}
