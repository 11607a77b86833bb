//! Properties of each event: its kind, its session, and whether it is kept in the journal.

use super::fact::Event;
use super::lane::LaneEvent;
use crate::event_kind::EventKind;
use crate::ids::SessionId;

impl Event {
    /// Returns the event kind that users see (`poolctl events`, `--kind`).
    pub fn kind(&self) -> EventKind {
        match self {
            Self::PoolStarted { .. } => EventKind::PoolStarted,
            Self::NextSession { .. } => EventKind::NextSession,
            Self::ClockRead(_) => EventKind::ClockRead,
            Self::TagForgotten(_) => EventKind::TagForgotten,
            Self::SessionCreated(_) => EventKind::SessionCreated,
            Self::SessionStarting { .. } => EventKind::SessionStarting,
            Self::SessionLive { .. } => EventKind::SessionLive,
            Self::SessionRenamed { .. } => EventKind::SessionRenamed,
            Self::SessionLabelled { .. } => EventKind::SessionLabelled,
            Self::SessionDraining { .. } => EventKind::SessionDraining,
            Self::SessionStopped { .. } => EventKind::SessionStopped,
            Self::SessionLost { .. } => EventKind::SessionLost,
            Self::SessionFailed { .. } => EventKind::SessionFailed,
            Self::SessionDeleted { .. } => EventKind::SessionDeleted,
            Self::SessionObserved { .. } => EventKind::SessionObserved,
            Self::TagRetired { .. } => EventKind::GeneratorEnded,
            Self::MessageQueued(_) => EventKind::MessageQueued,
            Self::MessageChanged { status, .. } => status.event_kind(),
            Self::MessageForgotten { .. } => EventKind::MessageForgotten,
            Self::ReapStarted { .. } => EventKind::ReapStarted,
            Self::ReapFinished { .. } => EventKind::ReapFinished,
            Self::WatcherConnected { .. } => EventKind::WatcherConnected,
            Self::WatcherLost { .. } => EventKind::WatcherLost,
            Self::TmuxServerChanged { .. } => EventKind::TmuxServerChanged,
            Self::OperationDone { .. } => EventKind::OperationDone,
            Self::OperationBegun { .. } => EventKind::OperationBegun,
            Self::OperationForgotten { .. } => EventKind::OperationForgotten,
            Self::SessionPlaced { .. } => EventKind::SessionPlaced,
            Self::ForeignSeen { .. } => EventKind::ForeignSeen,
            Self::ForeignGone { .. } => EventKind::ForeignGone,
            Self::GeneratorRegistered { .. } => EventKind::GeneratorRegistered,
            Self::GeneratorEnded { .. } => EventKind::GeneratorEnded,
            Self::BreakerChanged { breaker, .. } if breaker.is_open() => EventKind::BreakerOpened,
            Self::BreakerChanged { .. } => EventKind::BreakerClosed,
            Self::SessionParked { .. } => EventKind::SessionParked,
            Self::SessionPolicyChanged { .. } => EventKind::SessionPolicyChanged,
            Self::BudgetChanged { .. } => EventKind::RestartsExhausted,
            Self::ConversationChanged { .. } => EventKind::ConversationChanged,
            Self::SessionAccounted(..) => EventKind::SessionAccounted,
            Self::LimitExceeded { .. } => EventKind::LimitExceeded,
            Self::LogResumed { .. } => EventKind::LogResumed,
            Self::DrainDeadlineSet(..) => EventKind::DrainDeadlineSet,
            Self::GraceAsked(..) => EventKind::GraceAsked,
            Self::KeysPressed(_) => EventKind::KeysPressed,
            Self::LockGranted { .. } => EventKind::LockGranted,
            Self::LockReleased { .. } => EventKind::LockReleased,
            Self::LockRevoked { .. } => EventKind::LockRevoked,
            Self::StaleFound { .. } => EventKind::StaleFound,
            Self::LockUsedForSend { .. } => EventKind::LockFed,
            Self::WorkerChanged(_) => EventKind::WorkerChanged,
            Self::Lane(LaneEvent::Stuck { .. }) => EventKind::QueueStuck,
            Self::Lane(LaneEvent::Unstuck { .. }) => EventKind::QueueUnstuck,
            Self::Agent(event) => event.kind(),
        }
    }

    /// Returns the session concerned, if any.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::SessionCreated(session) => Some(session.id),
            Self::MessageQueued(message) => Some(message.session),
            Self::Agent(event) => Some(event.session()),
            Self::WorkerChanged(change) => Some(change.session),
            Self::GeneratorRegistered { session, .. } | Self::GeneratorEnded { session, .. } => *session,
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
            | Self::TagRetired { session, .. }
            | Self::MessageChanged { session, .. }
            | Self::MessageForgotten { session, .. }
            | Self::SessionPlaced { session, .. }
            | Self::BreakerChanged { session, .. }
            | Self::ReapStarted { session, .. }
            | Self::ReapFinished { session, .. }
            | Self::OperationBegun { session, .. }
            | Self::SessionParked { session, .. }
            | Self::SessionPolicyChanged { session, .. }
            | Self::BudgetChanged { session, .. }
            | Self::ConversationChanged { session, .. }
            | Self::SessionAccounted(session, _)
            | Self::LimitExceeded { session, .. }
            | Self::LockGranted { session, .. }
            | Self::LockReleased { session, .. }
            | Self::LockRevoked { session, .. }
            | Self::StaleFound { session, .. }
            | Self::LockUsedForSend { session, .. }
            | Self::DrainDeadlineSet(session, _)
            | Self::GraceAsked(session, _)
            | Self::KeysPressed(session)
            | Self::LogResumed { session } => Some(*session),
            Self::Lane(event) => Some(event.session()),
            Self::PoolStarted { .. }
            | Self::NextSession { .. }
            | Self::ClockRead(_)
            | Self::TagForgotten(_)
            | Self::WatcherConnected { .. }
            | Self::WatcherLost { .. }
            | Self::TmuxServerChanged { .. }
            | Self::OperationDone { .. }
            | Self::OperationForgotten { .. }
            | Self::ForeignSeen { .. }
            | Self::ForeignGone { .. } => None,
        }
    }

    /// True if the event is kept in the journal and published. Other events only change records.
    pub fn is_journaled(&self) -> bool {
        match self {
            Self::BudgetChanged { budget, .. } => budget.exhausted,
            Self::BreakerChanged { turned, .. } => *turned,
            Self::Agent(event) => event.is_journaled(),
            event => event.kind().is_published(),
        }
    }
}
