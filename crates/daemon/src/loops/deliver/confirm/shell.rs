//! Confirmation of a prompt by its shell, whose own prompt disappears and comes back. Shells that mark their
//! prompts (OSC 133) report that themselves; for others, the terminal's foreground process and mode are
//! sampled.

use std::sync::Arc;
use std::time::Duration;

use pool::prompt::{OutputStart, ShellProgress, shell_progress};
use process::inspect::tty::ShellState;
use protocol::{
    Activity, ActivityState, AgentEvent, ErrorCode, Event, Incarnation, MessageId, MessageReason,
    MessageState, Refusal, SessionId, Source, Tag,
};
use tokio::time::{Instant, sleep};

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::loops::deliver::confirm::input::has_written;
use crate::loops::deliver::prompt::{ClaimedPrompt, TypedPrompt, advance};
use crate::sense::pane_state::{edits_lines, is_line_editor, refuses_lines, shell_state};
use crate::sense::unfinished_line::{may_hold, rows_to_cursor};

/// Time after which a shell counts as back even if nothing was written.
const SILENT_LIMIT: Duration = Duration::from_secs(3);

/// Time for a slow shell to take a line. A line that it still shows after that counts as refused.
const REFUSED_LIMIT: Duration = Duration::from_secs(5);

/// Time between two samples of the terminal: at first, and at most.
const PAUSE: Duration = Duration::from_millis(15);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// Number of samples in a row that have to show a shell at rest: after fewer, it may be about to run what it has read.
const RESTS: u32 = 3;

/// A shell's terminal before Enter was pressed.
pub(crate) struct ShellBefore {
    log_end: u64,
    /// True if the shell was at its line editor.
    edits_line: bool,
    /// True if the shell leaves a line that it refuses on the screen, and its log tells when it takes a line.
    may_refuse: bool,
    /// The row of the shell's prompt.
    row: String,
}

impl ShellBefore {
    /// Reads the terminal, once the text is in it.
    pub(crate) async fn read(daemon: &Daemon, prompt: &ClaimedPrompt) -> Option<Self> {
        let session = prompt.message.session;
        let run = daemon.incarnation(session).await?;
        has_written(daemon, prompt.pane).await.then_some(())?;
        let state = shell_state(daemon, (session, &run)).await;
        let edits_line = state.is_some_and(|state| state.edits_line());
        let log_end = log_end(daemon, session).await?;
        let tag = run.tag;
        let row = prompt.rows_before.last().cloned().unwrap_or_default();
        let prompt_row = row.clone();
        let note = move |turn: &mut Turn<'_>| {
            turn.volatile.prompts.note_prompt_row(tag, prompt_row);
            refuses_lines(turn, tag)
        };
        let refuses = daemon.engine.turn(note).await.ok()?;
        let may_refuse =
            refuses && edits_line && prompt.message.enter && !disables_pastes(daemon, (session, tag)).await;
        Some(Self { log_end, edits_line, may_refuse, row })
    }

    /// True if the shell was at its line editor.
    pub(crate) fn edits_line(&self) -> bool {
        self.edits_line
    }
}

/// True if the log shows that the shell has bracketed pastes disabled. Then the log does not tell when a line is taken.
async fn disables_pastes(daemon: &Daemon, (session, tag): (SessionId, Tag)) -> bool {
    let dir = daemon.paths.logs_of(session);
    let read = move || logs::pastes_enabled(&dir, tag).ok().flatten();
    daemon.blocking.with_timeout(Purpose::Logs, read).await.flatten() == Some(false)
}

/// Returns the row with the line of a prompt if the shell still edits that line: it refused the line (fish does that
/// with a line that has a mistake), or waits for the rest of it.
async fn kept_row(
    daemon: &Daemon,
    session: SessionId,
    (prompt, before): (&TypedPrompt, Option<&ShellBefore>),
) -> Option<String> {
    let before = before.filter(|before| before.may_refuse)?;
    let (dir, offset) = (daemon.paths.logs_of(session), before.log_end);
    let read = move || logs::was_line_taken(&dir, offset).ok().flatten();
    let taken = daemon.blocking.with_timeout(Purpose::Logs, read).await.flatten();
    if taken != Some(false) {
        return None;
    }
    let row = rows_to_cursor(&daemon.tmux.snapshot(prompt.pane).await.ok()?).pop()?;
    (row != before.row && may_hold(&row, &prompt.body)).then_some(row)
}

/// Records that the shell has not taken a prompt. Its text still stands in the shell's line, and the next prompt waits
/// until it is gone.
async fn finish_untaken(
    daemon: &Daemon,
    session: SessionId,
    (prompt, row): (&TypedPrompt, String),
) -> Result<(), Refusal> {
    let tag = prompt.pane.tag;
    daemon.engine.post(move |turn| turn.volatile.prompts.abandon_row(tag, row));
    let why = Some(MessageReason::LineNotTaken);
    advance(daemon, (session, prompt.id), MessageState::Dead, why).await
}

