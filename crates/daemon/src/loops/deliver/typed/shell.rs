//! A prompt that was typed into a shell: the shell's own prompt goes, and comes back. Shells that mark their prompts (OSC
//! 133) say so themselves; of others it is seen who is in front, and how the terminal is read.

use std::sync::Arc;
use std::time::Duration;

use process::inspect::tty::ShellState;
use protocol::activity::Source;
use protocol::event::AgentEvent;
use protocol::{
    Activity, ActivityState, Event, Incarnation, MessageId, MessageState, Refusal, SessionId, Tag,
};
use tokio::time::Instant;

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::loops::deliver::typed::state::{Typed, settled};
use crate::loops::deliver::typed::{Claim, reading};
use crate::sense::glance::stand;

/// How long a shell that writes nothing may take until it counts as back.
const SILENT_LIMIT: Duration = Duration::from_secs(3);

/// Between two looks at who is in front: at first, and where it takes long.
const LOOK: Duration = Duration::from_millis(15);

const LOOK_MAX: Duration = Duration::from_millis(250);

/// Looks in a row that have to find a shell at rest: it may be just about to run what it has read.
const RESTS: u32 = 3;

/// How it is known.
const BACK: &str = "its prompt came back";

const IN_FRONT: &str = "its shell is in front again";

/// How a shell's terminal was before Enter was pressed.
pub(crate) struct Before {
    /// Where its log ended.
    end: u64,
    by_lines: Option<bool>,
}

impl Before {
    /// Now, once the text is in the terminal.
    pub(crate) async fn now(daemon: &Daemon, claim: &Claim) -> Option<Self> {
        let session = claim.message.session;
        let run = daemon.incarnation(session).await?;
        reading::has_written(daemon, claim.pane).await.then_some(())?;
        let by_lines = stand(&run).await.map(|stand| stand.canonical);
        Some(Self { end: end_of_log(daemon, session).await?, by_lines })
    }
}

async fn end_of_log(daemon: &Daemon, session: SessionId) -> Option<u64> {
    let dir = daemon.log_options(session).dir;
    blocking::limited(Purpose::Logs, move || logs::bounds(&dir)).await?.ok().map(|(_, end)| end)
}

/// A shell: its prompt went, and comes back.
pub(crate) async fn prompted(
    daemon: &Arc<Daemon>,
    session: SessionId,
    typed: Typed,
    before: Option<Before>,
) -> Result<(), Refusal> {
    let tag = typed.pane.tag;
    let marks = move |turn: &mut Turn<'_>| {
        let marks = turn.volatile.agents.marks(tag);
        marks.is_some_and(|marks| marks.command_at.max(marks.prompt_at).is_some())
    };
    let marked = daemon.engine.turn(marks).await?;
    match stand(&typed.run).await {
        Some(_) if !marked => in_front_again(daemon, session, &typed, before).await,
        _ => told(daemon, session, typed).await,
    }
}

/// Its marks tell, or what is in front of it is seen now and then.
async fn told(daemon: &Arc<Daemon>, session: SessionId, typed: Typed) -> Result<(), Refusal> {
    // A look may be faster than the record that it was typed.
    let (id, tag, since) = (typed.id, typed.pane.tag, typed.begun);
    let began = move |turn: &mut Turn<'_>| {
        let marks = turn.volatile.agents.marks(tag);
        let mark = marks.and_then(|marks| marks.command_at.max(marks.prompt_at)).is_some_and(|at| at > since);
        let activity = turn.pool().activity_in(session, tag);
        let busy =
            activity.is_some_and(|a| a.state == ActivityState::Busy && tells(a.source) && a.since >= since);
        (mark || busy || gone(turn, (session, tag), id)).then_some(())
    };
    if typed.state == MessageState::Typed {
        if daemon.engine.wait_for(Some(SILENT_LIMIT), began).await.is_err() {
            let why = Some("unconfirmed");
            return settled(daemon, (session, id), MessageState::Done, why).await;
        }
        settled(daemon, (session, id), MessageState::Accepted, None).await?;
    }
    let back = move |turn: &mut Turn<'_>| {
        let marks = turn.volatile.agents.marks(tag);
        let prompt = marks.and_then(|marks| marks.prompt_at.filter(|at| Some(*at) > marks.command_at));
        let activity = turn.pool().activity_in(session, tag);
        let idle =
            activity.is_some_and(|a| a.state == ActivityState::Idle && tells(a.source) && a.since >= since);
        (prompt.is_some_and(|at| at > since) || idle || gone(turn, (session, tag), id)).then_some(())
    };
    daemon.engine.wait_for(None, back).await?;
    settled(daemon, (session, id), MessageState::Done, Some(BACK)).await
}

