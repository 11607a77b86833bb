//! Confirmation of a prompt by a program without hooks: the prompt is done once the program has read it. Three cases
//! look like a read and are none: tmux has not written the text yet; the text is an incomplete line in a terminal that
//! is read by lines, which does not count it as unread; the program has ended.

use std::time::Duration;

use agents::Confirm;
use process::inspect::tty::{InputState, ReadDetector};
use protocol::{Backoff, MessageId, MessageReason, MessageState, ProcId, Refusal, SessionId};
use tmux::PaneRef;
use tokio::time::{Instant, sleep};

use crate::effect::chat_history;
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::random::identity;
use crate::loops::deliver::prompt::{ClaimedPrompt, TypedPrompt, advance};

/// Time for a program to read the text. After it, the prompt is recorded as unread.
const LIMIT: Duration = Duration::from_secs(1);

/// Time between two samples: at first, and at most.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Time for an agent to report its new conversation.
const CLEAR_LIMIT: Duration = Duration::from_secs(5);

/// A terminal whose input is watched for being read.
pub(crate) struct InputWatch {
    pane: PaneRef,
    program: ProcId,
    detector: ReadDetector,
    /// True if the text ends a line.
    ends_line: bool,
}

/// The state of the input.
enum InputStatus {
    /// The prompt is done, for this reason.
    Done(MessageReason),
    /// The text is not read yet.
    Pending(MessageReason),
    /// The program has ended, which the end of its incarnation settles once it is observed.
    Ended,
}

impl InputWatch {
    /// Begins to watch, once the text is in the terminal and before Enter. None if its program is not known, or the
    /// terminal cannot be watched now.
    pub(crate) async fn begin(daemon: &Daemon, prompt: &ClaimedPrompt) -> Option<Self> {
        let program = daemon.incarnation(prompt.message.session).await?.agent?;
        Self::new(daemon, (prompt.pane, program), prompt.message.enter).await.ok()
    }

    /// Begins to watch. If that is not possible now, returns what is known of the input.
    async fn new(
        daemon: &Daemon,
        (pane, program): (PaneRef, ProcId),
        ends_line: bool,
    ) -> Result<Self, InputStatus> {
        if !has_written(daemon, pane).await {
            return Err(InputStatus::Pending(MessageReason::Unread));
        }
        let processes = daemon.processes();
        let arm = move || processes.arm_read_detector(program).ok_or_else(|| processes.has_exited(program));
        match daemon.blocking.with_timeout(Purpose::Processes, arm).await {
            Some(Ok(detector)) => Ok(Self { pane, program, detector, ends_line }),
            Some(Err(true)) => Err(InputStatus::Ended),
            // It runs without a terminal.
            Some(Err(false)) => Err(InputStatus::Done(MessageReason::Unsupported)),
            None => Err(InputStatus::Pending(MessageReason::Unread)),
        }
    }

    /// Samples the input. tmux may write a long text in pieces, so "read" has to be found twice, with another answered
    /// tmux command in between.
    async fn sample(&self, daemon: &Daemon) -> InputStatus {
        if !has_written(daemon, self.pane).await {
            return InputStatus::Pending(MessageReason::Unread);
        }
        match self.read_state(daemon).await {
            Some(InputState::Read) if has_written(daemon, self.pane).await => {
                match self.read_state(daemon).await {
                    Some(InputState::Read) => InputStatus::Done(MessageReason::Unconfirmed),
                    Some(InputState::ProcessEnded) => InputStatus::Ended,
                    _ => InputStatus::Pending(MessageReason::Unread),
                }
            }
            Some(InputState::PartialLine) if !self.ends_line => InputStatus::Done(MessageReason::InLine),
            Some(InputState::Unsupported) => InputStatus::Done(MessageReason::Unsupported),
            Some(InputState::ProcessEnded) => InputStatus::Ended,
            Some(InputState::Missing) => InputStatus::Pending(MessageReason::Discarded),
            Some(InputState::Read | InputState::PartialLine | InputState::Unread(_)) | None => {
                InputStatus::Pending(MessageReason::Unread)
            }
        }
    }

    /// Reads the state of the terminal's input; none if it cannot be read.
    async fn read_state(&self, daemon: &Daemon) -> Option<InputState> {
        let Self { program, detector, ends_line, .. } = *self;
        let processes = daemon.processes();
        let read = move || processes.input_state(program, detector, ends_line);
        daemon.blocking.with_timeout(Purpose::Processes, read).await.flatten()
    }
}

/// True once tmux has written the text into the terminal. It writes after it has answered the command, and
/// before it answers the next one.
pub(crate) async fn has_written(daemon: &Daemon, pane: PaneRef) -> bool {
    daemon.tmux.peek(pane).await.is_ok()
}

/// Waits up to [`LIMIT`] until the text is read. Returns the reason for which the prompt is done; none if it
/// is not.
pub(crate) async fn read_within_limit(daemon: &Daemon, watch: Option<&InputWatch>) -> Option<MessageReason> {
    let watch = watch?;
    let (deadline, mut backoff) = (Instant::now() + LIMIT, Backoff::new(PAUSE, PAUSE_MAX));
    loop {
        match watch.sample(daemon).await {
            InputStatus::Done(why) => return Some(why),
            InputStatus::Ended => return None,
            InputStatus::Pending(_) if Instant::now() >= deadline => return None,
            InputStatus::Pending(_) => {}
        }
        sleep(backoff.pause()).await;
    }
}