async fn log_end(daemon: &Daemon, session: SessionId) -> Option<u64> {
    let dir = daemon.paths.logs_of(session);
    daemon.blocking.with_timeout(Purpose::Logs, move || logs::bounds(&dir)).await?.ok().map(|(_, end)| end)
}

/// Waits until the shell has accepted the prompt, and its own prompt is back.
pub(super) async fn follow_up(
    daemon: &Arc<Daemon>,
    session: SessionId,
    prompt: TypedPrompt,
    before: Option<ShellBefore>,
) -> Result<(), Refusal> {
    let tag = prompt.pane.tag;
    let has_marks = move |turn: &mut Turn<'_>| {
        turn.volatile.agents.marks(tag).is_some_and(|marks| marks.last_of_shell().is_some())
    };
    let has_marks = daemon.engine.turn(has_marks).await?;
    match shell_state(daemon, (session, &prompt.run)).await {
        Some(_) if !has_marks => follow_samples(daemon, session, &prompt, before).await,
        _ => follow_marks(daemon, session, (&prompt, before.as_ref())).await,
    }
}

/// Waits for the shell's prompt marks, or for its activity as it is sampled.
async fn follow_marks(
    daemon: &Arc<Daemon>,
    session: SessionId,
    (prompt, before): (&TypedPrompt, Option<&ShellBefore>),
) -> Result<(), Refusal> {
    let (id, tag) = (prompt.id, prompt.pane.tag);
    let (progress, began_at) = (progress_of(session, prompt, before), Instant::now());
    if prompt.state == MessageState::Typed {
        let began = move |turn: &mut Turn<'_>| {
            let began = matches!(progress(turn, false), ShellProgress::Running | ShellProgress::Back);
            Watched::of(turn, (session, tag, id), began)
        };
        match wait_for_marks(daemon, (session, began_at), began).await {
            Ok(Watched::Over) => return Ok(()),
            Ok(Watched::Seen) => advance(daemon, (session, id), MessageState::Accepted, None).await?,
            Err(_) if has_exited(daemon, &prompt.run).await => {
                return wait_for_end(daemon, (session, tag), id).await;
            }
            Err(_) => {
                if let Some(row) = kept_row(daemon, session, (prompt, before)).await {
                    return finish_untaken(daemon, session, (prompt, row)).await;
                }
                let progress = daemon.engine.turn(move |turn| progress(turn, false)).await?;
                let is_shown = progress == ShellProgress::OnlyPrompt;
                let why = if is_shown { MessageReason::PromptBack } else { MessageReason::Unconfirmed };
                return advance(daemon, (session, id), MessageState::Done, Some(why)).await;
            }
        }
    }
    let back = move |turn: &mut Turn<'_>| {
        let back = progress(turn, true) == ShellProgress::Back;
        Watched::of(turn, (session, tag, id), back)
    };
    // The marks may be missing: those from before this start of the daemon are dated to the second only, and a log may
    // be removed. Then the shell's line editor shows whether the shell is back.
    let is_unseen = move |turn: &mut Turn<'_>| progress(turn, true) == ShellProgress::Unseen;
    loop {
        match wait_for_marks(daemon, (session, began_at), back).await {
            Ok(Watched::Over) => return Ok(()),
            Ok(Watched::Seen) if has_exited(daemon, &prompt.run).await => {
                return wait_for_end(daemon, (session, tag), id).await;
            }
            Ok(Watched::Seen) if is_in_front(daemon, (session, &prompt.run)).await => break,
            // A program in the foreground wrote the mark, such as a shell on another machine.
            Ok(Watched::Seen) => sleep(PAUSE_MAX).await,
            Err(refusal) if refusal.code != ErrorCode::Timeout => return Err(refusal),
            Err(_)
                if daemon.engine.turn(is_unseen).await?
                    && is_back_at_editor(daemon, (session, &prompt.run)).await =>
            {
                break;
            }
            Err(_) => {}
        }
    }
    advance(daemon, (session, id), MessageState::Done, Some(MessageReason::PromptBack)).await
}

/// The end of a wait for a prompt's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// The awaited progress was seen.
    Seen,
    /// The prompt is final or given back, or its session ends. The shell's marks mean nothing then: a shell draws its
    /// prompt once more if its command is ended with the session.
    Over,
}

impl Watched {
    fn of(turn: &Turn<'_>, (session, tag, id): (SessionId, Tag, MessageId), is_seen: bool) -> Option<Self> {
        if is_over(turn, (session, tag), id) { Some(Self::Over) } else { is_seen.then_some(Self::Seen) }
    }
}

