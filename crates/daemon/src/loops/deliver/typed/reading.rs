//! A prompt into a program that tells nobody what it takes: it is done once it was read. The first count of unread bytes
//! proves nothing, as tmux may not have written yet; nor does a terminal that is read by lines count an unfinished one, and
//! the end of a program is no reading.

use std::time::Duration;

use process::inspect::tty;
use process::inspect::tty::{InputState, ReadDetector};
use protocol::{MessageId, MessageState, ProcId, Refusal, SessionId};
use tmux::PaneRef;
use tokio::time::{Instant, sleep};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::loops::deliver::claim::Claim;
use crate::loops::deliver::typed::state::{GONE, Typed, UNREAD, settled, typed};

/// What is said where it is done.
const DONE: &str = "unconfirmed";

const STANDS_IN_LINE: &str = "unconfirmed: it stands in its line, which Enter ends";

const UNTOLD: &str = "unconfirmed: this system does not tell whether it was read";

/// How long a program has to read what was typed before that is told.
const LIMIT: Duration = Duration::from_secs(1);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A terminal that is watched for being read.
pub(crate) struct Reading {
    pane: PaneRef,
    program: ProcId,
    armed: ReadDetector,
    ends_line: bool,
}

/// What is known of it now.
enum Found {
    /// It is done, and so it is said.
    Done(&'static str),
    /// Not yet, and why.
    Not(&'static str),
    /// Its program has ended: what becomes of it is said elsewhere.
    Ended,
}

impl Reading {
    /// From here on; before Enter, and once the text is in the terminal. None where its program is not known.
    pub(crate) async fn begin(daemon: &Daemon, claim: &Claim) -> Option<Self> {
        let program = daemon.incarnation(claim.message.session).await?.agent?;
        Self::of(daemon, (claim.pane, program), claim.message.enter).await
    }

    async fn of(daemon: &Daemon, (pane, program): (PaneRef, ProcId), ends_line: bool) -> Option<Self> {
        has_written(daemon, pane).await.then_some(())?;
        let arm = move || tty::arm_read_detector(program).ok().flatten();
        let armed = blocking::limited(Purpose::Processes, arm).await.flatten()?;
        Some(Self { pane, program, armed, ends_line })
    }

    async fn look(&self, daemon: &Daemon) -> Found {
        if !has_written(daemon, self.pane).await {
            return Found::Not(UNREAD);
        }
        match self.look_once().await {
            // What was long may have come in pieces: another one is there once tmux has answered.
            Some(InputState::Read) if has_written(daemon, self.pane).await => match self.look_once().await {
                Some(InputState::Read) => Found::Done(DONE),
                Some(InputState::ProcessEnded) => Found::Ended,
                _ => Found::Not(UNREAD),
            },
            Some(InputState::PartialLine) if !self.ends_line => Found::Done(STANDS_IN_LINE),
            Some(InputState::Unsupported) => Found::Done(UNTOLD),
            Some(InputState::ProcessEnded) => Found::Ended,
            Some(InputState::Missing) => Found::Not(GONE),
            Some(InputState::Read | InputState::PartialLine | InputState::Unread(_)) | None => {
                Found::Not(UNREAD)
            }
        }
    }

    async fn look_once(&self) -> Option<InputState> {
        let Self { program, armed, ends_line, .. } = *self;
        let look = move || tty::input_state(program, armed, ends_line).ok();
        blocking::limited(Purpose::Processes, look).await.flatten()
    }
}

/// tmux writes to a terminal after it has answered the command for it: once it answers another, it has.
pub(crate) async fn has_written(daemon: &Daemon, pane: PaneRef) -> bool {
    daemon.tmux.peek(pane).await.is_ok()
}

/// What is said of it where it is done within a moment.
pub(crate) async fn within(daemon: &Daemon, reading: Option<&Reading>) -> Option<&'static str> {
    let reading = reading?;
    let (deadline, mut pause) = (Instant::now() + LIMIT, PAUSE);
    loop {
        match reading.look(daemon).await {
            Found::Done(why) => return Some(why),
            Found::Ended => return None,
            Found::Not(_) if Instant::now() >= deadline => return None,
            Found::Not(_) => {}
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Looks until it was read, or it is not this prompt's turn any more.
pub(crate) async fn look_after(
    daemon: &Daemon,
    session: SessionId,
    now: Typed,
    reading: Option<Reading>,
) -> Result<(), Refusal> {
    let id = now.id;
    // After a start of the daemon it is not known what was read meanwhile: what waits no more counts as read.
    let fresh = reading.is_none();
    let reading = match (reading, now.run.agent) {
        (Some(reading), _) => Some(reading),
        (None, Some(program)) => Reading::of(daemon, (now.pane, program), now.enter).await,
        (None, None) => None,
    };
    let (mut pause, began) = (PAUSE, Instant::now());
    loop {
        let found = match &reading {
            None => Found::Done(UNTOLD),
            Some(reading) => match reading.look(daemon).await {
                Found::Not(GONE) if fresh => Found::Done(DONE),
                found => found,
            },
        };
        match found {
            Found::Done(why) => return settled(daemon, (session, id), MessageState::Done, Some(why)).await,
            Found::Ended => return Ok(()),
            Found::Not(why) if began.elapsed() >= LIMIT => tell(daemon, (session, id), why).await?,
            Found::Not(_) => {}
        }
        let loaded = daemon.loaded();
        let still =
            move |turn: &mut Turn<'_>| typed(turn, &loaded.settings, session).is_some_and(|t| t.id == id);
        if !daemon.engine.turn(still).await? {
            return Ok(());
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Says why it is not done, where that is news.
async fn tell(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    why: &'static str,
) -> Result<(), Refusal> {
    let tell = move |turn: &mut Turn<'_>| {
        let Some(open) = turn.pool().open_message(session, id) else { return };
        if open.state != MessageState::Typed {
            return;
        }
        let said = turn.message(id).ok().flatten().and_then(|(message, _)| message.status.reason);
        if said.as_deref() != Some(why) {
            // It was typed when it moved last.
            let event = pool::queue::moved(&open, MessageState::Typed, Some(why), open.since);
            turn.emit(event);
        }
    };
    daemon.engine.turn(tell).await
}
