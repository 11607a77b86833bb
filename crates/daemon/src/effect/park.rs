//! Parks a session: its program ends, its slot is freed, and a prompt wakes it again.

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::prompt::Blocked;
use pool::slots::LossSource;
use pool::{Agent, slots};
use protocol::{Event, ProcId, SessionId, Tag};
use tmux::{Answer, PaneRef};
use tokio::time::sleep;

use crate::effect::last_screen::save_screen;
use crate::engine::{Daemon, Turn, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::sense::pane_state::{read_screen, wait_for_keys};

/// Number of further samples, and the time between them, that have to show a process or work on the screen before it
/// counts: an agent's hooks and helpers may run for a moment after its turn.
const RECHECKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(400);

/// Ends the incarnation of a session that is being parked. The session continues if something would be lost, if its
/// screen or its processes cannot be read, or if a client is attached, which tmux checks in the same step that hangs
/// up. A program that survives is left to the reaper. Returns the reason if the session continues.
pub(crate) async fn end_unattended(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> Option<Kept> {
    let grant = daemon.engine.lock_inside(session, "park").await.ok()?;
    let loss = expected_loss(daemon, session, tag).await;
    let (deferred, kept) = match loss {
        Loss::None => (None, hang_up(daemon, session, tag).await.err()),
        Loss::Known(source, what) => (Some(source), Some(Kept::for_reason(what))),
        Loss::Unknown(Kept { why, by_silence }) => {
            let why = format!("it is not known what would be lost: {why}");
            (Some(LossSource::Unknown), Some(Kept { why, by_silence }))
        }
    };
    let continues = kept.is_some();
    let settle = move |turn: &mut Turn<'_>| {
        // If the guard is gone, a forced request has decided meanwhile that the session is parked.
        let is_undecided = turn.volatile.reaping.is_guarded(tag);
        turn.volatile.reaping.end_guard(tag);
        if continues && is_undecided {
            resume_running(turn, session, tag);
        }
        if let Some(source) = deferred {
            let now = turn.now();
            turn.volatile.scheduler.defer_parking((session, tag), source, now);
        }
        turn.wake();
    };
    // A stopping engine has nothing left to change.
    drop(daemon.engine.turn(settle).await);
    drop(grant);
    kept
}

/// The reason for which a session that was to be parked continues.
pub(crate) struct Kept {
    /// The reason, for people.
    pub(crate) why: String,
    /// True if tmux did not answer.
    pub(crate) by_silence: bool,
}

impl Kept {
    fn for_reason(why: impl Into<String>) -> Self {
        Self { why: why.into(), by_silence: false }
    }
}

impl From<Blocked> for Kept {
    fn from(blocked: Blocked) -> Self {
        Self { why: blocked.to_string(), by_silence: blocked.is_silence() }
    }
}

/// The loss if a session were parked.
enum Loss {
    None,
    /// A draft, or work in the background.
    Known(LossSource, String),
    /// Its terminal or its processes cannot be read, for this reason.
    Unknown(Kept),
}

/// Determines what would be lost, by the screen and the processes. Once a program has ended and its terminal is closed,
/// nothing can be lost.
async fn expected_loss(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> Loss {
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await.ok().flatten();
    let Some(record) = record else { return Loss::None };
    let Some(run) = record.incarnation.as_ref().filter(|run| run.tag == tag) else { return Loss::None };
    let Some(pane) = pane_of(run) else { return Loss::None };
    let agent = daemon.loaded().settings.agent_of(&record).clone();
    // Keys that were pressed a moment ago may not be on the screen yet, and their effect not reported by a hook.
    drop(wait_for_keys(daemon, session, &agent).await);
    if agent.shows_composer() {
        match shown_loss(daemon, &agent, pane).await {
            Loss::None => {}
            loss => return loss,
        }
    }
    let Some(processes) = run.init.zip(run.agent) else { return Loss::None };
    background_work(daemon, processes, &agent).await
}

/// Determines the loss that the screen of an agent shows. Its hook may tell the end of a turn before its screen does.
async fn shown_loss(daemon: &Daemon, agent: &Agent, pane: PaneRef) -> Loss {
    let mut rechecks = RECHECKS;
    loop {
        let look = match read_screen(daemon, agent, pane).await {
            Ok((_, look)) => look,
            Err(blocked) if blocked.is_closed() => return Loss::None,
            Err(blocked) => return Loss::Unknown(blocked.into()),
        };
        let Some(shown) = look.as_ref().and_then(pool::slots::loss_if_parked) else { return Loss::None };
        if rechecks == 0 || look.is_none_or(|look| look.works != Some(true)) {
            return Loss::Known(LossSource::Screen, shown);
        }
        rechecks -= 1;
        sleep(PAUSE).await;
    }
}

/// Determines whether an agent works in the background, by the process table. `init_and_program` are its processes.
async fn background_work(daemon: &Daemon, init_and_program: (ProcId, ProcId), agent: &Agent) -> Loss {
    let is_shell = agent.confirm == Confirm::Prompt;
    if !is_shell && agent.confirm != Confirm::Hook && !agent.shows_composer() {
        // For any other program it is unknown which of its processes are only helpers, so none of them counts as work.
        return Loss::None;
    }
    let look = || {
        let processes = daemon.processes();
        let look = move || processes.background(init_and_program, is_shell);
        daemon.blocking.with_timeout(Purpose::Processes, look)
    };
    let unread = || Loss::Unknown(Kept::for_reason("its processes cannot be read"));
    let Some(mut found) = look().await.flatten() else { return unread() };
    for _ in 0..RECHECKS {
        if found.is_empty() {
            return Loss::None;
        }
        sleep(PAUSE).await;
        let Some(again) = look().await.flatten() else { return unread() };
        found.retain(|work| again.iter().any(|other| other.first == work.first));
    }
    let Some(first) = found.first() else { return Loss::None };
    let more = if found.len() > 1 { format!(" and {} more", found.len() - 1) } else { String::new() };
    let name = protocol::redact::text(&first.command.to_string_lossy());
    let what = format!("it runs {name} (pid {}){more} in the background", first.pid);
    Loss::Known(LossSource::Processes, what)
}

/// Hangs up. The error says why the session continues: a client is attached, it went to work, or tmux failed.
async fn hang_up(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> Result<(), Kept> {
    save_screen(daemon, session, tag).await;
    let find = move |turn: &mut Turn<'_>| {
        slots::run_to_hang_up(turn.pool(), (session, tag), turn.now()).map(|run| run.and_then(pane_of))
    };
    let found = daemon.engine.turn(find).await.unwrap_or(Ok(None));
    let Some(pane) = found.map_err(Kept::for_reason)? else { return Ok(()) };
    crate::crash::point("park-hang-up");
    match daemon.tmux.kill_unattended(pane).await {
        Ok(Answer::Attached) => Err(Kept::for_reason("a client attached meanwhile")),
        Ok(answer) => {
            tracing::debug!(%session, ?answer, "hung up");
            Ok(())
        }
        Err(error) => {
            // The session continues if tmux certainly did not hang it up. In doubt it goes on being parked, and the
            // reaper ends it.
            tracing::debug!(%session, %error, "not hung up");
            let why = format!("it was not hung up: {error}");
            if error.in_doubt() { Ok(()) } else { Err(Kept { why, by_silence: !error.is_refusal() }) }
        }
    }
}

/// Makes a session live again that was about to be parked.
fn resume_running(turn: &mut Turn<'_>, id: SessionId, tag: Tag) {
    let Some(session) = turn.pool().session(id) else { return };
    let Some(incarnation) =
        session.incarnation.clone().filter(|run| run.tag == tag && session.is_being_parked())
    else {
        return;
    };
    tracing::info!(session = %id, "not parked");
    let recovered = session.recovered;
    turn.emit(Event::SessionLive { session: id, incarnation, recovered });
}

#[cfg(test)]
mod tests {
    use process::tree::Background;
    use protocol::{Lifecycle, Reason};
    use tmux::fake::Fault;

    use super::*;
    use crate::run::tests::{Running, TestDaemon, TestProcesses};

    /// Starts an agent with this screen and this work in the background, and begins to park it.
    async fn parking(screen: &str, background: Option<Vec<Background>>) -> (TestDaemon, Running) {
        let test = TestDaemon::start(TestProcesses { background, ..TestProcesses::default() });
        let running = test.run("a").await;
        test.show(running.pane, screen);
        let (session, tag) = (running.id, running.run.tag);
        let begin = move |turn: &mut Turn<'_>| {
            turn.volatile.reaping.guard(tag);
            let reason = Reason::Parked;
            turn.emit(Event::SessionDraining { session, reason, exit: None, missing_since: None });
        };
        test.turn(begin).await;
        (test, running)
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_whose_processes_cannot_be_read_is_not_parked() {
        for (background, is_parked) in [(Some(Vec::new()), true), (None, false)] {
            let (test, running) = parking("claude-idle", background).await;
            let kept = end_unattended(&test.daemon, running.id, running.run.tag).await;
            assert_eq!((kept.is_none(), test.has_called("kill_unattended")), (is_parked, is_parked));
            let expected = if is_parked { Lifecycle::Draining } else { Lifecycle::Live };
            assert_eq!(test.lifecycle(running.id).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_is_parked_by_force_meanwhile_does_not_continue() {
        for is_forced in [false, true] {
            let (test, running) = parking("claude-draft", Some(Vec::new())).await;
            let tag = running.run.tag;
            if is_forced {
                test.turn(move |turn| turn.volatile.reaping.end_guard(tag)).await;
            }
            assert!(end_unattended(&test.daemon, running.id, tag).await.is_some());
            let expected = if is_forced { Lifecycle::Draining } else { Lifecycle::Live };
            assert_eq!(test.lifecycle(running.id).await, expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_may_be_hung_up_does_not_continue() {
        for (fault, continues) in [(Fault::LoseReply, false), (Fault::Refuse("no".to_owned()), true)] {
            let (test, running) = parking("claude-idle", Some(Vec::new())).await;
            // The first call saves the screen.
            test.tmux.fail([Fault::Late(Duration::ZERO), fault]);
            let hung_up = hang_up(&test.daemon, running.id, running.run.tag).await;
            assert!(test.has_called("kill_unattended"));
            assert_eq!(hung_up.is_err(), continues);
        }
    }
}