/// Looks until it is at rest again: in front, all read, its terminal as it was, and something was written since Enter.
async fn in_front_again(
    daemon: &Arc<Daemon>,
    session: SessionId,
    typed: &Typed,
    before: Option<Before>,
) -> Result<(), Refusal> {
    let (id, tag) = (typed.id, typed.pane.tag);
    let (began_at, mut rested, mut runs) = (Instant::now(), 0, typed.state == MessageState::Accepted);
    loop {
        let Some(stand) = stand(&typed.run).await else { return Ok(()) };
        let rests = is_at_rest(&stand, before.as_ref());
        rested = if rests { rested + 1 } else { 0 };
        let wrote = match &before {
            Some(before) => end_of_log(daemon, session).await.is_some_and(|end| end > before.end),
            // It is not known what was there before a start of the daemon.
            None => true,
        };
        let late = began_at.elapsed() >= SILENT_LIMIT;
        if rested >= RESTS && (wrote || late) {
            let why = if wrote { IN_FRONT } else { "unconfirmed" };
            return back(daemon, (session, id), &typed.run, why).await;
        }
        if !rests && !runs && stand.unread == 0 {
            runs = true;
            settled(daemon, (session, id), MessageState::Accepted, None).await?;
        }
        let pause = (began_at.elapsed() / 32).clamp(LOOK, LOOK_MAX);
        let over = move |turn: &mut Turn<'_>| gone(turn, (session, tag), id).then_some(());
        if daemon.engine.wait_on(session, Some(pause), over).await.is_ok() {
            return Ok(());
        }
    }
}

fn is_at_rest(stand: &ShellState, before: Option<&Before>) -> bool {
    // One that edits its line reads by lines only while it runs something, or before its first prompt.
    let edits = before.is_some_and(|before| before.by_lines == Some(false));
    stand.in_foreground && stand.unread == 0 && !(edits && stand.canonical)
}

/// It is done, and its shell waits for the next: what was last seen of it may be older.
async fn back(
    daemon: &Daemon,
    (session, id): (SessionId, MessageId),
    run: &Incarnation,
    why: &'static str,
) -> Result<(), Refusal> {
    settled(daemon, (session, id), MessageState::Accepted, None).await?;
    let tag = run.tag;
    let front = run.init.and_then(|init| process::inspect::program::foreground(init.pid).ok().flatten());
    let idle = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        let shown = front.and_then(|front| {
            pool::observe::in_front(turn.pool(), (session, tag), &front.command, turn.now())
        });
        turn.emit_all(shown);
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
    settled(daemon, (session, id), MessageState::Done, Some(why)).await
}

fn tells(source: Source) -> bool {
    matches!(source, Source::Terminal | Source::Process)
}

/// Whether it moved on, or its shell is over.
fn gone(turn: &Turn<'_>, (session, tag): (SessionId, Tag), id: MessageId) -> bool {
    let open = turn.pool().open_message(session, id);
    let given = open.is_some_and(|open| matches!(open.state, MessageState::Typed | MessageState::Accepted));
    !given || turn.pool().tagged(tag).is_none_or(|found| found.id != session || !found.takes_prompts())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_rests_where_it_edits_its_line_again_or_reads_lines_as_it_always_does() {
        let stand = |canonical| ShellState { in_foreground: true, canonical, unread: 0 };
        let before = |by_lines| Some(Before { end: 0, by_lines });
        let rests = |by_lines, before: Option<Before>| is_at_rest(&stand(by_lines), before.as_ref());
        assert!(rests(false, before(Some(false))), "it edits its line again");
        assert!(!rests(true, before(Some(false))), "a builtin runs");
        assert!(rests(true, before(Some(true))), "a plain shell");
        assert!(rests(false, before(Some(true))), "it was typed before its first prompt");
        assert!(rests(true, before(None)) && rests(true, None));
        assert!(!is_at_rest(&ShellState { in_foreground: false, ..stand(false) }, None));
        assert!(!is_at_rest(&ShellState { unread: 1, ..stand(false) }, None));
    }
}