/// Waits for a condition on a shell's marks, at most for [`SILENT_LIMIT`]. Has the session sampled as soon as its log
/// has grown.
async fn wait_for_marks(
    daemon: &Daemon,
    (session, began_at): (SessionId, Instant),
    find: impl FnMut(&mut Turn<'_>) -> Option<Watched> + Send + 'static,
) -> Result<Watched, Refusal> {
    let sample = async {
        let mut read_to = None;
        loop {
            let end = log_end(daemon, session).await;
            if end != read_to {
                read_to = end;
                daemon.sample_requests.ask(session);
            }
            sleep((began_at.elapsed() / 32).clamp(PAUSE, PAUSE_MAX)).await;
        }
    };
    tokio::select! {
        biased;
        found = daemon.engine.wait_for(Some(SILENT_LIMIT), find) => found,
        never = sample => never,
    }
}

/// Returns a function that tells how far a prompt has got in its shell: by the shell's marks or, if it writes none, by
/// the program in the foreground. Its second argument is true for a prompt that the shell has accepted.
fn progress_of(
    session: SessionId,
    prompt: &TypedPrompt,
    before: Option<&ShellBefore>,
) -> impl Fn(&Turn<'_>, bool) -> ShellProgress + Copy + Send + 'static {
    let (tag, began_at) = (prompt.pane.tag, prompt.began_at);
    // Marks count from the beginning of the typing on: they may be sampled before the prompt is recorded as typed.
    let start = before.map_or(OutputStart::Time(began_at), |before| OutputStart::Offset(before.log_end));
    move |turn, accepted| {
        let marks = turn.volatile.agents.marks(tag).filter(|marks| marks.last_of_shell().is_some());
        if let Some(marks) = marks {
            return shell_progress(turn.pool(), marks, (start, accepted), turn.now());
        }
        let activity = turn.pool().activity_in(session, tag);
        let Some(activity) = activity.filter(|activity| activity.source == Source::Process) else {
            return ShellProgress::Unseen;
        };
        let is_new = turn.pool().is_earlier(turn.now(), began_at, activity.since);
        match activity.state {
            ActivityState::Busy if is_new => ShellProgress::Running,
            // The shell was busy with the prompt, and is idle now.
            ActivityState::Idle if accepted => ShellProgress::Back,
            _ => ShellProgress::Unseen,
        }
    }
}

/// True if the shell is proved to have ended.
async fn has_exited(daemon: &Daemon, run: &Incarnation) -> bool {
    let (processes, Some(shell)) = (daemon.processes(), run.agent) else { return false };
    let look = move || processes.has_exited(shell);
    daemon.blocking.with_timeout(Purpose::Processes, look).await.unwrap_or_default()
}

/// Waits until the end of the incarnation of a shell that has ended settles its prompt.
async fn wait_for_end(
    daemon: &Daemon,
    (session, tag): (SessionId, Tag),
    id: MessageId,
) -> Result<(), Refusal> {
    let over = move |turn: &mut Turn<'_>| is_over(turn, (session, tag), id).then_some(());
    daemon.engine.wait_on(session, None, over).await
}

/// True if no other program has the terminal, as far as the system tells.
async fn is_in_front(daemon: &Daemon, run: (SessionId, &Incarnation)) -> bool {
    shell_state(daemon, run).await.is_none_or(|state| state.in_foreground)
}

/// True if several samples in a row show that the shell edits its next line.
async fn is_back_at_editor(daemon: &Daemon, run: (SessionId, &Incarnation)) -> bool {
    for _ in 0..RESTS {
        let state = shell_state(daemon, run).await;
        if !state.is_some_and(|state| is_at_rest(&state, true)) {
            return false;
        }
        sleep(PAUSE).await;
    }
    true
}

/// Samples the terminal until its shell is at rest again: in the foreground, all input read, the terminal in
/// its mode from before, and output written since Enter.
async fn follow_samples(
    daemon: &Arc<Daemon>,
    session: SessionId,
    prompt: &TypedPrompt,
    before: Option<ShellBefore>,
) -> Result<(), Refusal> {
    let (id, tag) = (prompt.id, prompt.pane.tag);
    let (began_at, mut rested, mut accepted) = (Instant::now(), 0, prompt.state == MessageState::Accepted);
    // In a shell without a line editor, the first of several lines may run before the last one is typed.
    let edits_lines = before.as_ref().is_some_and(ShellBefore::edits_line)
        || edits_lines(daemon, (session, prompt.pane.tag)).await;
    let is_shell = move |turn: &mut Turn<'_>| is_line_editor(turn, tag);
    let was_shell = daemon.engine.turn(is_shell).await?;
    loop {
        let Some(state) = shell_state(daemon, (session, &prompt.run)).await else { return Ok(()) };
        // Another program may have taken the place of the shell since (`exec`).
        let is_replaced = was_shell && !daemon.engine.turn(is_shell).await?;
        let rests = is_at_rest(&state, edits_lines && !is_replaced);
        rested = if rests { rested + 1 } else { 0 };
        let wrote = match &before {
            Some(before) => log_end(daemon, session).await.is_some_and(|end| end > before.log_end),
            // After a restart of the daemon the end of the log before Enter is unknown.
            None => true,
        };
        let late = began_at.elapsed() >= SILENT_LIMIT;
        // Checked even if the line seemed to be taken: fish leaves its editor while it looks for a mistake in the line.
        let kept =
            if rested >= RESTS { kept_row(daemon, session, (prompt, before.as_ref())).await } else { None };
        if let Some(row) = kept {
            if began_at.elapsed() >= REFUSED_LIMIT {
                return finish_untaken(daemon, session, (prompt, row)).await;
            }
        } else if rested >= RESTS && (wrote || late) {
            let why = if wrote { MessageReason::InForeground } else { MessageReason::Unconfirmed };
            return finish(daemon, (session, id), &prompt.run, why).await;
        }
        if !rests && !accepted && state.unread == 0 {
            accepted = true;
            advance(daemon, (session, id), MessageState::Accepted, None).await?;
        }
        let pause = (began_at.elapsed() / 32).clamp(PAUSE, PAUSE_MAX);
        let over = move |turn: &mut Turn<'_>| is_over(turn, (session, tag), id).then_some(());
        if daemon.engine.wait_on(session, Some(pause), over).await.is_ok() {
            return Ok(());
        }
    }
}

/// True if the shell waits for a command. A shell that edits its lines leaves that mode of the terminal only while it
/// runs a command, or before its first prompt.
fn is_at_rest(state: &ShellState, edits_lines: bool) -> bool {
    state.in_foreground && state.unread == 0 && (state.edits_line() || !edits_lines)
}

/// Records that the prompt is done and its shell waits for the next one, which the last sample of its
/// activity may not show yet.
async fn finish(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    run: &Incarnation,
    why: MessageReason,
) -> Result<(), Refusal> {
    advance(daemon, (session, id), MessageState::Accepted, None).await?;
    let tag = run.tag;
    let foreground = run.init.and_then(|init| daemon.world.processes.foreground(init.pid));
    let idle = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        let corrected = foreground.and_then(|foreground| {
            pool::observe::correct_foreground(turn.pool(), (session, tag), &foreground.command, turn.now())
        });
        turn.emit_all(corrected);
        let busy = turn
            .pool()
            .activity_in(session, tag)
            .filter(|activity| activity.state == ActivityState::Busy && activity.source == Source::Process);
        if busy.is_some() {
            let state = ActivityState::Idle;
            let activity = Activity {
                state,
                source: Source::Process,
                since: now,
                tag: Some(tag),
                ..Activity::default()
            };
            turn.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: true }));
        }
    };
    daemon.engine.turn(idle).await?;
    advance(daemon, (session, id), MessageState::Done, Some(why)).await
}

