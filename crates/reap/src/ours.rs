//! Whether what is to be ended is this pool's. A copy of a pool's database names the processes of the original, by their
//! numbers and start times: the right process, and another pool's.

use std::path::Path;
use std::time::Duration;

use process::{identity, place};
use protocol::reap::{CandidateKind, Lease};
use protocol::{OsBytes, ProcId};
use tokio::time::sleep;

/// Before anything is signalled. `seen`: its pane was found with its mark, in the tmux server of this pool.
///
/// # Errors
/// Why it is not touched.
pub(crate) async fn check(lease: &Lease, seen: bool) -> Result<(), String> {
    use CandidateKind::{Orphan, StaleClient, StaleWorker};
    let candidate = &lease.candidate;
    // Of these poold has seen the process itself, on a connection or with its own mark.
    if matches!(candidate.kind, Orphan | StaleClient | StaleWorker) {
        return Ok(());
    }
    let Some(init) = candidate.init.filter(|init| lives(*init)) else { return Ok(()) };
    let Some(argv) = argv(init).await? else { return Ok(()) };
    match job_of(&argv) {
        Some(job) if job == lease.run.as_path().join(format!("{}.job", candidate.tag)) => Ok(()),
        Some(_) => Err(format!("process {init} is an init of another pool")),
        // One that was adopted, or is no init: only its pane tells whose it is.
        None if seen => Ok(()),
        None => Err(format!("process {init} is no init of this pool, and its pane is not to be seen")),
    }
}

/// Its arguments; none where it has ended. One that has none is in the midst of its end, and a moment later it is over.
async fn argv(init: ProcId) -> Result<Option<Vec<OsBytes>>, String> {
    for _ in 0..ENDING_LOOKS {
        match place::argv(init).map_err(|error| format!("process {init}: {error}"))? {
            Some(argv) if argv.is_empty() => sleep(ENDING_PAUSE).await,
            argv => return Ok(argv),
        }
    }
    Ok(Some(Vec::new()))
}

/// How often, and how far apart, a process without arguments is looked at.
const ENDING_LOOKS: u32 = 50;
const ENDING_PAUSE: Duration = Duration::from_millis(10);

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
