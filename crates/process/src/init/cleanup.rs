//! Kills what is left of the tree after the program has ended, so that an init never leaves orphans behind.

use std::path::Path;
use std::time::Duration;

use nix::unistd::getsid;
use protocol::job::Job;
use protocol::reap::Leftovers;

use super::children::reap_all;
use super::exit_status::print_message;
use crate::identity;
use crate::kill::{KillOptions, KillReport, KillStep, SparedDaemons, kill_with_hook};
use crate::tree::{Evidence, Member};
use crate::{Error, cgroup};

/// Pauses before each check of the init's own children, in milliseconds; 31 ms in all.
const CHILD_CHECKS_MS: [u64; 6] = [0, 1, 2, 4, 8, 16];
/// Pause before a retry when a resource of the machine is exhausted.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// True if nothing is left now or within [`CHILD_CHECKS_MS`]. Saves the scan of the whole machine when the
/// tree ends together with the program, as when all of it is killed.
fn ends_by_itself(cgroup: Option<&Path>) -> bool {
    CHILD_CHECKS_MS.into_iter().any(|pause| {
        std::thread::sleep(Duration::from_millis(pause));
        let populated = cgroup.is_some_and(|group| cgroup::is_populated(group).unwrap_or(true));
        !reap_all() && !populated
    })
}

/// Kills the remaining tree and returns when nothing of it is left, except spared processes and those of
/// other users, which cannot be killed. The empty control group is not removed; its creator does that.
pub(super) fn kill_remaining(job: &Job) {
    let cgroup = job.cgroup.as_ref().map(|path| path.as_path().to_owned());
    // A subreaper without children has no descendants.
    if cfg!(target_os = "linux") && ends_by_itself(cgroup.as_deref()) {
        return;
    }
    let me = loop {
        match identity::me() {
            Ok(me) => break me,
            Err(_) => std::thread::sleep(RETRY_PAUSE),
        }
    };
    // If the init was not started by tmux, its session belongs to another program and must not be killed.
    let is_leader = getsid(None).is_ok_and(|sid| sid.as_raw().unsigned_abs() == me.pid);
    let evidence =
        Evidence { init: Some(me), sid: is_leader.then_some(me.pid), tag: job.tag, cgroup, socket: None };
    let spares = match job.leftovers {
        Leftovers::Kill => {
            SparedDaemons::Servers { private: job.private.as_ref().map(|path| path.as_path().to_owned()) }
        }
        Leftovers::Report => SparedDaemons::Detached,
    };
    let grace = Duration::from_millis(job.grace_ms);
    let mut options = KillOptions { grace, spares, ..KillOptions::default() };
    loop {
        let report = kill_with_hook(&evidence, &options, &|step| {
            if step == KillStep::Scan {
                reap_all();
            }
        });
        reap_all();
        match report {
            Ok(KillReport { survivors, spared, foreign, .. }) if survivors.is_empty() => {
                for process in spared {
                    print_about(&process.member, &format!("is left running: it {}", process.reason));
                }
                return foreign.iter().for_each(|member| {
                    print_about(member, "belongs to another user now, and is left running");
                });
            }
            Ok(KillReport { survivors, .. }) => {
                survivors.iter().for_each(|member| print_about(member, "does not end"));
                options.grace = Duration::ZERO;
            }
            Err(error @ Error::Populated(_)) => return print_message(&error.to_string()),
            // Memory or descriptors may be exhausted: temporary, and giving up would leave orphans.
            Err(error) => {
                print_message(&format!("cannot end the remaining processes yet: {error}"));
                if !reap_all() {
                    return;
                }
                std::thread::sleep(RETRY_PAUSE);
            }
        }
    }
}

fn print_about(member: &Member, text: &str) {
    print_message(&format!("process {} ({}) {text}", member.id.pid, member.comm.to_string_lossy()));
}