/// True if the prompt is final or given back, or its shell has ended.
fn is_over(turn: &Turn<'_>, (session, tag): (SessionId, Tag), id: MessageId) -> bool {
    let open = turn.pool().pending_message(session, id);
    let given = open.is_some_and(|open| matches!(open.state, MessageState::Typed | MessageState::Accepted));
    !given || turn.pool().tagged(tag).is_none_or(|found| found.id != session || !found.takes_prompts())
}

#[cfg(test)]
mod tests {
    use process::inspect::tty::InputMode::{Keys, LineEditor, Lines, ZshLineEditor};

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[test]
    fn a_shell_rests_where_it_edits_its_line_again_or_reads_lines_as_it_always_does() {
        let state = |mode| ShellState { in_foreground: true, mode, unread: 0 };
        let rests = |mode, edits_lines| is_at_rest(&state(mode), edits_lines);
        assert!(rests(LineEditor, true), "it edits its line again");
        assert!(rests(ZshLineEditor, true));
        assert!(!rests(Lines, true), "a builtin runs");
        assert!(!rests(Keys, true), "it asks something");
        assert!(rests(Lines, false), "a plain shell");
        assert!(rests(LineEditor, false), "it was typed before its first prompt");
        assert!(!is_at_rest(&ShellState { in_foreground: false, ..state(LineEditor) }, false));
        assert!(!is_at_rest(&ShellState { unread: 1, ..state(LineEditor) }, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shell_behind_another_program_did_not_write_the_marks() {
        for in_foreground in [false, true] {
            let shell = Some(ShellState { in_foreground, mode: Keys, unread: 0 });
            let test = TestDaemon::start(TestProcesses { shell, ..TestProcesses::default() });
            let running = test.run("a").await;
            assert_eq!(is_in_front(&test.daemon, (running.id, &running.run)).await, in_foreground);
        }
    }
}
