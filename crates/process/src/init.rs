//! `reaper exec JOB`: the small init of a session. It runs the session's program in the terminal's
//! foreground group, inherits every orphan of it (Linux), records how it ended, ends what it left
//! behind, and then ends in the same way itself.
//!
//! One thread, all signals blocked and taken in one place, so that nothing but KILL ends an init
//! before its work is done. Read in the order of a session's life: `files` (claim the job),
//! `spawn`, `watch`, `files` (exit record), `nudge`, `ending`, `terminal`.

mod bounds;
mod ending;
mod files;
mod nudge;
mod report;
mod signals;
mod spawn;
mod terminal;
mod watch;

use std::io::{self, Write};
use std::path::Path;

use protocol::job::Job;
use protocol::text::OsBytes;

use files::Files;
use spawn::SpawnError;
use watch::Ended;

pub use signals::resignal;

/// How an init ends: as its program did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this exit code. 125: there was no job to run; 126 and 127: its program could not be run.
    Code(u8),
    /// By this signal: see [`resignal`].
    Signal(i32),
}

/// There is no such job: it was started before, withdrawn, or cannot be read.
const NO_JOB: End = End::Code(125);

/// Claims the job file, runs its program to the end, and ends what is left of its tree. Messages
/// go to standard error, which is the pane. Call it with no other thread running.
#[must_use]
pub fn exec(job: &Path) -> End {
    be_called(NAME);
    if let Err(error) = signals::take_all().and_then(|()| adopt_orphans()) {
        say(&format!("cannot look after the program: {error}"));
    }
    let end = claim_and_run(job);
    terminal::give_back();
    end
}

fn claim_and_run(job: &Path) -> End {
    let files = Files::new(job);
    if let Err(error) = files.claim() {
        say(&format!("no job to run at {}: {error}", job.display()));
        return NO_JOB;
    }
    match files.read() {
        Ok(job) => run(&job, &files),
        Err(error) => finish(&files, &never_ran(&SpawnError::Job(error)), None),
    }
}

fn run(job: &Job, files: &Files) -> End {
    // Where there is no room for the record of its end now, there may be then.
    drop(files.reserve_exit());
    let ended = match spawn::spawn(job) {
        Ok(spawned) => {
            files.write_started(&spawned);
            watch::until_end(spawned.agent)
        }
        Err(error) => never_ran(&error),
    };
    let cgroup = job.cgroup.as_ref().map(OsBytes::as_path);
    let end = finish(files, &ended, cgroup);
    nudge::nudge(job);
    ending::end_tree(job);
    end
}

fn never_ran(error: &SpawnError) -> Ended {
    say(&error.to_string());
    Ended::never_ran(error)
}

fn finish(files: &Files, ended: &Ended, cgroup: Option<&Path>) -> End {
    if let Err(error) = files.write_exit(&ended.record(cgroup)) {
        say(&format!("how the program ended was not recorded: {error}"));
    }
    ended.end()
}

/// What an init is called in a list of processes: whoever ends all that are called `reaper` ends no session.
pub const NAME: &[u8] = b"pool-init";

/// Calls this process so in lists of processes, where the system can.
pub(crate) fn be_called(name: &[u8]) {
    #[cfg(target_os = "linux")]
    if let Ok(name) = std::ffi::CString::new(name) {
        // Only for people.
        nix::sys::prctl::set_name(&name).ok();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = name;
}

#[cfg(target_os = "linux")]
fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// A line on the pane; a terminal that has gone is no reason to stop.
fn say(text: &str) {
    drop(writeln!(io::stderr(), "tmux-pool: {text}"));
}
