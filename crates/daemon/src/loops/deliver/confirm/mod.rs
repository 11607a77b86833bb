//! Following up a prompt that was typed, until it is confirmed or left to a person: by the agent's hook
//! ([`hook`]), by the prompt of its shell ([`shell`]), or by its program reading it ([`input`]).

mod hook;
pub(super) mod input;
pub(super) mod shell;

use std::sync::Arc;

use agents::Confirm;
use pool::Settings;
use protocol::{MessageReason, MessageState, PROMPT, Refusal, Session, SessionId};

use crate::engine::{Daemon, Turn};
use crate::loops::deliver::confirm::input::InputWatch;
use crate::loops::deliver::confirm::shell::ShellBefore;
use crate::loops::deliver::prompt::{TypedPrompt, advance, is_in_shell};
use crate::loops::deliver::recover;
use crate::sense::hook_spool;

/// The state of the terminal before Enter was pressed; empty after a restart of the daemon.
#[derive(Default)]
pub(super) struct BeforeEnter {
    pub(super) input: Option<InputWatch>,
    pub(super) shell: Option<ShellBefore>,
}

/// Returns the sessions with a typed prompt that no task follows up. A prompt that cannot be followed up is
/// left to a person.
pub(super) fn unfinished(turn: &mut Turn<'_>, settings: &Settings) -> Vec<SessionId> {
    let (pool, volatile) = turn.state();
    volatile.prompts.retain_left_to_person(pool);
    let open = turn.pool().held_messages().filter(|open| open.kind == PROMPT);
    let is_typed = |state| matches!(state, MessageState::Typing | MessageState::Typed);
    let typed = open.filter(|open| is_typed(open.state) || is_in_shell(turn, settings, open));
    let running = typed.filter(|open| turn.pool().session(open.session).is_some_and(Session::takes_prompts));
    let prompts = &turn.volatile.prompts;
    let is_free = |session| !prompts.is_delivering(session) && prompts.left_to_person(session).is_none();
    let free = running.filter(|open| is_free(open.session));
    let (mut unfinished, mut left) = (Vec::new(), Vec::new());
    for (session, id) in free.map(|open| (open.session, open.id)) {
        match TypedPrompt::of(turn, settings, session) {
            Some(_) => unfinished.push(session),
            None => left.push((session, id)),
        }
    }
    left.into_iter().for_each(|(session, id)| pool::prompt::leave_to_person(turn, session, id));
    unfinished
}

/// Follows up the typed prompt of a session, if it has one.
pub(super) async fn follow_up(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    follow_up_from(daemon, session, BeforeEnter::default()).await
}

/// Follows up the typed prompt of a session whose terminal is known from before Enter.
pub(super) async fn follow_up_from(
    daemon: &Arc<Daemon>,
    session: SessionId,
    before: BeforeEnter,
) -> Result<(), Refusal> {
    let Some(mut prompt) = read(daemon, session).await? else { return Ok(()) };
    if prompt.state == MessageState::Typing {
        recover::resolve(daemon, session, &prompt).await?;
        if read(daemon, session).await?.is_some_and(|prompt| prompt.state == MessageState::Typing) {
            return Ok(());
        }
        // Spooled hook reports wait until it is decided whether the prompt was typed.
        if !hook_spool::read_of(daemon, &[session]).await {
            return Ok(());
        }
        match read(daemon, session).await? {
            Some(resolved) if resolved.state != MessageState::Typing => prompt = resolved,
            _ => return Ok(()),
        }
    }
    match prompt.agent.confirm {
        Confirm::Hook if prompt.is_unreported => {
            input::follow_up(daemon, session, prompt, before.input).await
        }
        Confirm::Hook => hook::follow_up(daemon, session, prompt).await,
        Confirm::Prompt => shell::follow_up(daemon, session, prompt, before.shell).await,
        Confirm::Echo => {
            advance(daemon, (session, prompt.id), MessageState::Done, Some(MessageReason::Unconfirmed)).await
        }
        Confirm::None => input::follow_up(daemon, session, prompt, before.input).await,
    }
}

/// Reads the typed prompt that has to be followed up, as it is now.
async fn read(daemon: &Daemon, session: SessionId) -> Result<Option<TypedPrompt>, Refusal> {
    let loaded = daemon.loaded();
    daemon.engine.turn(move |turn| TypedPrompt::of(turn, &loaded.settings, session)).await
}
