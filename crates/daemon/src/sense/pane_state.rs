//! The state of a pane: its screen, its input, the program in its foreground.

use std::time::Duration;

use agents::Confirm;
use agents::screen::Screen;
use pool::Agent;
use pool::agent::ScreenReading;
use pool::prompt::{Blocked, PaneSnapshot};
use process::inspect::tty::{InputMode, ShellState};
use protocol::{Activity, ActivityState, Incarnation, Refusal, SessionId, Source, Tag, Timestamp};
use tmux::{Answer, PaneRef};
use tokio::time::sleep;

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::sense::sample_target::{self, is_same_program};
use crate::sense::{bracketed_paste, unfinished_line};

/// Time for an agent to draw keys that were pressed.
const DRAW_TIME: Duration = Duration::from_millis(300);

/// Waits until keys that were pressed a moment ago are drawn, if the agent's screen tells whether a prompt may be
/// typed.
pub(crate) async fn wait_for_keys(daemon: &Daemon, session: SessionId, agent: &Agent) -> Result<(), Refusal> {
    if !agent.shows_composer() && agent.confirm != Confirm::Prompt {
        return Ok(());
    }
    let age = daemon.engine.turn(move |turn| pool::prompt::keys_age(turn, session)).await?;
    sleep(age.map_or(Duration::ZERO, |age| DRAW_TIME.saturating_sub(age))).await;
    Ok(())
}

/// True if the agent's hooks report that it is in no turn.
fn rests_by_hook(activity: &Activity) -> bool {
    matches!(activity.state, ActivityState::Idle | ActivityState::Error) && activity.source == Source::Hook
}

/// Returns the state that decides whether a prompt may be typed; the error is the reason why it cannot be determined.
pub(crate) async fn read_pane(
    daemon: &Daemon,
    agent: &Agent,
    run: &Incarnation,
    pane: PaneRef,
) -> Result<PaneSnapshot, Blocked> {
    let (seen, look) = read_screen(daemon, agent, pane).await?;
    let (tag, started_at, ready_limit) = (run.tag, run.started_at, daemon.loaded().settings.ready_limit);
    let (typed_at, active_at) = (seen.typed_at.clone(), seen.active_at);
    let reported = move |turn: &mut Turn<'_>| {
        let session = turn.pool().tagged(tag);
        let activity = session.and_then(|session| turn.pool().activity_in(session.id, tag));
        let said_idle = activity.filter(|activity| rests_by_hook(activity));
        let ago = |seconds: u64| turn.age(Timestamp(seconds.saturating_mul(1000)));
        let said_idle_ago = said_idle.map(|activity| turn.age(activity.since));
        // Agents that never enabled bracketed pastes within the limit do without.
        let is_starting = turn.age(started_at) < ready_limit;
        // The greatest time may be from before the clock was set back.
        let typed_ago = typed_at.into_iter().map(ago).min();
        let times = (said_idle_ago, typed_ago, active_at.map(ago), pool::prompt::unheard_ago(turn, tag));
        let active_at = active_at.map(|seconds| Timestamp(seconds.saturating_mul(1000)));
        let left_at = turn.volatile.prompts.left_view_at(tag, active_at);
        let keys_at = session.and_then(|session| session.keys_at);
        let keys_at = turn.pool().latest_shown(turn.now(), keys_at.into_iter().chain(left_at));
        let keys = (keys_at, turn.volatile.prompts.key_line(tag));
        (session.map(|session| session.id), is_starting, keys, times)
    };
    let reported =
        daemon.engine.turn(reported).await.map_err(|refusal| Blocked::for_now(refusal.to_string()))?;
    let (session, is_starting, keys, (said_idle_ago, typed_ago, active_ago, unheard_ago)) = reported;
    let starting = session.filter(|_| is_starting);
    let takes_pastes = match starting.filter(|_| agent.asks_for_pastes()) {
        Some(session) if seen.bracketed.is_none() => bracketed_paste::is_enabled(daemon, session, tag).await,
        starting => starting.and(seen.bracketed),
    };
    let unread = unread_input(daemon, run).await;
    let is_shell = agent.confirm == Confirm::Prompt;
    let shell = match session.filter(|_| is_shell) {
        Some(session) => shell_state(daemon, (session, run)).await,
        None => None,
    };
    if shell.is_some_and(|shell| shell.is_at_line_editor()) {
        daemon.engine.post(move |turn| turn.volatile.prompts.note_line_editor(tag));
    }
    let edits_lines = match session.filter(|_| is_shell) {
        Some(session) => edits_lines(daemon, (session, tag)).await,
        None => false,
    };
    let rows = unfinished_line::rows_to_cursor(&seen);
    let row = rows.get(usize::from(seen.cursor.1)).map_or("", String::as_str);
    let holds_unfinished_line = match session {
        Some(session) if is_shell => {
            unfinished_line::is_left(daemon, (session, tag), (&seen, row), keys, edits_lines).await
        }
        // The terminal has it until Enter.
        _ if !agent.shows_composer() && unfinished_line::ends_with_begun(row, &keys.1.begun) => {
            collects_lines(daemon, run).await == Some(true)
        }
        _ => false,
    };
    Ok(PaneSnapshot {
        in_mode: seen.in_mode,
        alternate: seen.alternate,
        typed_ago,
        active_ago,
        never_attached: seen.never_attached,
        unread,
        is_at_prompt: shell.map(|shell| shell.in_foreground && (shell.edits_line() || !edits_lines)),
        rows,
        holds_unfinished_line,
        screen: look,
        said_idle_ago,
        unheard_ago,
        takes_pastes,
    })
}