/// Waits until the prompt is read, or settled otherwise.
pub(super) async fn follow_up(
    daemon: &Daemon,
    session: SessionId,
    prompt: TypedPrompt,
    watch: Option<InputWatch>,
) -> Result<(), Refusal> {
    let id = prompt.id;
    // After a restart of the daemon, input that is gone counts as read: whether the program read or discarded it was
    // not observed.
    let (is_resumed, mut watch) = (watch.is_none(), watch);
    let (mut backoff, began) = (Backoff::new(PAUSE, PAUSE_MAX), Instant::now());
    loop {
        let status = match sample(daemon, &prompt, &mut watch).await {
            InputStatus::Pending(MessageReason::Discarded) if is_resumed => {
                InputStatus::Done(MessageReason::Unconfirmed)
            }
            status => status,
        };
        match status {
            InputStatus::Done(why) if prompt.agent.is_clear(&prompt.body) => {
                return clear_read(daemon, (session, &prompt), why).await;
            }
            InputStatus::Done(why) => {
                return advance(daemon, (session, id), MessageState::Done, Some(why)).await;
            }
            InputStatus::Pending(note) if began.elapsed() >= LIMIT => {
                record_note(daemon, (session, id), note).await?;
            }
            InputStatus::Pending(_) | InputStatus::Ended => {}
        }
        let loaded = daemon.loaded();
        let is_pending = move |turn: &mut Turn<'_>| {
            TypedPrompt::of(turn, &loaded.settings, session).is_some_and(|prompt| prompt.id == id)
        };
        if !daemon.engine.turn(is_pending).await? {
            return Ok(());
        }
        sleep(backoff.pause()).await;
    }
}

/// Samples the input, and begins to watch it if it is not watched yet.
async fn sample(daemon: &Daemon, prompt: &TypedPrompt, watch: &mut Option<InputWatch>) -> InputStatus {
    let begun = match (watch.take(), prompt.run.agent) {
        (Some(watch), _) => Ok(watch),
        (None, Some(program)) => InputWatch::new(daemon, (prompt.pane, program), prompt.enter).await,
        (None, None) => Err(InputStatus::Done(MessageReason::Unsupported)),
    };
    match begun {
        Ok(begun) => watch.insert(begun).sample(daemon).await,
        Err(status) => status,
    }
}

/// Settles the agent's own command for a fresh context, once the program has read it: at the report of the new
/// conversation, if its hooks send one in time. Without a report the prompt is done, and the old conversation is not
/// resumed.
async fn clear_read(
    daemon: &Daemon,
    (session, prompt): (SessionId, &TypedPrompt),
    why: MessageReason,
) -> Result<(), Refusal> {
    let id = prompt.id;
    if prompt.agent.confirm == Confirm::Hook && prompt.agent.is_told_its_conversation() {
        let is_over = move |turn: &mut Turn<'_>| {
            let open = turn.pool().pending_message(session, id);
            open.is_none_or(|open| open.state != MessageState::Typed).then_some(())
        };
        if daemon.engine.wait_on(session, Some(CLEAR_LIMIT), is_over).await.is_ok() {
            return Ok(());
        }
    }
    chat_history::forget(daemon, session, prompt.agent.adapter).await;
    let conversation = identity(&*daemon.world.random)?.conversation;
    let end = move |turn: &mut Turn<'_>| {
        let open = turn.pool().pending_message(session, id);
        let Some(open) = open.filter(|open| open.state == MessageState::Typed) else { return };
        let done = pool::queue::transition(&open, MessageState::Done, Some(why), turn.now());
        let record = turn.pool().session(session);
        let forgotten = record.and_then(|record| pool::session::replace_conversation(record, conversation));
        turn.emit_all(std::iter::once(done).chain(forgotten));
    };
    daemon.engine.turn(end).await
}

/// Records why the prompt is not done, unless that is recorded already.
async fn record_note(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    note: MessageReason,
) -> Result<(), Refusal> {
    let record = move |turn: &mut Turn<'_>| {
        let Some(open) = turn.pool().pending_message(session, id) else { return };
        if open.state != MessageState::Typed {
            return;
        }
        let recorded = turn.message(id).ok().flatten().and_then(|(message, _)| message.status.reason);
        if recorded.as_ref() != Some(&note) {
            // The state keeps the time at which the prompt was typed.
            let event = pool::queue::transition(&open, MessageState::Typed, Some(note), open.since);
            turn.emit(event);
        }
    };
    daemon.engine.turn(record).await
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_text_is_read_once_nothing_of_it_follows() {
        for (second, is_done) in [(InputState::Read, true), (InputState::Unread(5), false)] {
            let inputs = Mutex::new(VecDeque::from([InputState::Read, second]));
            let test = TestDaemon::start(TestProcesses { inputs, ..TestProcesses::default() });
            let running = test.run("a").await;
            let (pane, program, detector) =
                (running.pane, running.run.agent.unwrap(), ReadDetector::default());
            let watch = InputWatch { pane, program, detector, ends_line: true };
            let status = watch.sample(&test.daemon).await;
            assert_eq!(matches!(status, InputStatus::Done(_)), is_done, "{second:?}");
        }
    }
}
