//! Properties of each event: its kind, its session, and whether it is kept in the journal.

use super::fact::Event;
use super::lane::LaneEvent;
use crate::event_kind::EventKind;
use crate::ids::SessionId;
use crate::variants;

/// Matches an event to its kind: first the variants with the name of their kind, then an arm for each of the others.
macro_rules! kind_of {
    ($event:expr; $($same:ident)+; $($arms:tt)+) => {
        match $event { $(Self::$same { .. } => EventKind::$same,)+ $($arms)+ }
    };
}

impl Event {
    /// Returns the event kind that users see (`poolctl events`, `--kind`).
    pub fn kind(&self) -> EventKind {
        kind_of!(self;
            PoolStarted NextSession ClockRead TagForgotten SessionCreated SessionStarting SessionLive
            SessionRenamed SessionLabelled SessionDraining SessionStopped SessionLost SessionFailed
            SessionDeleted SessionObserved MessageQueued MessageForgotten ReapStarted ReapFinished
            WatcherConnected WatcherLost TmuxServerChanged OperationDone OperationBegun OperationForgotten
            SessionPlaced ForeignSeen ForeignGone GeneratorRegistered GeneratorEnded SessionParked
            SessionPolicyChanged ConversationChanged SessionAccounted LimitExceeded LogResumed
            DrainDeadlineSet GraceAsked KeysPressed LockGranted LockReleased LockRevoked StaleFound
            WorkerChanged;
            Self::TagRetired { .. } => EventKind::GeneratorEnded,
            Self::MessageChanged { status, .. } => status.event_kind(),
            Self::BreakerChanged { breaker, .. } if breaker.is_open() => EventKind::BreakerOpened,
            Self::BreakerChanged { .. } => EventKind::BreakerClosed,
            Self::BudgetChanged { .. } => EventKind::RestartsExhausted,
            Self::LockUsedForSend { .. } => EventKind::LockFed,
            Self::Lane(LaneEvent::Stuck { .. }) => EventKind::QueueStuck,
            Self::Lane(LaneEvent::Unstuck { .. }) => EventKind::QueueUnstuck,
            Self::Agent(event) => event.kind(),
        )
    }

    /// Returns the session concerned, if any.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::SessionCreated(session) => Some(session.id),
            Self::MessageQueued(message) => Some(message.session),
            Self::Agent(event) => Some(event.session()),
            Self::WorkerChanged(change) => Some(change.session),
            Self::GeneratorRegistered { session, .. } | Self::GeneratorEnded { session, .. } => *session,
            variants!(Self { session, .. }:
                SessionStarting SessionLive SessionRenamed SessionLabelled SessionDraining SessionStopped
                SessionLost SessionFailed SessionDeleted SessionObserved TagRetired MessageChanged
                MessageForgotten SessionPlaced BreakerChanged ReapStarted ReapFinished OperationBegun
                SessionParked SessionPolicyChanged BudgetChanged ConversationChanged LimitExceeded LockGranted
                LockReleased LockRevoked StaleFound LockUsedForSend LogResumed
            )
            | Self::SessionAccounted(session, _)
            | Self::DrainDeadlineSet(session, _)
            | Self::GraceAsked(session, _)
            | Self::KeysPressed(session) => Some(*session),
            Self::Lane(event) => Some(event.session()),
            variants!(Self:
                PoolStarted NextSession ClockRead TagForgotten WatcherConnected WatcherLost TmuxServerChanged
                OperationDone OperationForgotten ForeignSeen ForeignGone
            ) => None,
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
