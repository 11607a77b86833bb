//! The reasons for the states of messages: a type in the code and on disk, a sentence only where it is shown.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $sentence:literal;)+) => {
        /// The reason for the state of a message. Its sentence is its [`Display`](fmt::Display).
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum MessageReason {
            /// Words of a worker, an agent, tmux or the system.
            Text(String),
            /// Its agent received another text; the beginning of that text.
            Altered(String),
            $($(#[$doc])* $variant,)+
        }

        impl MessageReason {
            /// Returns the name for scripts; none for free words.
            pub fn code(&self) -> Option<&'static str> {
                match self {
                    Self::Text(_) => None,
                    Self::Altered(_) => Some("altered"),
                    $(Self::$variant => Some($code),)+
                }
            }
        }

        impl fmt::Display for MessageReason {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Text(text) => f.write_str(text),
                    Self::Altered(text) => write!(f, "altered: its agent got {text:?}"),
                    $(Self::$variant => f.write_str($sentence),)+
                }
            }
        }
    };
}

reasons! {
    /// `typed`: the program has not read it.
    Unread = "unread", "typed, and its program has not read it yet";
    /// `typed`: no input waits any more, and the program did not read.
    Discarded = "discarded",
        "typed, and its program threw it away, or has not got it yet: `poolctl queue resolve`";
    /// `typed`: the text is in the composer, and it is unknown whether Enter was pressed.
    InComposer = "in_composer", "its typing was cut off; it stands in the composer";
    /// `done`: the program read it, which is all that it tells.
    Unconfirmed = "unconfirmed", "unconfirmed";
    /// `done`: it stands in a line that only Enter ends.
    InLine = "in_line", "unconfirmed: it stands in its line, which Enter ends";
    /// `done`: the system does not tell what was read.
    Unsupported = "unsupported", "unconfirmed: this system does not tell whether it was read";
    /// `done`: it should have been echoed.
    NotSeen = "not_seen", "unconfirmed: it was not seen on the screen";
    /// `done`: the agent's own command for a fresh context, confirmed by its hook.
    Cleared = "cleared", "its agent began a new conversation";
    /// `done`: its last line is on the screen.
    Echoed = "echoed", "echoed";
    /// `done`: its shell marks its prompts.
    PromptBack = "prompt_back", "its prompt came back";
    /// `done`: its shell does not.
    InForeground = "in_foreground", "its shell is in front again";
    /// `queued`: its text was certainly not typed.
    NotTyped = "not_typed", "it was not typed: what was on its way was called off";
    /// `in_doubt`: nothing tells whether its text was typed.
    NoReceipt = "no_receipt", "its typing was cut off, and its terminal does not tell whether it arrived";
    /// `in_doubt`: typed without Enter.
    NoEnter = "no_enter", "typed without Enter, and the terminal may have changed since";
    /// `in_doubt`: typed without Enter, which a dialog would have taken.
    DialogOpened = "dialog_opened", "typed, and a dialog came up before Enter was pressed";
    /// `in_doubt`: its pane is gone.
    SessionEnded = "session_ended", "its session ended while it was typed";
    /// `in_doubt`: the record of its state was not readable.
    Damaged = "damaged", "the stored state of the message was damaged";
    /// `queued`: its policy wants it typed again after a doubt.
    TypedAgain = "typed_again", "it was in doubt, and is typed again: it may arrive twice";
    /// `accepted`: with a person's text around it.
    Surrounded = "surrounded", "with other text around it";
    /// `done`: the last words are those of another turn.
    OtherTurn = "other_turn", "another prompt came in between; its turn is over";
    /// `dead`: its agent ended during its turn.
    AgentEnded = "agent_ended", "its agent ended during its turn";
    /// `dead`: its agent ended before that.
    AgentEndedUnconfirmed = "agent_ended_unconfirmed", "its agent ended before it confirmed the prompt";
    /// `dead`, `queued`: a person interrupted its turn.
    Interrupted = "interrupted", "interrupted";
    /// `dead`, `queued`: its turn stopped without a report.
    Stranded = "stranded", "interrupted: its agent stopped and did not say how the turn ended";
    /// `queued`: the conversation that it was to continue is gone.
    ConversationGone = "conversation_gone", "its agent no longer has its conversation";
    /// `dead`: its record is not readable.
    Unreadable = "unreadable", "its record is not readable";
    /// `expired`.
    TimeOver = "time_over", "its time ran out";
    /// `cancelled` by `queue cancel`.
    Cancelled = "cancelled", "cancelled by a user";
    /// `cancelled` with its session.
    SessionRemoved = "session_removed", "its session was removed";
    /// `done`, `dead` by `queue resolve`.
    Resolved = "resolved", "resolved by a user";
    /// `queued` from the start by `queue resolve` or `queue retry`.
    Retried = "retried", "to be tried again, by a user";
    /// `queued` without a pause by `queue retry`.
    Hastened = "hastened", "to be tried at once, by a user";
    /// `in_doubt`: typed without Enter, since the shell's line shows another text.
    AlteredLine = "altered_line", "typed without Enter: the line of its shell shows another text than was sent";
    /// `dead`: the shell refused the line, or wants more of it, and nothing of it has run.
    LineNotTaken = "line_not_taken", "its shell did not take the line, which still stands there: C-c discards it";
}

impl MessageReason {
    /// True if only a person can resolve the doubt: the text is known to stand in the terminal, where a second one
    /// would be appended to it; or the message may be done already.
    pub fn needs_person(&self) -> bool {
        matches!(self, Self::NoEnter | Self::DialogOpened | Self::AlteredLine | Self::Damaged)
    }

    /// True if the text stood in the terminal, and its program had not taken it.
    pub fn is_left_in_terminal(&self) -> bool {
        matches!(self, Self::NoEnter | Self::DialogOpened | Self::AlteredLine | Self::LineNotTaken)
    }

    /// True for a typed prompt that the daemon still follows up. Any other reason of a typed prompt leaves it
    /// to a person.
    pub fn is_followed_up(&self) -> bool {
        matches!(self, Self::Unread | Self::Discarded | Self::InComposer)
    }
}

impl From<String> for MessageReason {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for MessageReason {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
