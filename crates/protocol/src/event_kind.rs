//! The kinds of events.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

macro_rules! kinds {
    (
        published { $($published:ident = $name:literal,)+ }
        internal { $($internal:ident = $internal_name:literal,)+ }
    ) => {
        /// The kinds of events, as users see them (`poolctl events --kind`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $(#[doc = concat!("`", $name, "`.")] $published,)+
            $(#[doc = concat!("`", $internal_name, "`. Never in the journal.")] $internal,)+
        }

        impl EventKind {
            /// The kinds that are in the journal.
            pub const PUBLISHED: &'static [Self] = &[$(Self::$published),+];

            /// Returns the name used in JSON and on the command line.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$published => $name,)+
                    $(Self::$internal => $internal_name,)+
                }
            }

            /// True if events of the kind can be in the journal and are published. Events of other kinds only
            /// change records.
            pub fn is_published(self) -> bool {
                match self {
                    $(Self::$published => true,)+
                    $(Self::$internal => false,)+
                }
            }
        }
    };
}

kinds! {
    published {
        PoolStarted = "pool_started",
        SessionCreated = "session_created",
        SessionStarting = "session_starting",
        SessionLive = "session_live",
        SessionRenamed = "session_renamed",
        SessionLabelled = "session_labelled",
        SessionDraining = "session_draining",
        SessionStopped = "session_stopped",
        SessionLost = "session_lost",
        SessionFailed = "session_failed",
        SessionDeleted = "session_deleted",
        SessionParked = "session_parked",
        SessionPolicyChanged = "session_policy_changed",
        RestartsExhausted = "restarts_exhausted",
        LimitExceeded = "limit_exceeded",
        LogResumed = "log_resumed",
        DrainDeadlineSet = "drain_deadline_set",
        ActivityChanged = "activity_changed",
        AskAnswered = "ask_answered",
        ConversationLost = "conversation_lost",
        ThoughtPublished = "thought_published",
        GeneratorRegistered = "generator_registered",
        GeneratorEnded = "generator_ended",
        MessageQueued = "message_queued",
        MessageClaimed = "message_claimed",
        MessageTyping = "message_typing",
        MessageTyped = "message_typed",
        MessageAccepted = "message_accepted",
        MessageDone = "message_done",
        MessageFailed = "message_failed",
        MessageReleased = "message_released",
        MessageRetried = "message_retried",
        MessageSuspended = "message_suspended",
        MessageRevoking = "message_revoking",
        MessageInDoubt = "message_in_doubt",
        MessageDead = "message_dead",
        MessageCancelled = "message_cancelled",
        MessageExpired = "message_expired",
        BreakerOpened = "breaker_opened",
        BreakerClosed = "breaker_closed",
        QueueStuck = "queue_stuck",
        QueueUnstuck = "queue_unstuck",
        LockGranted = "lock_granted",
        LockReleased = "lock_released",
        LockRevoked = "lock_revoked",
        StaleFound = "stale_found",
        ReapStarted = "reap_started",
        ReapFinished = "reap_finished",
        WatcherConnected = "watcher_connected",
        WatcherLost = "watcher_lost",
        TmuxServerChanged = "tmux_server_changed",
        ForeignSeen = "foreign_seen",
        ForeignGone = "foreign_gone",
    }
    internal {
        NextSession = "next_session",
        ClockRead = "clock_read",
        TagForgotten = "tag_forgotten",
        SessionObserved = "session_observed",
        SessionPlaced = "session_placed",
        SessionAccounted = "session_accounted",
        GraceAsked = "grace_asked",
        KeysPressed = "keys_pressed",
        MessageForgotten = "message_forgotten",
        ConversationChanged = "conversation_changed",
        WorkerChanged = "worker_changed",
        AgentNoted = "agent_noted",
        LockFed = "lock_fed",
        OperationDone = "operation_done",
        OperationBegun = "operation_begun",
        OperationForgotten = "operation_forgotten",
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

/// Parses the name of a published kind.
impl FromStr for EventKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::PUBLISHED.iter().copied().find(|kind| kind.as_str() == name);
        found.ok_or_else(|| format!("no event kind {name:?}"))
    }
}
