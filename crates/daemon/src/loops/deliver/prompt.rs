//! A prompt in delivery: before it is typed, and from then on until it is final.

use agents::Confirm;
use pool::{Agent, Settings, queue};
use protocol::{
    Incarnation, Message, MessageId, MessageReason, MessageState, Refusal, SessionId, Timestamp, Token,
};
use tmux::PaneRef;

use crate::decide::prompt::typed_text;
use crate::engine::{Daemon, Turn, pane_of};

/// A prompt that is recorded as `typing`, and about to be typed.
pub(super) struct ClaimedPrompt {
    /// The fencing token under which it is typed.
    pub(super) token: Token,
    pub(super) message: Message,
    pub(super) body: Vec<u8>,
    pub(super) pane: PaneRef,
    pub(super) agent: Agent,
    /// The rows of the screen before, down to the cursor's.
    pub(super) rows_before: Vec<String>,
}

/// A prompt that was typed, or whose typing was interrupted.
pub(super) struct TypedPrompt {
    pub(super) id: MessageId,
    pub(super) state: MessageState,
    pub(super) body: Vec<u8>,
    pub(super) run: Incarnation,
    pub(super) pane: PaneRef,
    pub(super) agent: Agent,
    /// Time at which its typing began.
    pub(super) began_at: Timestamp,
    /// The fencing token under which it was typed.
    pub(super) token: Option<Token>,
    /// True if Enter follows its text.
    pub(super) enter: bool,
    /// True if no hook of the agent will report it.
    pub(super) is_unreported: bool,
}

impl TypedPrompt {
    /// Returns the prompt of a session that the daemon has to follow up: typed and not confirmed, or
    /// interrupted while it was typed, or accepted by a shell. None if it is left to a person.
    pub(super) fn of(turn: &Turn<'_>, settings: &Settings, session: SessionId) -> Option<Self> {
        let open = queue::held_prompt(turn.pool(), session)?;
        let (id, state, token) = (open.id, open.state, open.token);
        let record = turn.pool().session(session).filter(|record| record.takes_prompts())?;
        let run = record.incarnation.clone()?;
        let pane = pane_of(&run)?;
        let agent = settings.agent_of(record).clone();
        let (message, body) = turn.message(id).ok()??;
        let body = typed_text(turn, &agent, &message, body);
        let began_at = message.typing_began().unwrap_or(open.since);
        let enter = message.enter || message.suspended_at().is_some();
        let is_unreported = is_unreported(&agent, enter, &body);
        let reason = message.status.reason.as_ref();
        let is_pending = match state {
            MessageState::Typing => true,
            // A prompt that was left to a person is not followed up again.
            MessageState::Typed => {
                agent.confirm != Confirm::Hook || reason.is_none_or(MessageReason::is_followed_up)
            }
            MessageState::Accepted => agent.confirm == Confirm::Prompt,
            _ => false,
        };
        is_pending.then_some(Self {
            id,
            state,
            body,
            run,
            pane,
            agent,
            began_at,
            token,
            enter,
            is_unreported,
        })
    }
}

/// True for a prompt that a shell has accepted: only the daemon observes its end.
pub(super) fn is_in_shell(turn: &Turn<'_>, settings: &Settings, open: &queue::PendingMessage<'_>) -> bool {
    let session = turn.pool().session(open.session);
    open.state == MessageState::Accepted
        && session.is_some_and(|session| settings.agent_of(session).confirm == Confirm::Prompt)
}

/// True if the agent's hooks will not report a text, because it is a command, or because no Enter follows.
pub(super) fn is_unreported(agent: &Agent, enter: bool, body: &[u8]) -> bool {
    !enter || agents::prompt::is_command(agent.adapter, &String::from_utf8_lossy(body))
}

/// Moves a typed or accepted prompt to another state, unless it is in that state already.
pub(super) async fn advance(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    state: MessageState,
    reason: Option<MessageReason>,
) -> Result<(), Refusal> {
    let advance = move |turn: &mut Turn<'_>| {
        let open = turn.pool().pending_message(session, id);
        let is_given = |open: &queue::PendingMessage<'_>| {
            matches!(open.state, MessageState::Typed | MessageState::Accepted)
        };
        let Some(open) = open.filter(is_given).filter(|open| open.state != state) else { return };
        let event = queue::transition(&open, state, reason, turn.now());
        turn.emit(event);
    };
    daemon.engine.turn(advance).await
}
