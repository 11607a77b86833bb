//! After the text of a prompt was pasted: the pause, Enter, and recording that it was typed.

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::prompt::{Blocked, enter_delay};
use pool::queue::PendingMessage;
use pool::{Volatile, queue};
use protocol::{Backoff, Event, MessageReason, MessageState, Refusal, SessionId, Timestamp};
use tmux::Answer;
use tmux::act::Lines;
use tokio::time::{Instant, sleep};

use crate::decide::lock::LockGuard;
use crate::engine::{Daemon, Turn};
use crate::loops::deliver::confirm::input::{self, InputWatch};
use crate::loops::deliver::confirm::shell::ShellBefore;
use crate::loops::deliver::confirm::{self, BeforeEnter};
use crate::loops::deliver::prompt::{ClaimedPrompt, is_unreported};
use crate::sense::pane_state::{is_line_editor, read_screen};
use crate::sense::unfinished_line::{self, LineEcho, rows_to_cursor};

/// Time for a typed text to appear on the screen.
const ECHO_LIMIT: Duration = Duration::from_secs(2);

/// Time after which a shell that has read a text, but has drawn nothing of it, counts as having taken the text for
/// editor commands. A slow shell may draw later than usual, but within this time.
const UNDRAWN_LIMIT: Duration = Duration::from_secs(5);

/// Time between two looks at the screen.
const ECHO_PAUSE: Duration = Duration::from_millis(50);

/// Number of characters of the text that are searched on the screen.
const ECHO_CHARS: usize = 40;

/// Records that a prompt was not typed. Does not count as an attempt.
pub(super) async fn record_not_typed(
    daemon: &Daemon,
    prompt: &ClaimedPrompt,
    why: String,
) -> Result<(), Refusal> {
    let session = prompt.message.session;
    let record = move |volatile: &mut Volatile, open: &PendingMessage<'_>, now| {
        volatile.prompts.block(session, Blocked::for_now(why.as_str()));
        vec![queue::give_back(open, why.into(), now)]
    };
    record_failure(daemon, prompt, record).await
}

/// Records that it is unknown whether a prompt was typed in full.
async fn record_doubt(daemon: &Daemon, prompt: &ClaimedPrompt, why: MessageReason) -> Result<(), Refusal> {
    let (tag, loaded) = (prompt.pane.tag, daemon.loaded());
    if why == MessageReason::NoEnter {
        unfinished_line::keep_unentered(daemon, prompt.pane, &prompt.body).await;
    }
    let record = move |volatile: &mut Volatile, open: &PendingMessage<'_>, now| {
        volatile.prompts.delivered(tag, now);
        queue::doubt(&loaded.settings.queue, open, &why, now)
    };
    record_failure(daemon, prompt, record).await
}

/// Ends a paste, and commits the events that `decide` returns for a prompt that still is `typing`.
async fn record_failure<F>(daemon: &Daemon, prompt: &ClaimedPrompt, decide: F) -> Result<(), Refusal>
where
    F: FnOnce(&mut Volatile, &PendingMessage<'_>, Timestamp) -> Vec<Event> + Send + 'static,
{
    let (session, id) = (prompt.message.session, prompt.message.id);
    crate::crash::point("deliver-typed");
    let record = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        turn.volatile.prompts.end_paste(session);
        turn.wake();
        let (pool, volatile) = turn.state();
        let open = pool.pending_message(session, id).filter(|open| open.state == MessageState::Typing);
        let events = open.map(|open| decide(volatile, &open, now));
        turn.emit_all(events.into_iter().flatten());
    };
    daemon.engine.turn(record).await
}

