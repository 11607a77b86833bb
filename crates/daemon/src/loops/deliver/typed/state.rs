//! A prompt that was typed, as its record and its pane have it.

use agents::Confirm;
use pool::{Agent, Settings, queue};
use protocol::{Incarnation, MessageId, MessageState, Refusal, SessionId, Timestamp, Token};
use tmux::PaneRef;

use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};

/// Why it is as it is where its program has not read it.
pub(crate) const UNREAD: &str = "typed, and its program has not read it yet";
/// Where nothing waits any more, and its program did not read.
pub(crate) const GONE: &str =
    "typed, and its program threw it away, or has not got it yet: `poolctl queue resolve`";
/// Why it is as it is where nobody knows of Enter.
pub(crate) const STANDS: &str = "its typing was cut off; it stands in the composer";

/// One that a shell accepted: nobody but the daemon sees its end.
pub(crate) fn is_shells(turn: &Turn<'_>, settings: &Settings, open: &queue::Open<'_>) -> bool {
    let session = turn.pool().session(open.session);
    open.state == MessageState::Accepted
        && session.is_some_and(|session| settings.agent_of(session).confirm == Confirm::Prompt)
}

/// The prompt that was typed, as it is now.
pub(crate) struct Typed {
    pub(crate) id: MessageId,
    pub(crate) state: MessageState,
    pub(crate) body: Vec<u8>,
    pub(crate) run: Incarnation,
    pub(crate) pane: PaneRef,
    pub(crate) agent: Agent,
    /// When it was begun to be typed, and under which token.
    pub(crate) begun: Timestamp,
    pub(crate) token: Option<Token>,
    /// Whether Enter belongs to it.
    pub(crate) enter: bool,
    /// Whether no hook tells of it: it is a command, or no Enter follows.
    pub(crate) silent: bool,
}

pub(crate) fn typed(turn: &Turn<'_>, settings: &Settings, session: SessionId) -> Option<Typed> {
    let open = queue::held_prompt(turn.pool(), session)?;
    let (id, state, token) = (open.id, open.state, open.token);
    let record = turn.pool().session(session).filter(|record| record.takes_prompts())?;
    let run = record.incarnation.clone()?;
    let pane = pane_of(&run)?;
    let agent = settings.agent_of(record).clone();
    let shells = state == MessageState::Accepted && agent.confirm == Confirm::Prompt;
    let (message, body) = turn.message(id).ok()??;
    let body = crate::decide::prompt::text_of(turn, &agent, &message, body);
    let hooked = agent.confirm == Confirm::Hook;
    // One that was left to a person is so still.
    let left = hooked && message.status.reason.as_ref().is_some_and(|why| why != STANDS && !is_ours(why));
    let (begun, enter) =
        (message.typing_began().unwrap_or(open.since), message.enter || message.suspended_at().is_some());
    let silent = is_silent(&agent, enter, &body);
    let open = state == MessageState::Typed && !left || state == MessageState::Typing;
    (open || shells).then_some(Typed { id, state, body, run, pane, agent, begun, token, enter, silent })
}

/// Whether no hook tells of what is typed: it is a command, or no Enter follows.
pub(crate) fn is_silent(agent: &Agent, enter: bool, body: &[u8]) -> bool {
    !enter || agents::prompt::is_command(agent.adapter, &String::from_utf8_lossy(body))
}

/// It moves on, unless it did already.
pub(crate) async fn settled(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    state: MessageState,
    why: Option<&'static str>,
) -> Result<(), Refusal> {
    let settle = move |turn: &mut Turn<'_>| {
        let open = turn.pool().open_message(session, id);
        let waits =
            |open: &queue::Open<'_>| matches!(open.state, MessageState::Typed | MessageState::Accepted);
        let Some(open) = open.filter(waits).filter(|open| open.state != state) else { return };
        let event = queue::moved(&open, state, why, turn.now());
        turn.emit(event);
    };
    daemon.engine.turn(settle).await
}

/// Whether this is said of a prompt that is still looked after.
pub(crate) fn is_ours(why: &str) -> bool {
    [UNREAD, GONE].contains(&why)
}
