//! Whether what is to be ended is this pool's. A copy of a pool's database names the processes of the original, by their
//! numbers and start times: the right process, and another pool's.

use std::path::Path;

use process::{identity, place};
use protocol::reap::{CandidateKind, Lease};
use protocol::{OsBytes, ProcId};

/// Before anything is signalled. `seen`: its pane was found with its mark, in the tmux server of this pool.
///
/// # Errors
/// Why it is not touched.
pub(crate) fn check(lease: &Lease, seen: bool) -> Result<(), String> {
    use CandidateKind::{Orphan, StaleClient, StaleWorker};
    let candidate = &lease.candidate;
    // Of these poold has seen the process itself, on a connection or with its own mark.
    if matches!(candidate.kind, Orphan | StaleClient | StaleWorker) {
        return Ok(());
    }
    let Some(init) = candidate.init.filter(|init| lives(*init)) else { return Ok(()) };
    let argv = place::argv(init).map_err(|error| format!("process {init}: {error}"))?;
    let Some(argv) = argv else { return Ok(()) };
    match job_of(&argv) {
        Some(job) if job == lease.run.as_path().join(format!("{}.job", candidate.tag)) => Ok(()),
        Some(_) => Err(format!("process {init} is an init of another pool")),
        // One that was adopted, or is no init: only its pane tells whose it is.
        None if seen => Ok(()),
        None => Err(format!("process {init} is no init of this pool, and its pane is not to be seen")),
    }
}

fn lives(id: ProcId) -> bool {
    !identity::exited(id).unwrap_or(false)
}

/// The file that an init was started with: `REAPER exec RUN/TAG.job`.
fn job_of(argv: &[OsBytes]) -> Option<&Path> {
    match argv {
        [_, exec, job] if exec.0 == b"exec" && job.0.ends_with(b".job") => Some(job.as_path()),
        _ => None,
    }
}
