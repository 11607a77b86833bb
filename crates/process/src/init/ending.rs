//! After the program: ends what is left of its tree, so that an init never leaves orphans behind.

use std::path::Path;
use std::time::Duration;

use nix::unistd::getsid;
use protocol::job::Job;
use protocol::life::Leftovers;

use super::{say, watch};
use crate::identity;
use crate::kill::{Moment, Options, Report, Spare, kill_while};
use crate::tree::{Evidence, Member};
use crate::{Error, cgroup};

/// The pauses before the looks at the init's own children, in milliseconds: 31 ms in all.
const MOMENTS_MS: [u64; 6] = [0, 1, 2, 4, 8, 16];
/// Between two tries where the machine lacks something.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether nothing is left, now or in a moment: what ends along with the program, because somebody ends all of it,
/// costs no look at the whole machine.
fn ended_by_itself(cgroup: Option<&Path>) -> bool {
    MOMENTS_MS.into_iter().any(|pause| {
        std::thread::sleep(Duration::from_millis(pause));
        let inside = cgroup.is_some_and(|group| cgroup::is_populated(group).unwrap_or(true));
        !watch::reap_all() && !inside
    })
}

/// Returns when nothing of the tree is left. Only what belongs to another user is not waited for:
/// it cannot be ended. An empty control group stays: who made it removes it.
pub(super) fn end_tree(job: &Job) {
    let cgroup = job.cgroup.as_ref().map(|path| path.as_path().to_owned());
    // A subreaper without children has no descendants either.
    if cfg!(target_os = "linux") && ended_by_itself(cgroup.as_deref()) {
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
    let evidence =
        Evidence { init: Some(me), sid: leads.then_some(me.pid), tag: job.tag, cgroup, socket: None };
    let spare = match job.leftovers {
        Leftovers::Kill => {
            Spare::Servers { private: job.private.as_ref().map(|path| path.as_path().to_owned()) }
        }
        Leftovers::Report => Spare::Detached,
    };
    let mut options = Options { grace: Duration::from_millis(job.grace_ms), spare, ..Options::default() };
    loop {
        let report = kill_while(&evidence, &options, &|moment| {
            if moment == Moment::Look {
                watch::reap_all();
            }
        });
        watch::reap_all();
        match report {
            Ok(Report { survivors, spared, foreign, .. }) if survivors.is_empty() => {
                spared.iter().for_each(|it| say_of(&it.member, &format!("is left: it {}", it.why)));
                return foreign
                    .iter()
                    .for_each(|member| say_of(member, "is another user's now, and is left"));
            }
            Ok(Report { survivors, .. }) => {
                survivors.iter().for_each(|member| say_of(member, "does not end"));
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

fn say_of(member: &Member, what: &str) {
    say(&format!("process {} ({}) {what}", member.id.pid, member.comm.to_string_lossy()));
}
