//! What is derived of a session's activity, its thought and its work, for everybody who shows sessions.

use crate::activity::ActivityState;
use crate::reply::SessionView;
use crate::session::Lifecycle;
use crate::thought::{RestState, ThoughtState};
use crate::time::Timestamp;

/// How long a session is idle before it is drowsy, in milliseconds.
pub const DROWSY_AFTER_MS: u64 = 30_000;

impl SessionView {
    /// Whether it has something to do: its agent works, or a message waits or is being worked.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let queue = &self.queue;
        self.activity.state == ActivityState::Busy || queue.queued + queue.claimed + queue.in_doubt > 0
    }

    /// The one word for it, only while it is live or draining: `active`, `idle` or `draining`.
    #[must_use]
    pub fn status(&self) -> Option<&'static str> {
        match self.session.lifecycle {
            Lifecycle::Live if self.has_work() => Some("active"),
            Lifecycle::Live => Some("idle"),
            Lifecycle::Draining => Some("draining"),
            _ => None,
        }
    }

    /// How deep it rests. What does not run is in deep sleep, but a parked one only sleeps: a prompt wakes it. What
    /// works, or waits for a person, does not rest. Of one that is idle the last thought says it; without one the
    /// time does, which never says that it sleeps. A time to come says nothing.
    #[must_use]
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

    /// Tokens of its agent's conversation: what was published, else what is known otherwise.
    #[must_use]
    pub fn tokens(&self) -> Option<u64> {
        let published = self.thought.as_ref().map(|thought| thought.token_count).filter(|tokens| *tokens > 0);
        published.or(self.notes.tokens)
    }

    /// How many tokens its agent can keep in mind, likewise.
    #[must_use]
    pub fn context_limit(&self) -> Option<u64> {
        let published = self.thought.as_ref().map(|thought| thought.context_limit).filter(|limit| *limit > 0);
        published.or(self.session.spec.context_limit)
    }
}
