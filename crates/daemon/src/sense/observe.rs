//! Applies observations of tmux. The state is updated in one turn; if the observation does not confirm
//! everything, processes and exit reports are sampled outside of the engine, and the consequences are decided
//! in a second turn.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::observe::{self, Findings, SuspectRun, Suspects, Update};
use protocol::{Event, Refusal, Tag};
use tmux::PaneRef;

use world::processes::Processes;

use crate::engine::{Daemon, ObservedTmux, Turn, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::files;

/// The effect of an observation.
#[derive(Debug, Default)]
pub(crate) struct TakenIn {
    /// False if the observation was rejected, or overtaken by a newer one.
    pub(crate) admitted: bool,
    /// True if something is missing and its fate is not proved yet, or a program was only just recorded: another
    /// observation has to follow soon.
    pub(crate) is_missing: bool,
}

/// Incarnations and panes that an observation found to be over.
struct Over {
    /// Incarnations.
    tags: Vec<Tag>,
    /// Panes in which somebody started another program.
    panes: Vec<PaneRef>,
}

/// The state of an observation after its first turn.
enum Step {
    Rejected,
    Done(TakenIn, Over),
    Open(Update, Suspects),
}

/// Applies an observation. `admit` runs in the first turn, and returns `None` if the observation no longer
/// counts; `done` runs in the turn in which the consequences are decided.
///
/// # Errors
/// The error of `admit`; storage: the engine has stopped.
pub(crate) async fn take_in(
    daemon: &Arc<Daemon>,
    admit: impl FnOnce(&mut Turn<'_>) -> Result<Option<ObservedTmux>, Refusal> + Send + 'static,
    done: impl FnOnce(&mut Turn<'_>) + Send + 'static,
) -> Result<TakenIn, Refusal> {
    let first = move |turn: &mut Turn<'_>| {
        let Some(sighting) = admit(turn)? else { return Ok((Step::Rejected, None)) };
        let began = turn.beginning(sighting.age);
        if turn.volatile.observed.is_overtaken(&sighting.report, sighting.by, began) {
            return Ok((Step::Rejected, None));
        }
        turn.publish_tmux(&sighting);
        let (pool, volatile) = turn.state();
        let ObservedTmux { report, complete, by, .. } = sighting;
        let update = volatile.observed.update(pool, (report, complete), (by, began));
        let suspects = observe::suspects(pool, volatile, &update);
        if !suspects.is_empty() {
            return Ok((Step::Open(update, suspects), Some(done)));
        }
        let (taken, over) = conclude(turn, &update, &Findings::default());
        done(turn);
        Ok((Step::Done(taken, over), None))
    };
    let (step, done) = daemon.engine.turn(first).await??;
    let (taken, Over { tags, panes }) = match step {
        Step::Rejected => return Ok(TakenIn::default()),
        Step::Done(taken, over) => (taken, over),
        Step::Open(update, suspects) => {
            let findings = sample(daemon, suspects).await.unwrap_or_default();
            let second = move |turn: &mut Turn<'_>| {
                let concluded = conclude(turn, &update, &findings);
                done.into_iter().for_each(|done| done(turn));
                concluded
            };
            daemon.engine.turn(second).await?
        }
    };
    remove_run_files(daemon, tags);
    disown(daemon, panes);
    Ok(taken)
}

/// Takes the tag and the log from panes of ended incarnations that have lost their tags: a person started another
/// program in them.
fn disown(daemon: &Daemon, panes: Vec<PaneRef>) {
    for pane in panes {
        let tmux = Arc::clone(&daemon.tmux);
        daemon.world.spawn("disown", async move {
            // If this fails, the output of the pane is logged until it ends.
            let disowned = tmux.disown(pane).await;
            tracing::debug!(pane = %pane.pane, ?disowned, "a pane of somebody else's");
        });
    }
}

/// Returns the panes of incarnations that these events end, if the panes still exist without their tags.
fn taken_panes(turn: &Turn<'_>, events: &[Event]) -> Vec<PaneRef> {
    let ended = events.iter().filter_map(|event| match event {
        Event::SessionDraining { session, .. } | Event::SessionStopped { session, .. } => Some(*session),
        _ => None,
    });
    let runs = ended.filter_map(|session| turn.pool().session(session)?.incarnation.as_ref());
    let panes = &turn.volatile.observed.state().panes;
    let is_taken = |pane: &PaneRef| panes.get(&pane.pane).is_some_and(|found| found.tag.is_none());
    runs.filter_map(pane_of).filter(is_taken).collect()
}

fn conclude(turn: &mut Turn<'_>, update: &Update, findings: &Findings) -> (TakenIn, Over) {
    let now = turn.now();
    let (pool, volatile) = turn.state();
    let outcome = observe::take_in(pool, volatile, update, findings, now);
    let panes = taken_panes(turn, &outcome.events);
    turn.emit_all(outcome.events);
    if outcome.wakes_waiters {
        turn.wake();
    }
    let taken = TakenIn { admitted: true, is_missing: outcome.is_missing };
    (taken, Over { tags: outcome.over, panes })
}

/// Determines which processes have ended, and reads what inits reported of ended programs. None if the files do not
/// answer: then nothing is known.
pub(crate) async fn sample(daemon: &Daemon, suspects: Suspects) -> Option<Findings> {
    let run = daemon.paths.run.clone();
    let processes = daemon.processes();
    let look = move || read(&*processes, &run, &suspects);
    daemon.blocking.with_timeout(Purpose::Processes, look).await
}

fn read(processes: &dyn Processes, run: &Path, suspects: &Suspects) -> Findings {
    let has_exited = |process| processes.has_exited(process);
    let exited = suspects.processes.iter().copied().filter(|process| has_exited(*process)).collect();
    let mut findings = Findings { exited, ..Findings::default() };
    for SuspectRun { tag, init, agent } in &suspects.runs {
        let started = if agent.is_none() { files::read_started(run, *tag) } else { None };
        if agent.is_none() && started.is_none() && files::may_have_started(run, *tag) {
            // The end of the init does not prove that its program, whose process is not known, has ended.
            findings.exited.retain(|process| Some(*process) != *init);
        }
        let agent = agent.or(started.as_ref().map(|found| found.agent));
        findings.started.extend(started.map(|found| (*tag, found)));
        // A report that a program has ended does not count while the program runs: anybody may have written it.
        if !agent.is_none_or(has_exited) {
            continue;
        }
        if let Some((exit, _)) = files::read_exit(run, *tag) {
            findings.exits.insert(*tag, exit);
            findings.accounts.extend(files::read_account(run, *tag).map(|account| (*tag, account)));
        }
    }
    findings
}

/// Removes the files of ended incarnations, in the background.
pub(crate) fn remove_run_files(daemon: &Daemon, over: Vec<Tag>) {
    if over.is_empty() {
        return;
    }
    let run = daemon.paths.run.clone();
    let remove = move || over.into_iter().for_each(|tag| files::remove_run_files(&run, tag));
    // Files that do not answer are removed at the next start.
    let blocking = daemon.blocking.clone();
    daemon.world.spawn("run files", async move {
        blocking.with_timeout(Purpose::Housekeeping, remove).await;
    });
}

/// Pauses before further observations if something is missing: the first is long enough for a report of its end, the
/// second for a proof of its absence.
pub(crate) const RECHECK_DELAYS: [Duration; 2] =
    [observe::REPORT_DELAY_MAX, observe::ABSENCE_PROOF.saturating_add(MARGIN)];

/// Margin for timestamps, which are rounded to milliseconds.
const MARGIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use protocol::job::{ExitRecord, JOB_VERSION, Started};
    use protocol::{ProcId, Timestamp};
    use world::processes::SystemProcesses;

    use super::*;

    #[test]
    fn a_report_that_a_program_has_ended_counts_for_nothing_while_it_runs() {
        let (dir, tag, at) = (tempfile::tempdir().unwrap(), Tag([7; 16]), Timestamp(1));
        let write = |what: &str, record: serde_json::Result<Vec<u8>>| {
            std::fs::write(dir.path().join(format!("{tag}.{what}")), record.unwrap()).unwrap();
        };
        let exit = ExitRecord {
            version: JOB_VERSION,
            code: Some(3),
            signal: None,
            exec_error: None,
            at,
            user_us: 1,
            system_us: 1,
            max_rss_kib: 1,
            oom_kills: None,
        };
        write("exit", serde_json::to_vec(&exit));
        let runs = SystemProcesses.me().unwrap();
        let ended = ProcId { start: runs.start - 1, ..runs };
        // The process of the program: as it is on record, or else as its init reported it.
        for (agent, reported, counts) in [
            (Some(runs), None, false),
            (Some(ended), None, true),
            (None, None, true),
            (None, Some(runs), false),
            (None, Some(ended), true),
        ] {
            if let Some(agent) = reported {
                let unenforced = Vec::new();
                let started = Started { version: JOB_VERSION, init: ended, agent, at, unenforced };
                write("started", serde_json::to_vec(&started));
            }
            let suspect = SuspectRun { tag, init: Some(ended), agent };
            let suspects = Suspects { processes: Default::default(), runs: vec![suspect] };
            let found = read(&SystemProcesses, dir.path(), &suspects);
            let code = found.exits.get(&tag).and_then(|exit| exit.code);
            assert_eq!(code, counts.then_some(3), "{agent:?} {reported:?}");
            assert_eq!(found.accounts.contains_key(&tag), counts, "{agent:?} {reported:?}");
        }
    }
}
