//! Properties of each event: its kind, its session, and whether it is kept in the journal.

use super::fact::Event;
use crate::ids::SessionId;

impl Event {
    /// Returns the event kind that users see (`poolctl events`, `--kind`).
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::PoolStarted { .. } => "pool_started",
            Self::NextSession { .. } => "next_session",
            Self::ClockRead(_) => "clock_read",
            Self::TagForgotten(_) => "tag_forgotten",
            Self::SessionCreated(_) => "session_created",
            Self::SessionStarting { .. } => "session_starting",
            Self::SessionLive { .. } => "session_live",
            Self::SessionRenamed { .. } => "session_renamed",
            Self::SessionLabelled { .. } => "session_labelled",
            Self::SessionDraining { .. } => "session_draining",
            Self::SessionStopped { .. } => "session_stopped",
            Self::SessionLost { .. } => "session_lost",
            Self::SessionFailed { .. } => "session_failed",
            Self::SessionDeleted { .. } => "session_deleted",
            Self::SessionObserved { .. } => "session_observed",
            Self::AgentStarted { .. } => "generator_registered",
            Self::TagRetired { .. } => "generator_ended",
            Self::MessageQueued(_) => "message_queued",
            Self::MessageChanged { status, .. } => status.event_kind(),
            Self::MessageForgotten { .. } => "message_forgotten",
            Self::ReapStarted { .. } => "reap_started",
            Self::ReapFinished { .. } => "reap_finished",
            Self::WatcherConnected { .. } => "watcher_connected",
            Self::WatcherLost { .. } => "watcher_lost",
            Self::TmuxServerChanged { .. } => "tmux_server_changed",
            Self::OperationDone { .. } => "operation_done",
            Self::OperationBegun { .. } => "operation_begun",
            Self::OperationForgotten { .. } => "operation_forgotten",
            Self::SessionPlaced { .. } => "session_placed",
            Self::ForeignSeen { .. } => "foreign_seen",
            Self::ForeignGone { .. } => "foreign_gone",
            Self::GeneratorRegistered { .. } => "generator_registered",
            Self::GeneratorEnded { .. } => "generator_ended",
            Self::BreakerChanged { breaker, .. } if breaker.is_open() => "breaker_opened",
            Self::BreakerChanged { .. } => "breaker_closed",
            Self::SessionParked { .. } => "session_parked",
            Self::SessionPolicyChanged { .. } => "session_policy_changed",
            Self::BudgetChanged { .. } => "restarts_exhausted",
            Self::ConversationChanged { .. } => "conversation_changed",
            Self::SessionAccounted { .. } => "session_accounted",
            Self::LimitExceeded { .. } => "limit_exceeded",
            Self::LogResumed { .. } => "log_resumed",
            Self::LockGranted { .. } => "lock_granted",
            Self::LockReleased { .. } => "lock_released",
            Self::LockRevoked { .. } => "lock_revoked",
            Self::StaleFound { .. } => "stale_found",
            Self::LockUsedForSend { .. } => "lock_fed",
            Self::Agent(event) => event.kind(),
        }
    }

    /// Returns the session concerned, if any.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::SessionCreated(session) => Some(session.id),
            Self::MessageQueued(message) => Some(message.session),
            Self::Agent(event) => Some(event.session()),
            Self::SessionStarting { session, .. }
            | Self::SessionLive { session, .. }
            | Self::SessionRenamed { session, .. }
            | Self::SessionLabelled { session, .. }
            | Self::SessionDraining { session, .. }
            | Self::SessionStopped { session, .. }
            | Self::SessionLost { session, .. }
            | Self::SessionFailed { session, .. }
            | Self::SessionDeleted { session, .. }
            | Self::SessionObserved { session, .. }
            | Self::AgentStarted { session, .. }
            | Self::TagRetired { session, .. }
            | Self::MessageChanged { session, .. }
            | Self::MessageForgotten { session, .. }
            | Self::SessionPlaced { session, .. }
            | Self::GeneratorRegistered { session, .. }
            | Self::GeneratorEnded { session, .. }
            | Self::BreakerChanged { session, .. }
            | Self::ReapStarted { session, .. }
            | Self::ReapFinished { session, .. }
            | Self::OperationBegun { session, .. }
            | Self::SessionParked { session, .. }
            | Self::SessionPolicyChanged { session, .. }
            | Self::BudgetChanged { session, .. }
            | Self::ConversationChanged { session, .. }
            | Self::SessionAccounted { session, .. }
            | Self::LimitExceeded { session, .. }
            | Self::LockGranted { session, .. }
            | Self::LockReleased { session, .. }
            | Self::LockRevoked { session, .. }
            | Self::StaleFound { session, .. }
            | Self::LockUsedForSend { session, .. }
            | Self::LogResumed { session } => Some(*session),
            _ => None,
        }
    }

    /// True if the event is kept in the journal and published. Other events only change records.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        if let Self::BudgetChanged { budget, .. } = self {
            return budget.exhausted;
        }
        if let Self::Agent(event) = self {
            return event.is_journaled();
        }
        !matches!(
            self,
            Self::NextSession { .. }
                | Self::ClockRead(_)
                | Self::TagForgotten(_)
                | Self::SessionObserved { .. }
                | Self::SessionPlaced { .. }
                | Self::BreakerChanged { turned: false, .. }
                | Self::MessageForgotten { .. }
                | Self::ConversationChanged { .. }
                | Self::SessionAccounted { .. }
                | Self::LockUsedForSend { .. }
                | Self::OperationDone { .. }
                | Self::OperationBegun { .. }
                | Self::OperationForgotten { .. }
        )
    }
}
