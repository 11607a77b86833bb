//! Ends of programs, as their inits report them: a nudge says "look at your files".

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pool::observe::{Findings, Suspects};
use protocol::session::Reason;
use protocol::{Event, Lifecycle, ProcId, Tag};
use tokio::time::{Instant, sleep};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::sense::{exits, observe, snapshot};

/// The number of the signal with which the kernel ends what has no memory left.
const KILL: i32 = 9;

/// Time that an init may take to end what its program left behind.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(15);

/// An init nudged: its program ended.
pub(crate) async fn nudged(daemon: Arc<Daemon>, tag: Tag) {
    let findings = report_of(&daemon, tag).await;
    let noted = daemon.engine.turn(move |turn| note_exit(turn, &findings, tag)).await;
    let Ok(Some(init)) = noted else { return };
    if await_exit(init).await {
        daemon.engine.post(move |turn| {
            turn.volatile.reaping.note_exited([init]);
            turn.wake();
        });
        // Now the pane is closed, or about to be: seen sooner than by the watcher's next look.
        drop(snapshot::take(&daemon).await);
    }
}

/// What an init reported of the end of its program, and which processes of the incarnation have ended.
pub(crate) async fn report_of(daemon: &Daemon, tag: Tag) -> Findings {
    let find = move |turn: &mut Turn<'_>| {
        let run = turn.pool().tagged(tag)?.incarnation.clone()?;
        let processes = [run.init, run.agent, run.server.map(|server| server.process)];
        let processes: BTreeSet<ProcId> = processes.into_iter().flatten().collect();
        Some(Suspects { processes, runs: vec![(run.tag, run.agent)] })
    };
    match daemon.engine.turn(find).await {
        Ok(Some(suspects)) => observe::sample(daemon, suspects).await,
        _ => Findings::default(),
    }
}

/// Records how a program ended. Returns the init that is now cleaning up.
fn note_exit(turn: &mut Turn<'_>, findings: &Findings, tag: Tag) -> Option<ProcId> {
    turn.volatile.reaping.note_exited(findings.exited.iter().copied());
    let session = turn.pool().tagged(tag)?;
    let (id, incarnation) = (session.id, session.incarnation.as_ref()?);
    let exit = *findings.exits.get(&incarnation.tag)?;
    let (init, missing_since) = (incarnation.init, incarnation.missing_since);
    // Its terminal went with the server: it did not end by itself.
    let hung_up = incarnation.server.is_some_and(|server| findings.exited.contains(&server.process));
    let reason = match session.lifecycle {
        Lifecycle::Live if hung_up => Reason::ServerGone,
        Lifecycle::Live => Reason::Exited,
        // It ended by itself before it had worked off what it had.
        Lifecycle::Draining if gave_up(turn, session) => Reason::Exited,
        Lifecycle::Draining => session.reason.unwrap_or(Reason::Exited),
        _ => return init,
    };
    if session.exit != Some(exit) || session.lifecycle == Lifecycle::Live {
        let account = findings.accounts.get(&incarnation.tag).copied();
        let starved = account.and_then(|account| account.oom_kills).is_some_and(|kills| kills > 0);
        let reason = match reason {
            Reason::Exited if starved && exit.signal == Some(KILL) => Reason::MemoryLimit,
            other => other,
        };
        turn.emit_all(account.map(|account| Event::SessionAccounted { session: id, account }));
        turn.emit(Event::SessionDraining { session: id, reason, exit: Some(exit), missing_since });
    }
    init
}

fn gave_up(turn: &Turn<'_>, session: &protocol::Session) -> bool {
    let is_drained = turn.volatile.scheduler.drained().contains(&session.id);
    session.reason == Some(Reason::Drained) && !is_drained && !pool::queue::is_empty(turn.pool(), session.id)
}

async fn await_exit(init: ProcId) -> bool {
    let deadline = Instant::now() + CLEAN_UP_LIMIT;
    let mut pause = Duration::from_millis(1);
    while exits::sample([init].into()).await.is_empty() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    true
}
