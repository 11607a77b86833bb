//! A launch whose job an init has claimed: finds its pane, waits for the report of its start, and determines the
//! outcome.

use std::time::Duration;

use pool::observe::with_processes;
use protocol::tmux::Server;
use protocol::{Backoff, Exit, Incarnation, Reason};
use tokio::time::{Instant, sleep};

use crate::engine::{Daemon, pane_of};
use crate::host::files::{self, Fence};
use crate::sense::tmux_snapshot;

/// Maximum time from an init's claim of a job until its program runs.
const START_LIMIT: Duration = Duration::from_secs(5);

/// The outcome of a launch.
#[derive(Debug)]
pub(crate) enum Launched {
    /// It runs, or has run and ended.
    Ran {
        /// The incarnation, with what is known of it.
        run: Box<Incarnation>,
        /// Its exit, if it ended.
        exit: Option<Exit>,
    },
    /// The job certainly does not run, and can never run.
    Failed { reason: Reason, detail: String, exit: Option<Exit> },
    /// Unknown: it stays `starting` until its tag is seen.
    Unknown {
        why: String,
        /// The incarnation, with what is known of it.
        run: Box<Incarnation>,
    },
}

/// The outcome of a launch whose job was claimed before.
pub(crate) struct Followed {
    pub(crate) launched: Launched,
    /// True if its init reports that the program runs, but its pane was not found and the init may still live.
    pub(crate) is_unseen: bool,
}

/// Follows a launch whose job an init has claimed: its pane is looked for until the limit, then its program is
/// waited for.
pub(crate) async fn follow_claimed(daemon: &Daemon, run: &Incarnation, limit: Duration) -> Followed {
    let run = with_claimed_init(daemon, run);
    let placed = find_by_tag(daemon, &run, limit).await;
    let is_placed = placed.is_some();
    let launched = await_start(daemon, placed.unwrap_or_else(|| run.clone())).await;
    let has_ended = run.init.is_some_and(|init| daemon.world.processes.has_exited(init));
    let is_unseen = matches!(launched, Launched::Ran { exit: None, .. }) && !is_placed && !has_ended;
    let launched = match launched {
        Launched::Unknown { .. } if has_ended => {
            let detail = "its init ended, and left no record that the program ran".to_owned();
            Launched::Failed { reason: Reason::TmuxFailed, detail, exit: None }
        }
        launched => launched,
    };
    Followed { launched, is_unseen }
}

/// Returns the incarnation with the init that claimed its job, and its control group.
pub(crate) fn with_claimed_init(daemon: &Daemon, run: &Incarnation) -> Incarnation {
    let init = run.init.or_else(|| files::claimed_by(&daemon.paths.run, run.tag));
    let cgroup = run.cgroup.clone().or_else(|| daemon.cgroups.find(run.tag).map(Into::into));
    Incarnation { init, cgroup, ..run.clone() }
}

/// Waits until the incarnation's tag appears in a complete listing; `None` after `limit`.
pub(crate) async fn find_by_tag(daemon: &Daemon, run: &Incarnation, limit: Duration) -> Option<Incarnation> {
    let deadline = Instant::now() + limit;
    loop {
        let state = tmux_snapshot::list(daemon).await;
        if let Server::Up(server) = state.server
            && let Some((id, pane)) = state.tagged_pane(run.tag)
        {
            let found = run.clone();
            return Some(Incarnation {
                server: Some(server),
                session: Some(pane.session),
                pane: Some(id),
                init: pane.process.or(run.init),
                ..found
            });
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the program runs, or its init reports why not.
pub(crate) async fn await_start(daemon: &Daemon, run: Incarnation) -> Launched {
    let deadline = Instant::now() + START_LIMIT;
    let mut backoff = Backoff::new(Duration::from_micros(500), Duration::from_millis(20));
    loop {
        let dir = &daemon.paths.run;
        let ended = files::read_exit(dir, run.tag);
        if let Some((exit, Some(error))) = ended {
            return Launched::Failed { reason: Reason::ExecFailed, detail: error, exit: Some(exit) };
        }
        if let Some(started) = files::read_started(dir, run.tag) {
            let exit = ended.map(|(exit, _)| exit);
            return Launched::Ran { run: Box::new(with_processes(run, started)), exit };
        }
        if let Some((exit, None)) = ended {
            return Launched::Ran { run: Box::new(with_claimed_init(daemon, &run)), exit: Some(exit) };
        }
        if Instant::now() >= deadline {
            if is_never_claimed(daemon, &run).await {
                let init = daemon.reaper_program.display();
                let detail =
                    format!("{init}, which begins programs, did not run: is it there, and executable?");
                return Launched::Failed { reason: Reason::ExecFailed, detail, exit: None };
            }
            let why = "the program did not start in time".to_owned();
            return Launched::Unknown { why, run: Box::new(with_claimed_init(daemon, &run)) };
        }
        sleep(backoff.pause()).await;
    }
}

/// True if the pane of an incarnation is dead and its job was never claimed. Withdraws the job, so that nothing can
/// start it later.
async fn is_never_claimed(daemon: &Daemon, run: &Incarnation) -> bool {
    let Some(pane) = pane_of(run) else { return false };
    let is_dead = daemon.tmux.snapshot(pane).await.is_ok_and(|seen| seen.dead);
    is_dead && matches!(files::fence(&daemon.paths.run, run.tag), Ok(Fence::Never))
}
