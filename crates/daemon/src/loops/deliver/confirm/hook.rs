//! Confirmation by the agent's hook. Enter is pressed again while the text is seen in the composer.

use std::sync::Arc;

use pool::prompt::{NextStep, Unconfirmed};
use pool::queue;
use protocol::{MessageId, MessageState, Refusal, SessionId, Source, Tag};

use crate::engine::{Daemon, Turn};
use crate::loops::deliver::prompt::TypedPrompt;
use crate::sense::hook_spool;
use crate::sense::pane_state::read_pane;

/// An observation of a prompt that waits for its hook.
struct Observation {
    /// The text is in the composer.
    in_composer: bool,
    /// The agent or a user has acted since, so that Enter could mean something else.
    is_busy: bool,
}

/// Waits for the hook's report. After the last attempt, leaves the prompt to a person.
pub(super) async fn follow_up(
    daemon: &Arc<Daemon>,
    session: SessionId,
    prompt: TypedPrompt,
) -> Result<(), Refusal> {
    let id = prompt.id;
    let mut unconfirmed = Unconfirmed::default();
    loop {
        let confirmed = move |turn: &mut Turn<'_>| {
            let open = turn.pool().pending_message(session, id);
            open.is_none_or(|open| open.state != MessageState::Typed).then_some(())
        };
        if daemon.engine.wait_on(session, Some(unconfirmed.pause()), confirmed).await.is_ok() {
            return Ok(());
        }
        // The report may be spooled.
        if !hook_spool::read_of(daemon, &[session]).await {
            return Ok(());
        }
        // Held from the observation to the key, so that no other task acts on the session in between.
        let _grant = daemon.engine.lock_inside(session, "deliver").await?;
        let Some(observation) = observe(daemon, session, &prompt).await? else { return Ok(()) };
        match unconfirmed.next(observation.in_composer, observation.is_busy) {
            NextStep::Wait => {}
            NextStep::PressEnter => {
                tracing::info!(%session, prompt = id.0, "Enter is pressed again");
                // The press is on record before the key is sent, because the agent may accept the prompt at any moment
                // after that.
                if daemon.engine.turn(move |turn| record_enter(turn, (session, id))).await? {
                    // The next observation shows the result.
                    drop(daemon.tmux.enter(prompt.pane).await);
                }
            }
            NextStep::LeaveToPerson(why) => return leave_to_person(daemon, (session, id), why).await,
        }
    }
}

/// Records that Enter is pressed again, so that the prompt's time as `typed` starts again. Returns false if it is not
/// `typed` any more, mostly because it is confirmed.
fn record_enter(turn: &mut Turn<'_>, (session, id): (SessionId, MessageId)) -> bool {
    let open = turn.pool().pending_message(session, id).filter(|open| open.state == MessageState::Typed);
    let event = open.map(|open| queue::transition(&open, MessageState::Typed, None, turn.now()));
    let waits = event.is_some();
    turn.emit_all(event);
    waits
}

/// Observes the pane and the agent. None if the prompt is confirmed, or its incarnation has ended.
async fn observe(
    daemon: &Daemon,
    session: SessionId,
    prompt: &TypedPrompt,
) -> Result<Option<Observation>, Refusal> {
    let pane = read_pane(daemon, &prompt.agent, &prompt.run, prompt.pane).await;
    let (id, tag, began_at) = (prompt.id, prompt.pane.tag, prompt.began_at);
    let text = String::from_utf8_lossy(&prompt.body);
    let typed = (&*text, daemon.age(began_at).await?);
    let settings = &daemon.loaded().settings;
    let in_composer = pane.is_ok_and(|pane| pool::prompt::stands_in_composer(settings, typed, &pane));
    let read = move |turn: &mut Turn<'_>| {
        let open = turn.pool().pending_message(session, id)?;
        let is_current = turn.pool().tagged(tag).is_some_and(|found| found.id == session);
        // Keys pressed since, or a user's lock, may have changed the meaning of Enter.
        let has_user = pool::prompt::has_keys_since(turn, session, began_at)
            || pool::lock::holds_back(turn.pool(), turn.volatile, session);
        (is_current && open.state == MessageState::Typed).then(|| has_user || is_at_work(turn, session, tag))
    };
    let is_busy = daemon.engine.turn(read).await?;
    Ok(is_busy.map(|is_busy| Observation { in_composer, is_busy }))
}

/// True if the agent's hooks say that it works, which it did not when the prompt was typed.
fn is_at_work(turn: &Turn<'_>, session: SessionId, tag: Tag) -> bool {
    let activity = turn.pool().activity_in(session, tag);
    activity.is_some_and(|activity| activity.source == Source::Hook && activity.state.is_at_work())
}

/// Leaves a prompt to a person, with the reason. A later report of the agent still counts.
async fn leave_to_person(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    why: String,
) -> Result<(), Refusal> {
    let leave = move |turn: &mut Turn<'_>| {
        let Some(open) = turn.pool().pending_message(session, id) else { return };
        if open.state == MessageState::Typed {
            let tag = turn.pool().session(session).and_then(|s| Some(s.incarnation.as_ref()?.tag));
            let has_reported = turn.pool().notes(session).is_some_and(|notes| notes.hooked == tag);
            let why = if has_reported { why } else { format!("{why}; none of its hooks has ever reported") };
            // The time of the state stays that of the last Enter.
            let event = queue::transition(&open, MessageState::Typed, Some(why.into()), open.since);
            turn.emit(event);
            pool::prompt::leave_to_person(turn, session, id);
        }
    };
    daemon.engine.turn(leave).await
}
