//! Puts a session aside: its program ends, its slot comes free, a message wakes it again.

use std::sync::Arc;
use std::time::Duration;

use agents::Confirm;
use pool::Agent;
use process::tree::Table;
use protocol::{Event, ProcId, SessionId, Tag};
use tmux::Answer;
use tokio::time::sleep;

use crate::effect::keep_screen::keep_screen;
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::sense::glance::glance;

/// Further looks at a process before it counts as background work: an agent's hooks and helpers may run for a moment after its
/// turn.
const LOOKS: u32 = 5;

/// Time between two of them.
const PAUSE: Duration = Duration::from_millis(400);

/// Ends an incarnation that is put aside, unless its screen shows what would be lost by it, or somebody is attached: tmux
/// looks for that in the same pass in which it hangs up. What does not end of that is left to the reaper. Answers why it
/// goes on, where it does.
pub(crate) async fn end_unattended(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> Option<String> {
    let grant = daemon.engine.lock_inside(session, "park").await.ok()?;
    let loses = loses(daemon, session, tag).await;
    let shows = loses.is_some();
    let kept = match loses {
        None => hang_up(daemon, session, tag).await.err(),
        loses => loses,
    };
    let goes_on = kept.is_some();
    let settle = move |turn: &mut Turn<'_>| {
        turn.volatile.reaping.end_guard(tag);
        if goes_on {
            go_on(turn, session, tag);
        }
        if shows {
            let now = turn.now();
            turn.volatile.scheduler.keep(session, tag, now);
        }
        turn.wake();
    };
    // A stopping engine has nothing left to change.
    drop(daemon.engine.turn(settle).await);
    drop(grant);
    kept
}

/// The draft or the background work that its end would lose, as its screen and its processes show. A screen or a process table
/// that cannot be read tells nothing.
async fn loses(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> Option<String> {
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await.ok()??;
    let pane = record.incarnation.as_ref().filter(|run| run.tag == tag).and_then(pane_of)?;
    let agent = daemon.loaded().settings.agent_of(&record).clone();
    if agent.shows_composer()
        && let Ok((_, Some(look))) = glance(daemon, &agent, pane).await
        && let Some(shown) = pool::slots::loses(&look)
    {
        return Some(shown);
    }
    let run = record.incarnation.as_ref()?;
    runs(run.init.zip(run.agent)?, &agent).await
}

/// The background work of its agent, by the process table. `processes`: its init, and its agent.
async fn runs(processes: (ProcId, ProcId), agent: &Agent) -> Option<String> {
    let is_shell = agent.confirm == Confirm::Prompt;
    if !is_shell && agent.confirm != Confirm::Hook && !agent.shows_composer() {
        // Of another program it is not known which processes are its helpers.
        return None;
    }
    let look = move || Table::read().map(|table| table.background(processes, is_shell)).unwrap_or_default();
    let mut found = blocking::limited(Purpose::Processes, look).await?;
    for _ in 0..LOOKS {
        if found.is_empty() {
            return None;
        }
        sleep(PAUSE).await;
        let again = blocking::limited(Purpose::Processes, look).await?;
        found.retain(|work| again.iter().any(|other| other.first == work.first));
    }
    let first = found.first()?;
    let more = if found.len() > 1 { format!(" and {} more", found.len() - 1) } else { String::new() };
    let name = protocol::redact::text(&first.command.to_string_lossy());
    Some(format!("it runs {name} (pid {}){more} in the background", first.pid))
}

/// Hangs up. Why nothing was done, otherwise: somebody is attached, or tmux does not answer.
async fn hang_up(daemon: &Arc<Daemon>, session: SessionId, tag: Tag) -> Result<(), String> {
    let run = daemon.incarnation(session).await.filter(|run| run.tag == tag);
    let Some(pane) = run.as_ref().and_then(pane_of) else { return Ok(()) };
    keep_screen(daemon, session, tag).await;
    crate::crash::point("park-hang-up");
    match daemon.tmux.kill_unattended(pane).await {
        Ok(Answer::Attached) => Err("somebody attached to it meanwhile".to_owned()),
        Ok(answer) => {
            tracing::debug!(%session, ?answer, "hung up");
            Ok(())
        }
        Err(error) => {
            // Where it certainly was not, it is not parked either; else the reaper sees to it.
            tracing::debug!(%session, %error, "not hung up");
            if error.in_doubt() { Ok(()) } else { Err(format!("it was not hung up: {error}")) }
        }
    }
}

/// It is as it was before.
fn go_on(turn: &mut Turn<'_>, id: SessionId, tag: Tag) {
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
