//! Check that the processes of a lease belong to this pool. A copy of a pool's database names the processes
//! of the original by pid and start time: the right processes, of another pool.

use std::path::Path;
use std::time::Duration;

use process::{identity, inspect::program};
use protocol::paths::is_same;
use protocol::reap::{CandidateKind, Lease};
use protocol::{OsBytes, ProcId};
use tokio::time::sleep;

/// Checks before anything is signalled. `pane_found`: its pane was found, with its tag, in the tmux server
/// of this pool.
///
/// # Errors
/// A sentence with the reason for leaving it alone.
pub(crate) async fn check(lease: &Lease, pane_found: bool) -> Result<(), String> {
    use CandidateKind::{Orphan, StaleClient, StaleWorker};
    let candidate = &lease.candidate;
    // poold has seen these processes itself, on a connection or with its own marker.
    if matches!(candidate.kind, Orphan | StaleClient | StaleWorker) {
        return Ok(());
    }
    let Some(init) = candidate.init else { return Ok(()) };
    // First: what does not answer would hang any other read.
    let answers = identity::answers(init.pid);
    if identity::exited(init).unwrap_or(false) {
        return Ok(());
    }
    if !answers {
        let why = || format!("process {init} does not answer, and its pane was not found");
        return if pane_found { Ok(()) } else { Err(why()) };
    }
    match argv(init).await? {
        Some(argv) => check_argv(lease, &argv, pane_found).map_err(|why| format!("process {init} {why}")),
        None => Ok(()),
    }
}

/// Checks the arguments of a living process.
fn check_argv(lease: &Lease, argv: &[OsBytes], pane_found: bool) -> Result<(), &'static str> {
    match job_of(argv) {
        Some(job) if is_own_job(job, lease) => Ok(()),
        // A session of this pool that was given back, and adopted again with another tag.
        Some(job) if pane_found && is_in(job, lease.run.as_path()) => Ok(()),
        // The state directory was moved. (The directory of the original of a copied pool would still be at its place.)
        Some(job) if pane_found && has_its_tag(job, lease) && !job.parent().is_some_and(Path::exists) => {
            Ok(())
        }
        Some(_) => Err("is an init of another pool"),
        // An adopted program, or not an init: only its pane proves the owner.
        None if pane_found => Ok(()),
        None => Err("is not an init of this pool, and its pane was not found"),
    }
}

/// True if the init of a candidate lives and is provably that of this incarnation, by the job that it was started with.
pub(crate) async fn is_own_init(lease: &Lease) -> bool {
    let candidate = &lease.candidate;
    let Some(init) = candidate.init.filter(|init| identity::answers(init.pid)) else { return false };
    matches!(argv(init).await, Ok(Some(argv)) if job_of(&argv).is_some_and(|job| is_own_job(job, lease)))
}

/// True if this is the path of the candidate's job.
fn is_own_job(job: &Path, lease: &Lease) -> bool {
    has_its_tag(job, lease) && is_in(job, lease.run.as_path())
}

fn has_its_tag(job: &Path, lease: &Lease) -> bool {
    job.file_name().is_some_and(|name| name == format!("{}.job", lease.candidate.tag).as_str())
}

/// True if a file is, or was, in this directory, however its path is written.
fn is_in(file: &Path, dir: &Path) -> bool {
    file.parent().is_some_and(|parent| is_same(parent, dir))
}

/// Returns the process's arguments; `None` if it has ended. A process without arguments is exiting, and
/// soon gone.
async fn argv(init: ProcId) -> Result<Option<Vec<OsBytes>>, String> {
    for _ in 0..ARGV_TRIES {
        match program::argv(init).map_err(|error| format!("process {init}: {error}"))? {
            Some(argv) if argv.is_empty() => sleep(ARGV_PAUSE).await,
            argv => return Ok(argv),
        }
    }
    Ok(Some(Vec::new()))
}

/// Number of, and pause between, reads of a process without arguments.
const ARGV_TRIES: u32 = 50;
const ARGV_PAUSE: Duration = Duration::from_millis(10);

/// Returns the job file that an init was started with: `REAPER exec RUN/TAG.job`.
fn job_of(argv: &[OsBytes]) -> Option<&Path> {
    match argv {
        [_, exec, job] if exec.0 == b"exec" && job.0.ends_with(b".job") => Some(job.as_path()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use protocol::{Tag, Token};

    use super::*;
    use crate::tests::{candidate, lease};

    #[test]
    fn a_copy_of_a_pool_does_not_own_what_the_original_runs_and_a_moved_pool_does() {
        let dir = tempfile::tempdir().unwrap();
        let [original, own] = ["original", "own"].map(|name| dir.path().join(name));
        fs::create_dir(&original).unwrap();
        fs::create_dir(&own).unwrap();
        let lease =
            Lease { run: own.clone().into(), ..lease(candidate("one"), Token::default(), dir.path()) };
        let says = |dir: &Path, tag: Tag, pane_found: bool| {
            let job = OsBytes::from(dir.join(format!("{tag}.job")));
            check_argv(&lease, &["reaper".into(), "exec".into(), job], pane_found)
        };
        let (tag, other, foreign) = (lease.candidate.tag, Tag([8; 16]), Err("is an init of another pool"));
        assert_eq!([says(&own, tag, true), says(&own, tag, false)], [Ok(()), Ok(())]);
        assert_eq!([says(&own, other, true), says(&own, other, false)], [Ok(()), foreign], "adopted again");
        assert_eq!([says(&original, tag, true), says(&original, tag, false)], [foreign, foreign], "a copy");
        fs::remove_dir(&original).unwrap();
        assert_eq!([says(&original, tag, true), says(&original, tag, false)], [Ok(()), foreign], "moved");
        assert_eq!(says(&original, other, true), foreign);
    }
}