/// Presses Enter after a pause that depends on the length of the text, records the prompt as typed, and
/// follows it up.
pub(super) async fn press_enter(
    daemon: &Arc<Daemon>,
    prompt: ClaimedPrompt,
    grant: LockGuard,
) -> Result<(), Refusal> {
    let hooked = prompt.agent.confirm == Confirm::Hook;
    let unreported = hooked && is_unreported(&prompt.agent, prompt.message.enter, &prompt.body);
    let confirm = if unreported { Confirm::None } else { prompt.agent.confirm };
    crate::crash::point("deliver-pasted");
    if prompt.message.enter {
        sleep(enter_delay(prompt.message.size)).await;
    }
    let entered_at = daemon.engine.turn(|turn| turn.now()).await?;
    let before = BeforeEnter {
        input: if confirm == Confirm::None { InputWatch::begin(daemon, &prompt).await } else { None },
        shell: if confirm == Confirm::Prompt { ShellBefore::read(daemon, &prompt).await } else { None },
    };
    if prompt.message.enter {
        if let Some(shell) = &before.shell
            && let Some(altered) = altered_line(daemon, &prompt, shell).await
        {
            let tag = prompt.pane.tag;
            if let LineEcho::Altered(row) = altered {
                daemon.engine.post(move |turn| turn.volatile.prompts.abandon_row(tag, row));
            }
            return record_doubt(daemon, &prompt, MessageReason::AlteredLine).await;
        }
        // A dialog that has just opened would take Enter as its answer, so Enter is not pressed now, but once the text
        // is seen in the composer.
        let has_dialog = hooked && shows_dialog(daemon, &prompt).await;
        if has_dialog && unreported {
            return record_doubt(daemon, &prompt, MessageReason::DialogOpened).await;
        }
        let enter = daemon.tmux.enter_after(prompt.pane, prompt.token);
        match if has_dialog { Ok(Answer::Done) } else { enter.await } {
            Ok(Answer::Done) => {}
            Ok(answer) => {
                tracing::warn!(prompt = prompt.message.id.0, %answer, "Enter could not be pressed");
                // If the pane is gone or closed, the text is gone with it; otherwise it stands there without its
                // Enter.
                let is_gone =
                    matches!(answer, Answer::Gone | Answer::Dead | Answer::NotOurs | Answer::OtherServer);
                let why = if is_gone { MessageReason::SessionEnded } else { MessageReason::NoEnter };
                return record_doubt(daemon, &prompt, why).await;
            }
            Err(error) => {
                let id = prompt.message.id.0;
                tracing::warn!(prompt = id, %error, "the pane is asked whether Enter was pressed");
                drop(grant);
                return ask_pane(daemon, prompt.message.session).await;
            }
        }
    }
    crate::crash::point("deliver-typed");
    let session = prompt.message.session;
    record_typed(daemon, &prompt, confirm, (&before, entered_at)).await?;
    // Others may act on the session while the agent works.
    drop(grant);
    confirm::follow_up_from(daemon, session, before).await
}

/// Records that a prompt was typed, and done if its program confirms it by reading or by its echo.
async fn record_typed(
    daemon: &Daemon,
    prompt: &ClaimedPrompt,
    confirm: Confirm,
    (before, entered_at): (&BeforeEnter, Timestamp),
) -> Result<(), Refusal> {
    let (session, id, tag) = (prompt.message.session, prompt.message.id, prompt.pane.tag);
    let (is_clear, enter) = (prompt.agent.is_clear(&prompt.body), prompt.message.enter);
    let done = match confirm {
        Confirm::Hook | Confirm::Prompt => None,
        Confirm::None if is_clear => None,
        Confirm::Echo => Some(echo_result(daemon, prompt).await),
        Confirm::None => input::read_within_limit(daemon, before.input.as_ref()).await,
    };
    let record = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        // The agent may have reported the prompt while its echo or its reading was awaited.
        turn.volatile.prompts.delivered_since(tag, entered_at, now);
        if enter {
            // This Enter ends the line, with whatever stood in it before, just as one pressed by `poolctl keys`.
            turn.volatile.prompts.typed(tag, "\r");
        }
        if turn.volatile.prompts.end_paste(session) && turn.volatile.is_stopping() {
            turn.wake();
        }
        // The agent's hook may have reported the prompt already.
        let Some(open) = turn.pool().pending_message(session, id) else { return };
        if open.state != MessageState::Typing {
            return;
        }
        let note = (confirm == Confirm::None && !is_clear && done.is_none()).then_some(MessageReason::Unread);
        let typed = queue::transition(&open, MessageState::Typed, note, now);
        let done = done.map(|why| queue::transition(&open, MessageState::Done, Some(why), now));
        turn.emit_all(std::iter::once(typed).chain(done));
    };
    daemon.engine.turn(record).await
}

/// Ends a paste whose result is unknown, and follows the prompt up: the pane tells the result.
pub(super) async fn ask_pane(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    let end = move |turn: &mut Turn<'_>| {
        turn.volatile.prompts.end_paste(session);
        turn.wake();
    };
    daemon.engine.turn(end).await?;
    confirm::follow_up(daemon, session).await
}

/// Returns the line of a shell that edits its lines, if it differs from the typed text and goes on doing so.
async fn altered_line(daemon: &Daemon, prompt: &ClaimedPrompt, shell: &ShellBefore) -> Option<LineEcho> {
    let tag = prompt.pane.tag;
    let is_compared =
        shell.edits_line() && daemon.engine.turn(move |turn| is_line_editor(turn, tag)).await.ok()?;
    let (mut began, mut backoff) = (Instant::now(), Backoff::new(ECHO_PAUSE / 10, ECHO_PAUSE));
    let mut first = None;
    let limit_of = |echo: &LineEcho| if *echo == LineEcho::Undrawn { UNDRAWN_LIMIT } else { ECHO_LIMIT };
    loop {
        let seen = daemon.tmux.snapshot(prompt.pane).await.ok().filter(|_| is_compared)?;
        let (rows, text) = (rows_to_cursor(&seen), (prompt.body.as_slice(), seen.size.width));
        let echo = unfinished_line::line_echo(&prompt.rows_before, &rows, text);
        if echo == LineEcho::AsSent {
            return None;
        }
        let is_same = first.get_or_insert_with(|| echo.clone()) == &echo;
        let has_begun = first == Some(LineEcho::Undrawn) && !is_same;
        if began.elapsed() >= limit_of(&echo) && !has_begun {
            return Some(echo).filter(|_| is_same);
        }
        if !is_same {
            // The shell has just begun to draw the text, so its time limit starts again.
            let was_undrawn = first.replace(echo) == Some(LineEcho::Undrawn);
            began = if was_undrawn { Instant::now() } else { began };
        }
        sleep(backoff.pause()).await;
    }
}

