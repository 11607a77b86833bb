//! After the program: ends what is left of its tree, so that an init never leaves orphans behind.

use std::time::Duration;

use nix::unistd::getsid;
use protocol::job::Job;

use super::{say, watch};
use crate::identity;
use crate::kill::{Options, kill_while};
use crate::tree::Evidence;
use crate::{Error, cgroup};

/// Between two tries where the machine lacks something.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns when nothing of the tree is left. Only what belongs to another user is not waited for:
/// it cannot be ended. An empty control group stays: who made it removes it.
pub(super) fn end_tree(job: &Job) {
    let cgroup = job.cgroup.as_ref().map(|path| path.as_path().to_owned());
    let children = watch::reap_all();
    let inside = cgroup.as_deref().is_some_and(|group| cgroup::is_populated(group).unwrap_or(true));
    // A subreaper without children has no descendants either.
    if cfg!(target_os = "linux") && !children && !inside {
        return;
    }
    let me = loop {
        match identity::me() {
            Ok(me) => break me,
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    // Somebody else's session, where the init was not started by tmux, is not ours to end.
    let leads = getsid(None).is_ok_and(|sid| sid.as_raw().unsigned_abs() == me.pid);
    let evidence = Evidence { init: Some(me), sid: leads.then_some(me.pid), tag: job.tag, cgroup };
    let mut options = Options { grace: Duration::from_millis(job.grace_ms), ..Options::default() };
    loop {
        let report = kill_while(&evidence, &options, &|| {
            watch::reap_all();
        });
        watch::reap_all();
        match report {
            Ok(report) if report.survivors.is_empty() => return,
            Ok(report) => {
                for member in &report.survivors {
                    say(&format!(
                        "process {} ({}) does not end",
                        member.id.pid,
                        member.comm.to_string_lossy()
                    ));
                }
                options.grace = Duration::ZERO;
            }
            Err(error @ Error::Populated(_)) => return say(&format!("{error}")),
            // For want of memory or descriptors, say: it passes, and orphans would stay.
            Err(error) => {
                say(&format!("what is left of the program is not ended yet: {error}"));
                if !watch::reap_all() {
                    return;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}
