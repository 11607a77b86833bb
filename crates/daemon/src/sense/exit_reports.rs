//! Exits of programs, as their inits report them: a nudge tells the daemon to read the init's files.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pool::observe::{Findings, SuspectRun, Suspects, started_programs};
use protocol::{Backoff, Event, Exit, Lifecycle, ProcId, Reason, Session, Tag};
use tokio::time::{Instant, sleep};

use crate::engine::{Daemon, Turn};
use crate::sense::{observe, process_exits, tmux_snapshot};

/// The signal with which the kernel's out-of-memory killer ends a process.
const SIGKILL: i32 = 9;

/// Maximum time for an init to end what its program left behind.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(15);

/// Handles an init's nudge: its program ended.
pub(crate) async fn handle_nudge(daemon: Arc<Daemon>, tag: Tag) {
    let findings = read_report(&daemon, tag).await.unwrap_or_default();
    let noted = daemon.engine.turn(move |turn| note_exit(turn, &findings, tag)).await;
    let Ok(Some(init)) = noted else { return };
    if await_exit(&daemon, init).await {
        daemon.engine.post(move |turn| {
            turn.volatile.reaping.note_exited([init]);
            turn.wake();
        });
        // The init's end closes the pane. Listing tmux now shows that sooner than the watcher's next observation.
        drop(tmux_snapshot::take(&daemon).await);
    }
}

/// Returns what the init reported of its program's exit, and which processes of the incarnation have ended.
/// None if its files do not answer.
pub(crate) async fn read_report(daemon: &Daemon, tag: Tag) -> Option<Findings> {
    let find = move |turn: &mut Turn<'_>| {
        let run = turn.pool().tagged(tag)?.incarnation.clone()?;
        let processes = [run.init, run.agent, run.server.map(|server| server.process)];
        let processes: BTreeSet<ProcId> = processes.into_iter().flatten().collect();
        let suspect = SuspectRun { tag: run.tag, init: run.init, agent: run.agent };
        Some(Suspects { processes, runs: vec![suspect] })
    };
    match daemon.engine.turn(find).await {
        Ok(Some(suspects)) => observe::sample(daemon, suspects).await,
        _ => Some(Findings::default()),
    }
}

/// Records programs that were not on record, and which processes have ended.
pub(crate) fn note_processes(turn: &mut Turn<'_>, findings: &Findings) {
    let started = started_programs(turn.pool(), findings);
    turn.emit_all(started);
    turn.volatile.reaping.note_exited(findings.exited.iter().copied());
}

/// Records the exit of a program. Returns the init that is now cleaning up.
fn note_exit(turn: &mut Turn<'_>, findings: &Findings, tag: Tag) -> Option<ProcId> {
    note_processes(turn, findings);
    let session = turn.pool().tagged(tag)?;
    let (id, incarnation) = (session.id, session.incarnation.as_ref()?);
    let exit = *findings.exits.get(&incarnation.tag)?;
    let (init, missing_since) = (incarnation.init, incarnation.missing_since);
    // The terminal went with the server, so the program did not end by itself.
    let hung_up = incarnation.server.is_some_and(|server| findings.exited.contains(&server.process));
    let reason = match session.lifecycle {
        Lifecycle::Live if hung_up => Reason::ServerGone,
        Lifecycle::Live => Reason::Exited,
        Lifecycle::Draining if hung_up && is_cut_off(turn, session, session.exit) => Reason::ServerGone,
        // It ended by itself before its queue was drained.
        Lifecycle::Draining if ended_before_drained(turn, session) => Reason::Exited,
        Lifecycle::Draining => session.reason.unwrap_or(Reason::Exited),
        _ => return init,
    };
    if session.exit != Some(exit) || session.lifecycle == Lifecycle::Live {
        let account = findings.accounts.get(&incarnation.tag).copied();
        let starved = account.and_then(|account| account.oom_kills).is_some_and(|kills| kills > 0);
        let reason = match reason {
            Reason::Exited if starved && exit.signal == Some(SIGKILL) => Reason::MemoryLimit,
            other => other,
        };
        turn.emit_all(account.map(|account| Event::SessionAccounted(id, account)));
        turn.emit(Event::SessionDraining { session: id, reason, exit: Some(exit), missing_since });
    }
    init
}

/// True if an end that the program did not ask for cuts off the session's drain.
pub(crate) fn is_cut_off(turn: &Turn<'_>, session: &Session, exit: Option<Exit>) -> bool {
    pool::session::is_cut_off(turn.pool(), session, exit, is_drained(turn, session))
}

/// True if the program's end now would leave messages of a draining session.
pub(crate) fn ended_before_drained(turn: &Turn<'_>, session: &Session) -> bool {
    !is_drained(turn, session) && pool::session::is_drain_unfinished(turn.pool(), session)
}

fn is_drained(turn: &Turn<'_>, session: &Session) -> bool {
    turn.volatile.scheduler.drained().contains(&session.id)
}

/// Waits until an init has ended. Returns false after [`CLEAN_UP_LIMIT`].
async fn await_exit(daemon: &Daemon, init: ProcId) -> bool {
    let deadline = Instant::now() + CLEAN_UP_LIMIT;
    let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));
    while process_exits::sample(daemon, [init].into()).await.is_empty() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(backoff.pause()).await;
    }
    true
}
