//! The ends of programs, as their inits report them: a nudge says "look at your files".

use std::sync::Arc;
use std::time::Duration;

use protocol::session::Reason;
use protocol::{Event, Incarnation, Lifecycle, ProcId, Tag};
use tokio::time::{Instant, sleep};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::{files, verb};

/// The number of the signal with which the kernel ends what has no memory left.
const KILL: i32 = 9;
/// How long an init may take to end what its program left behind.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(15);

/// An init nudged: its program ended.
pub(crate) async fn nudged(daemon: Arc<Daemon>, tag: Tag) {
    let run = daemon.paths.run.clone();
    let Ok(Some(init)) = daemon.engine.turn(move |turn| note_exit(turn, &run, tag)).await else { return };
    if await_exit(init).await {
        daemon.engine.post(|turn| turn.stir());
        // Now the pane is closed, or about to be: seen sooner than by the watcher's next look.
        drop(verb::snapshot(&daemon).await);
    }
}

/// Commits how a program ended. Answers which init is now cleaning up.
pub(crate) fn note_exit(turn: &mut Turn<'_>, run: &std::path::Path, tag: Tag) -> Option<ProcId> {
    let session = turn.pool().tagged(tag)?;
    let (id, incarnation) = (session.id, session.incarnation.as_ref()?);
    let (exit, _) = files::read_exit(run, tag).filter(|_| has_ended(incarnation))?;
    let (init, missing_since) = (incarnation.init, incarnation.missing_since);
    // Its terminal went with the server: it did not end by itself.
    let hung_up = incarnation.server.is_some_and(|s| process::identity::exited(s.process).unwrap_or(false));
    let reason = match session.lifecycle {
        Lifecycle::Live if hung_up => Reason::ServerGone,
        Lifecycle::Live => Reason::Exited,
        // It ended by itself before it had worked off what it had.
        Lifecycle::Draining if gave_up(turn, session) => Reason::Exited,
        Lifecycle::Draining => session.reason.unwrap_or(Reason::Exited),
        _ => return init,
    };
    if session.exit != Some(exit) || session.lifecycle == Lifecycle::Live {
        let account = files::read_account(run, tag);
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

/// Whether a record of its end can be its init's: a program that runs has not ended, whoever wrote that it had.
pub(crate) fn has_ended(run: &Incarnation) -> bool {
    run.agent.is_none_or(|agent| process::identity::exited(agent).unwrap_or(false))
}

fn gave_up(turn: &Turn<'_>, session: &protocol::Session) -> bool {
    let drained = session.reason == Some(Reason::Drained) && !turn.rest.view.drained.contains(&session.id);
    drained && !pool::queue::is_empty(turn.pool(), session.id)
}

/// What the program of a current incarnation used in all, where its init tells and it is news.
pub(crate) fn account(pool: &pool::Pool, run: &std::path::Path, tag: Tag) -> Option<Event> {
    let session = pool.tagged(tag).filter(|s| s.incarnation.as_ref().is_some_and(|i| i.tag == tag))?;
    let account = files::read_account(run, tag)?;
    (session.account != Some(account)).then_some(Event::SessionAccounted { session: session.id, account })
}

async fn await_exit(init: ProcId) -> bool {
    let deadline = Instant::now() + CLEAN_UP_LIMIT;
    let mut pause = Duration::from_millis(1);
    while !process::identity::exited(init).unwrap_or(false) {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    true
}
