//! Ends the processes of a candidate.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use process::kill::{self, Options, Report};
use process::spare::Spare;
use process::tree::{Evidence, Member};
use protocol::ProcId;
use protocol::life::Leftovers;
use protocol::reap::{Candidate, Lease};

/// What became of the processes.
pub(crate) struct Ended {
    /// Those that were signalled, and are gone.
    pub(crate) killed: Vec<ProcId>,
    /// What is left, for people.
    pub(crate) left: Vec<String>,
    /// What was to be left, each with the reason, for people.
    pub(crate) spared: Vec<String>,
}

/// Ends them all, and looks that they are gone.
pub(crate) async fn end(lease: &Lease) -> Ended {
    let candidate = &lease.candidate;
    let protected = lease.protected.iter().copied().chain([std::process::id()]).collect();
    // An adopted program, a worker or a client has no init: it is its own.
    let init_stands_by = candidate.init.is_none() || candidate.init != candidate.agent;
    let private = lease.private.as_ref().map(|dir| dir.as_path().to_owned());
    let spare = match lease.leftovers {
        Leftovers::Kill => Spare::Servers { private },
        Leftovers::Report => Spare::Detached,
    };
    let (grace, verify) = (Duration::from_millis(candidate.grace_ms), Duration::from_millis(lease.verify_ms));
    let options = Options { grace, verify, protected, init_stands_by, spare };
    let (candidate, socket) = (candidate.clone(), lease.socket.as_path().to_owned());
    let ended = tokio::task::spawn_blocking(move || end_blocking(&candidate, &socket, &options)).await;
    ended.unwrap_or_else(|error| failed(&error))
}

fn end_blocking(candidate: &Candidate, socket: &Path, options: &Options) -> Ended {
    let Candidate { init, agent, tag, .. } = *candidate;
    let cgroup = candidate.cgroup.as_ref().map(|path| path.as_path().to_owned());
    // The mark of a claim is no random one: another pool may have the same.
    let socket = tag.is_of_claim().then(|| socket.to_owned());
    // The init leads the session of its terminal.
    let all = Evidence { init, sid: init.map(|init| init.pid), tag, cgroup, socket: socket.clone() };
    let mut ended = climb(&all, options);
    // A program that cleared its environment and lost its init is in none of the nets, but known.
    for stray in [agent, init].into_iter().flatten().filter(|id| lives(*id)) {
        if ended.left.is_empty() {
            freeze(stray);
            let socket = socket.clone();
            let alone = Evidence { init: Some(stray), sid: None, tag, cgroup: None, socket };
            let more = climb(&alone, options);
            ended.killed.extend(more.killed);
            ended.left.extend(more.left);
            ended.spared.extend(more.spared);
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
        Ok(Report { killed, survivors, spared, foreign }) => Ended {
            killed: killed.iter().map(|member| member.id).collect(),
            left: survivors.iter().map(survivor).chain(foreign.iter().map(anothers)).collect(),
            spared: spared.iter().map(|spared| format!("{} {}", named(&spared.member), spared.why)).collect(),
        },
        Err(error) => failed(&error),
    }
}

/// Where that cannot be read nothing is proved.
fn lives(id: ProcId) -> bool {
    !identity::exited(id).unwrap_or(false)
}

fn failed(error: &dyn std::fmt::Display) -> Ended {
    Ended { killed: Vec::new(), left: vec![format!("its processes: {error}")], spared: Vec::new() }
}

fn survivor(member: &Member) -> String {
    let state = match member.state {
        State::Running => "runs on, or waits in the kernel",
        State::Stopped => "is stopped",
        State::Zombie | State::Gone => "is ending",
    };
    format!("{} {state}", named(member))
}

fn anothers(member: &Member) -> String {
    format!("{} is another user's now", named(member))
}

fn named(member: &Member) -> String {
    format!("process {} ({})", member.id, member.comm.as_os_str().to_string_lossy())
}