/// Returns the bytes of input that the program has not read; `None` if the system does not tell.
pub(crate) async fn unread_input(daemon: &Daemon, run: &Incarnation) -> Option<u32> {
    let (agent, processes) = (run.agent?, daemon.processes());
    daemon.blocking.with_timeout(Purpose::Processes, move || processes.unread_input(agent)).await.flatten()
}

/// Returns the state of a shell in its terminal; `None` if the system does not tell.
pub(crate) async fn shell_state(
    daemon: &Daemon,
    (session, run): (SessionId, &Incarnation),
) -> Option<ShellState> {
    let (shell, tag, processes) = (run.agent?, run.tag, daemon.processes());
    let read = move || processes.shell_state(shell);
    let state = daemon.blocking.with_timeout(Purpose::Processes, read).await.flatten()?;
    if state.mode != InputMode::ZshLineEditor {
        return Some(state);
    }
    let dir = daemon.paths.logs_of(session);
    let read = move || logs::asks_about_line(&dir, tag).unwrap_or_default();
    Some(state.with_question(daemon.blocking.with_timeout(Purpose::Logs, read).await.unwrap_or_default()))
}

/// True if the command of an incarnation is a shell that edits its lines, and no other program has taken the shell's
/// place (`exec`).
pub(crate) fn is_line_editor(turn: &Turn<'_>, tag: Tag) -> bool {
    let Some(session) = turn.pool().tagged(tag) else { return false };
    let own = session.spec.command.first().and_then(|command| command.as_path().file_name());
    let shown = session.current_command.as_ref().map(|command| command.as_os_str());
    let is_own = own.zip(shown).is_none_or(|(own, shown)| is_same_program(own, shown));
    is_own && sample_target::is_line_editor(&session.spec.command)
}

/// True if the command of an incarnation is a shell that leaves a line with a mistake on the screen, instead of taking
/// it.
pub(crate) fn refuses_lines(turn: &Turn<'_>, tag: Tag) -> bool {
    let session = turn.pool().tagged(tag);
    let command = session.and_then(|session| session.spec.command.first()?.as_path().file_name());
    is_line_editor(turn, tag) && command.is_some_and(|command| command == "fish")
}

/// True if the shell of this incarnation edits its lines: it was seen doing so, or its log shows it, perhaps from
/// before this start of the daemon; or it started just now and may still run its user's start files. While such a shell
/// is in the foreground, its terminal leaves the editor's mode only if the shell itself runs something: `read`, a
/// function, a loop, a question of its own.
pub(crate) async fn edits_lines(daemon: &Daemon, (session, tag): (SessionId, Tag)) -> bool {
    let ready_limit = daemon.loaded().settings.ready_limit;
    let known = move |turn: &mut Turn<'_>| {
        let run = turn.pool().tagged(tag).and_then(|session| session.incarnation.as_ref());
        let is_starting = run.is_some_and(|run| turn.age(run.started_at) < ready_limit);
        (is_line_editor(turn, tag), is_starting || turn.volatile.prompts.has_line_editor(tag))
    };
    match daemon.engine.turn(known).await {
        Ok((true, is_known)) => {
            let dir = daemon.paths.logs_of(session);
            let read = move || logs::has_line_editor(&dir, tag).unwrap_or_default();
            is_known || daemon.blocking.with_timeout(Purpose::Logs, read).await.unwrap_or_default()
        }
        _ => false,
    }
}

/// Returns whether the terminal collects whole lines for its program; false if the system does not tell. `None` if
/// there was no answer in time.
pub(crate) async fn collects_lines(daemon: &Daemon, run: &Incarnation) -> Option<bool> {
    let Some(shell) = run.agent else { return Some(false) };
    let processes = daemon.processes();
    let state =
        daemon.blocking.with_timeout(Purpose::Processes, move || processes.shell_state(shell)).await?;
    Some(state.is_some_and(|state| state.mode == InputMode::Lines))
}

/// Reads a pane, and interprets its screen if the agent's screen is known. The error says why it cannot be
/// read.
pub(crate) async fn read_screen(
    daemon: &Daemon,
    agent: &Agent,
    pane: PaneRef,
) -> Result<(tmux::PaneSnapshot, Option<ScreenReading>), Blocked> {
    let seen = daemon.tmux.snapshot(pane).await.map_err(|error| Blocked::by_silence(error.to_string()))?;
    match seen.answer {
        Answer::Done => {}
        Answer::InMode => return Err(Blocked::by_terminal("it is in copy mode")),
        Answer::Dead | Answer::Gone => return Err(Blocked::by_end()),
        Answer::InputOff => return Err(Blocked::for_now("its pane does not take input")),
        other => return Err(Blocked::for_now(format!("its pane cannot be read: {other}"))),
    }
    let look = agent.shows_composer().then(|| {
        let screen = Screen::new(&seen.screen);
        agent.read_screen(&screen, seen.cursor, daemon.world.clock.now())
    });
    Ok((seen, look))
}
