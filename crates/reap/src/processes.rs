//! Ends the processes of a candidate.

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use process::kill::{self, GraceLimit, KillOptions, KillReport, SparedDaemons};
use process::tree::{Evidence, Member};
use protocol::ProcId;
use protocol::reap::Leftovers;
use protocol::reap::{Candidate, Lease};

/// Result of ending the processes.
pub(crate) struct Ended {
    /// Processes that were signalled and are gone.
    pub(crate) killed: Vec<ProcId>,
    /// Descriptions of processes that are left.
    pub(crate) left: Vec<String>,
    /// Descriptions, with reasons, of processes that were spared.
    pub(crate) spared: Vec<String>,
}

/// Ends all processes, and verifies that they are gone.
pub(crate) async fn end(lease: &Lease, limit: &GraceLimit) -> Ended {
    let candidate = &lease.candidate;
    let protected = lease.protected.iter().copied().chain([std::process::id()]).collect();
    // An adopted program, a worker or a client has no separate init.
    let init_exits_last = candidate.init.is_none() || candidate.init != candidate.agent;
    let private = lease.private.as_ref().map(|dir| dir.as_path().to_owned());
    let spares = match lease.leftovers {
        Leftovers::Kill => SparedDaemons::Servers { private },
        Leftovers::Report => SparedDaemons::Detached,
    };
    let (grace, verify) = (Duration::from_millis(candidate.grace_ms), Duration::from_millis(lease.verify_ms));
    let options = KillOptions { grace, limit: limit.clone(), verify, protected, init_exits_last, spares };
    let (candidate, socket) = (candidate.clone(), lease.socket.as_path().to_owned());
    let ended = tokio::task::spawn_blocking(move || end_blocking(&candidate, &socket, &options)).await;
    ended.unwrap_or_else(|error| failed(&error))
}

fn end_blocking(candidate: &Candidate, socket: &Path, options: &KillOptions) -> Ended {
    let Candidate { init, agent, tag, .. } = *candidate;
    let cgroup = candidate.cgroup.as_ref().map(|path| path.as_path().to_owned());
    // The tag of a claim is not random: another pool may have the same.
    let socket = tag.is_claim().then(|| socket.to_owned());
    // The init leads the session of its terminal.
    let all = Evidence { init, sid: init.map(|init| init.pid), tag, cgroup, socket: socket.clone() };
    let mut ended = run_ladder(&all, options);
    // A process that cleared its environment and lost its init matches no evidence, but its id is known.
    for stray in [agent, init].into_iter().flatten().filter(|id| is_alive(*id)) {
        if ended.left.is_empty() {
            stop_process(stray);
            let socket = socket.clone();
            let alone = Evidence { init: Some(stray), sid: None, tag, cgroup: None, socket };
            let more = run_ladder(&alone, options);
            ended.killed.extend(more.killed);
            ended.left.extend(more.left);
            ended.spared.extend(more.spared);
        }
        if ended.left.is_empty() && is_alive(stray) {
            ended.left.push(format!("process {stray} is still alive"));
        }
    }
    ended
}

/// Stops a process before its descendants are ended: unlike an init, it might start new ones meanwhile.
fn stop_process(id: ProcId) {
    let frozen = Handle::open(id).and_then(|handle| handle.map_or(Ok(false), |h| h.signal(Signal::SIGSTOP)));
    if let Err(error) = frozen {
        tracing::debug!(%id, %error, "not stopped");
    }
}

fn run_ladder(evidence: &Evidence, options: &KillOptions) -> Ended {
    match kill::kill(evidence, options) {
        Ok(KillReport { killed, survivors, spared, foreign }) => Ended {
            killed: killed.iter().map(|member| member.id).collect(),
            left: survivors.iter().map(survivor).chain(foreign.iter().map(foreign_member)).collect(),
            spared: spared
                .iter()
                .map(|spared| format!("{} {}", described(&spared.member), spared.reason))
                .collect(),
        },
        Err(error) => failed(&error),
    }
}

/// True unless the process is proved to have ended.
fn is_alive(id: ProcId) -> bool {
    !identity::exited(id).unwrap_or(false)
}

fn failed(error: &dyn std::fmt::Display) -> Ended {
    Ended { killed: Vec::new(), left: vec![format!("its processes: {error}")], spared: Vec::new() }
}

fn survivor(member: &Member) -> String {
    let state = match member.state {
        State::Running => "is still running, or blocked in the kernel",
        State::Stopped => "is stopped",
        State::Zombie | State::Gone => "is ending",
    };
    format!("{} {state}", described(member))
}

fn foreign_member(member: &Member) -> String {
    format!("{} now belongs to another user", described(member))
}

fn described(member: &Member) -> String {
    format!("process {} ({})", member.id, member.comm.as_os_str().to_string_lossy())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::sys::resource::{Resource, setrlimit};

    use super::*;

    /// Set in the process of the test's own, in which no file can be opened.
    const ALONE: &str = "REAP_TEST_ALONE";

    #[test]
    fn a_process_that_cannot_be_read_counts_as_alive() {
        let ended = ProcId { start: 0, ..identity::me().unwrap() };
        assert!(!is_alive(ended));
        if std::env::var_os(ALONE).is_some() {
            setrlimit(Resource::RLIMIT_NOFILE, 0, 0).unwrap();
            return assert!(is_alive(ended));
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.arg("a_process_that_cannot_be_read_counts_as_alive").env(ALONE, "1");
        let output = again.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
