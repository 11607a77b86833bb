//! Ends the processes of a candidate.

use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use process::kill::{self, Options, Report};
use process::tree::{Evidence, Member};
use protocol::ProcId;
use protocol::reap::Candidate;

/// What became of the processes.
pub(crate) struct Ended {
    /// Those that were signalled, and are gone.
    pub(crate) killed: Vec<ProcId>,
    /// What is left, for people.
    pub(crate) left: Vec<String>,
}

/// Ends them all, and looks that they are gone.
pub(crate) async fn end(candidate: &Candidate, protected: &[u32]) -> Ended {
    let protected = protected.iter().copied().chain([std::process::id()]).collect();
    // An adopted program has no init: it is its own.
    let init_stands_by = candidate.init.is_none() || candidate.init != candidate.agent;
    let grace = Duration::from_millis(candidate.grace_ms);
    let options = Options { grace, protected, init_stands_by, ..Options::default() };
    let candidate = candidate.clone();
    let ended = tokio::task::spawn_blocking(move || end_blocking(&candidate, &options)).await;
    ended.unwrap_or_else(|error| failed(&error))
}

fn end_blocking(candidate: &Candidate, options: &Options) -> Ended {
    let Candidate { init, agent, tag, .. } = *candidate;
    let cgroup = candidate.cgroup.as_ref().map(|path| path.as_path().to_owned());
    // The init leads the session of its terminal.
    let all = Evidence { init, sid: init.map(|init| init.pid), tag, cgroup };
    let mut ended = climb(&all, options);
    // A program that cleared its environment and lost its init is in none of the nets, but known.
    for stray in [agent, init].into_iter().flatten().filter(|id| lives(*id)) {
        if ended.left.is_empty() {
            freeze(stray);
            let more = climb(&Evidence { init: Some(stray), sid: None, tag, cgroup: None }, options);
            ended.killed.extend(more.killed);
            ended.left.extend(more.left);
        }
        if ended.left.is_empty() && lives(stray) {
            ended.left.push(format!("process {stray} lives"));
        }
    }
    ended
}

/// What follows ends the descendants first, and only an init stands by while that is done: anything
/// else might put new ones in their place.
fn freeze(id: ProcId) {
    let frozen = Handle::open(id).and_then(|handle| handle.map_or(Ok(false), |h| h.signal(Signal::SIGSTOP)));
    if let Err(error) = frozen {
        tracing::debug!(%id, %error, "not stopped");
    }
}

fn climb(evidence: &Evidence, options: &Options) -> Ended {
    match kill::kill(evidence, options) {
        Ok(Report { killed, survivors }) => Ended {
            killed: killed.iter().map(|member| member.id).collect(),
            left: survivors.iter().map(survivor).collect(),
        },
        Err(error) => failed(&error),
    }
}

/// Where that cannot be read nothing is proved.
fn lives(id: ProcId) -> bool {
    !identity::exited(id).unwrap_or(false)
}

fn failed(error: &dyn std::fmt::Display) -> Ended {
    Ended { killed: Vec::new(), left: vec![format!("its processes: {error}")] }
}

fn survivor(member: &Member) -> String {
    let state = match member.state {
        State::Running => "runs on, or waits in the kernel",
        State::Stopped => "is stopped",
        State::Zombie | State::Gone => "is ending",
    };
    format!("process {} ({}) {state}", member.id, member.comm.as_os_str().to_string_lossy())
}