/// True if the agent's screen shows a dialog.
async fn shows_dialog(daemon: &Daemon, prompt: &ClaimedPrompt) -> bool {
    let screen = read_screen(daemon, &prompt.agent, prompt.pane).await;
    screen.is_ok_and(|(_, look)| look.is_some_and(|look| look.dialog.is_some()))
}

/// Waits until the end of the text is seen on the screen. Returns the reason for which the prompt is done.
async fn echo_result(daemon: &Daemon, prompt: &ClaimedPrompt) -> MessageReason {
    let text = String::from_utf8_lossy(&prompt.body);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let wanted: String = last.chars().take(ECHO_CHARS).collect();
    let deadline = Instant::now() + ECHO_LIMIT;
    loop {
        let screen = daemon.tmux.capture(prompt.pane, Lines::Visible, false).await;
        if screen.is_ok_and(|(_, screen)| String::from_utf8_lossy(&screen).contains(&wanted)) {
            return MessageReason::Echoed;
        }
        if Instant::now() >= deadline {
            return MessageReason::NotSeen;
        }
        sleep(ECHO_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use protocol::{AgentEvent, Notes};

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_dialog_that_has_opened_since_the_text_was_pasted_gets_no_enter() {
        const TEXT: &str = "half a thought";
        for (screen, is_entered) in [("claude-draft", true), ("claude-permission", false)] {
            let test = TestDaemon::start(TestProcesses::default());
            let running = test.run("a").await;
            let (id, token) = test.begin_typing(running.id, TEXT).await;
            test.daemon.tmux.paste(running.pane, token, TEXT.as_bytes()).await.unwrap();
            test.show(running.pane, screen);
            let (message, body) = test.turn(move |turn| turn.message(id)).await.unwrap().unwrap();
            let agent = test.daemon.settings().agents["claude"].clone();
            let pane = running.pane;
            let prompt = ClaimedPrompt { token, message, body, pane, agent, rows_before: Vec::new() };
            let grant = test.daemon.engine.lock_inside(running.id, "deliver").await.unwrap();
            press_enter(&test.daemon, prompt, grant).await.unwrap();
            let has_entered = test.has_called("enter_after") || test.has_called("enter");
            assert_eq!(has_entered, is_entered, "{screen}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_agent_reports_while_its_echo_is_awaited_is_about_the_prompt() {
        const TEXT: &str = "no such text is shown";
        let test = TestDaemon::start(TestProcesses::default());
        let running = test.run("a").await;
        let (message_id, token) = test.begin_typing(running.id, TEXT).await;
        test.daemon.tmux.paste(running.pane, token, TEXT.as_bytes()).await.unwrap();
        test.show(running.pane, "claude-draft");
        let (message, body) = test.turn(move |turn| turn.message(message_id)).await.unwrap().unwrap();
        let mut agent = test.daemon.settings().agents["claude"].clone();
        agent.confirm = Confirm::Echo;
        let (pane, session, tag) = (running.pane, running.id, running.pane.tag);
        let prompt = ClaimedPrompt { token, message, body, pane, agent, rows_before: Vec::new() };
        let grant = test.daemon.engine.lock_inside(session, "deliver").await.unwrap();
        let report = async {
            while !test.has_called("enter_after") {
                sleep(Duration::from_millis(10)).await;
            }
            let report = move |turn: &mut Turn<'_>| {
                let notes = Notes { hooked: Some(tag), heard_at: Some(turn.now()), ..Notes::default() };
                turn.emit(Event::Agent(AgentEvent::AgentNoted { session, notes }));
            };
            test.turn(report).await;
        };
        let (entered, ()) = tokio::join!(press_enter(&test.daemon, prompt, grant), report);
        entered.unwrap();
        let after = move |turn: &mut Turn<'_>| {
            let is_done = turn.pool().pending_message(session, message_id).is_none();
            (is_done, pool::prompt::unheard_ago(turn, tag))
        };
        assert_eq!(test.turn(after).await, (true, None));
    }
}
