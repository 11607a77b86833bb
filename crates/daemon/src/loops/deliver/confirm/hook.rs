//! Confirmation by the agent's hook. Enter is pressed again while the text is seen in the composer.

use std::sync::Arc;

use pool::prompt::{NextStep, Unconfirmed};
use pool::queue;
use protocol::{MessageId, MessageState, Refusal, SessionId, Source, Tag};
use tmux::PaneRef;

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
            NextStep::PressEnter => press_again(daemon, (session, id), prompt.pane).await?,
            NextStep::LeaveToPerson(why) => return leave_to_person(daemon, (session, id), why).await,
        }
    }
}

/// Presses Enter again, unless the prompt is confirmed by now. The press is on record before the key is sent, because
/// the agent may accept the prompt at any moment after that.
async fn press_again(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    pane: PaneRef,
) -> Result<(), Refusal> {
    tracing::info!(%session, prompt = id.0, "Enter is pressed again");
    if daemon.engine.turn(move |turn| record_enter(turn, (session, id))).await? {
        // The next observation shows the result.
        drop(daemon.tmux.enter(pane).await);
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tmux::fake::Fault;
    use tokio::time::sleep;

    use super::*;
    use crate::loops::deliver::prompt::advance;
    use crate::run::tests::{Running, TestDaemon, TestProcesses};

    /// Starts an agent that has a prompt in its composer, which was typed and not confirmed.
    async fn unconfirmed() -> (TestDaemon, Running, TypedPrompt) {
        let test = TestDaemon::start(TestProcesses::default());
        let running = test.run("a").await;
        test.show(running.pane, "claude-draft");
        let (id, _) = test.begin_typing(running.id, "half a thought").await;
        test.advance((running.id, id), MessageState::Typed).await;
        let (session, settings) = (running.id, test.daemon.settings());
        let prompt = test.turn(move |turn| TypedPrompt::of(turn, &settings, session)).await.unwrap();
        (test, running, prompt)
    }

    #[tokio::test(start_paused = true)]
    async fn enter_is_pressed_again_unless_a_user_has_the_lock() {
        for is_locked in [false, true] {
            let (test, running, prompt) = unconfirmed().await;
            if is_locked {
                test.lock_for_user(running.id).await;
            }
            follow_up(&test.daemon, running.id, prompt).await.unwrap();
            assert_eq!(test.has_called("enter"), !is_locked);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_other_task_acts_on_the_session_between_the_look_at_it_and_enter() {
        let (test, running, prompt) = unconfirmed().await;
        let look = Duration::from_secs(1);
        test.tmux.fail([Fault::Late(look)]);
        let other = async {
            while !test.has_called("snapshot") {
                sleep(look / 10).await;
            }
            let _grant = test.daemon.engine.lock_inside(running.id, "other").await.unwrap();
            assert!(test.has_called("enter"));
        };
        let (followed, ()) = tokio::join!(follow_up(&test.daemon, running.id, prompt), other);
        followed.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_that_is_confirmed_meanwhile_gets_no_further_enter() {
        for is_confirmed in [false, true] {
            let (test, running, prompt) = unconfirmed().await;
            let place = (running.id, prompt.id);
            if is_confirmed {
                advance(&test.daemon, place, MessageState::Accepted, None).await.unwrap();
            }
            press_again(&test.daemon, place, prompt.pane).await.unwrap();
            assert_eq!(test.has_called("enter"), !is_confirmed);
        }
    }
}
