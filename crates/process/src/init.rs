//! `reaper exec JOB`: the init of a session. It runs the session's program in the terminal's foreground
//! process group, adopts the program's orphans (Linux), records its exit, kills the processes that it left
//! behind, and then exits with the same status.
//!
//! Single-threaded, but for the log of a standard error that is kept apart. All signals are blocked and accepted in one
//! place, so that only KILL ends an init before its work is done. The modules in the order of a session's life:
//! `job_files` (claim the job), `spawn` (with `program_limits` and `child_report`), `wait_loop` (with `init_signals`
//! and `children`), `job_files` (exit record), `nudge`, `cleanup`, `stderr_log`, `terminal_drain`.

mod child_report;
mod children;
mod cleanup;
mod exit_status;
mod init_signals;
mod job_files;
mod nudge;
mod program_limits;
mod spawn;
mod stderr_log;
mod terminal_drain;
mod wait_loop;

use std::io;
use std::path::Path;

use protocol::OsBytes;
use protocol::job::Job;

use crate::platform;
use exit_status::print_message;
use job_files::JobFiles;
use spawn::SpawnError;
use wait_loop::ProgramExit;

pub use exit_status::InitExit;
pub use init_signals::resignal;
pub use spawn::LIMIT_NOT_HELD;

/// Name of an init in process listings. Different from `reaper`, so that killing all processes called
/// `reaper` ends no session.
pub const NAME: &[u8] = b"pool-init";

/// Exit if the job does not exist: it was started before, withdrawn, or is not readable.
const NO_JOB: InitExit = InitExit::Code(125);

/// Claims the job file, runs its program until it exits, and kills what is left of its tree. Messages go to
/// standard error, which is the pane. Must be called while no other thread runs.
pub fn exec(job: &Path) -> InitExit {
    platform::set_process_name(NAME);
    if let Err(error) = init_signals::block_all().and_then(|()| adopt_orphans()) {
        print_message(&format!("cannot supervise the program: {error}"));
    }
    let exit = claim_and_run(job);
    terminal_drain::close_and_drain();
    exit
}

fn claim_and_run(job: &Path) -> InitExit {
    let files = JobFiles::new(job);
    if let Err(error) = files.claim() {
        print_message(&format!("no job to run at {}: {error}", job.display()));
        return NO_JOB;
    }
    match files.read() {
        Ok(job) => run(&job, &files),
        Err(error) => record_exit(&files, &failed_to_start(&SpawnError::Job(error)), None),
    }
}

fn run(job: &Job, files: &JobFiles) -> InitExit {
    // Failure is ignored: there may be space for the exit record when the program ends.
    drop(files.reserve_exit());
    let mut stderr = None;
    let program_exit = match spawn::spawn(job) {
        Ok(mut spawned) => {
            stderr = stderr_log::start(job, spawned.stderr.take());
            files.write_started(&spawned);
            wait_loop::wait_for_exit(spawned.agent)
        }
        Err(error) => failed_to_start(&error),
    };
    let cgroup = job.cgroup.as_ref().map(OsBytes::as_path);
    let exit = record_exit(files, &program_exit, cgroup);
    nudge::nudge(job);
    cleanup::kill_remaining(job);
    stderr_log::finish(stderr);
    exit
}

fn failed_to_start(error: &SpawnError) -> ProgramExit {
    print_message(&error.to_string());
    ProgramExit::failed_to_start(error)
}

fn record_exit(files: &JobFiles, program_exit: &ProgramExit, cgroup: Option<&Path>) -> InitExit {
    if let Err(error) = files.write_exit(&program_exit.record(cgroup)) {
        print_message(&format!("the exit of the program was not recorded: {error}"));
    }
    program_exit.exit()
}

#[cfg(target_os = "linux")]
fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() -> io::Result<()> {
    Ok(())
}
