//! The daemons that a kill spares: a daemon that was started in a tree but serves more than the session (a tmux
//! server, an ssh-agent, another pool) is not a leftover of the session.
//!
//! A daemon has dropped all ties to the process that started it: its parent (an init or a process outside the
//! tree has adopted it), the session, the terminal, and pipes and sockets as standard input and output. The
//! last criterion distinguishes it from a helper, also in a session of its own, that was orphaned by the
//! program's end and adopted by the init before it could notice that end. The descendants of a daemon are
//! spared as well.
//!
//! The spared daemons are determined by the first scan of a kill, before any signal is sent, so that a kill
//! cannot turn a process into a spared one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use protocol::ProcId;

use crate::info::BasicInfo;
use crate::platform;
use crate::tree::listeners::ListeningSockets;
use crate::tree::{Evidence, Member, Membership, Via};

/// The daemons that survive the tree in which they were started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SparedDaemons {
    /// No daemon.
    #[default]
    None,
    /// Daemons that listen on a Unix socket bound to a path, or hide their descriptors as `ssh-agent` does.
    /// On macOS listening sockets are not read, so no daemon is spared.
    Servers {
        /// Directory of the session's own sockets: a daemon that listens only there is not spared.
        private: Option<PathBuf>,
    },
    /// All daemons.
    Detached,
}

/// A process that was not signalled because it is spared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparedProcess {
    /// The process.
    pub member: Member,
    /// The reason, phrased to follow "it".
    pub reason: String,
}

/// A daemon that is spared.
#[derive(Debug)]
pub(crate) struct Daemon {
    id: ProcId,
    reason: Reason,
}

#[derive(Debug, PartialEq, Eq)]
enum Reason {
    /// This process of the daemon listens on this path.
    Listens {
        server: u32,
        path: String,
    },
    /// Its descriptors are not readable.
    HidesDescriptors,
    Detached,
}

impl Daemon {
    /// Returns the reason for this process of the daemon, phrased to follow "it".
    fn reason_for(&self, pid: u32) -> String {
        let first = pid == self.id.pid;
        match &self.reason {
            Reason::Listens { server, path } if *server == pid => format!("serves {path}"),
            Reason::Listens { path, .. } => format!("belongs to a daemon that serves {path}"),
            Reason::HidesDescriptors if first => "is a daemon that hides its sockets".into(),
            Reason::HidesDescriptors => "belongs to a daemon that hides its sockets".into(),
            Reason::Detached if first => "was detached".into(),
            Reason::Detached => "belongs to a detached daemon".into(),
        }
    }
}

/// Returns the spared daemons of an incarnation. `init_exits_last` means that its init adopts orphans.
///
/// # Errors
/// Descriptors or memory are exhausted, so that a daemon could be mistaken for one that serves nobody.
pub(crate) fn find_daemons(
    spares: &SparedDaemons,
    membership: &Membership,
    evidence: &Evidence,
    init_exits_last: bool,
) -> io::Result<Vec<Daemon>> {
    let init = evidence.init.filter(|_| init_exits_last);
    let detached = membership.members.iter().filter(|member| {
        let info = &membership.snapshot.entries[&member.id.pid].info;
        let adopted =
            init.is_some_and(|init| init.pid == info.ppid) || !membership.matches.contains_key(&info.ppid);
        member.via != Via::Init && adopted && has_own_session(info, evidence)
    });
    let reason = |member: &Member| match spares {
        SparedDaemons::None => Ok(None),
        SparedDaemons::Detached => Ok(Some(Reason::Detached)),
        SparedDaemons::Servers { private } => server_reason(membership, member.id.pid, private.as_deref()),
    };
    let candidates =
        detached.filter(|member| *spares != SparedDaemons::None && !platform::is_piped(member.id.pid));
    let daemon = |member: &Member| Ok(reason(member)?.map(|reason| Daemon { id: member.id, reason }));
    candidates.filter_map(|member| daemon(member).transpose()).collect()
}

/// True if the process is in a session other than the incarnation's, and has no terminal.
fn has_own_session(info: &BasicInfo, evidence: &Evidence) -> bool {
    let known = [evidence.sid, evidence.init.map(|init| init.pid)];
    info.tpgid.is_none() && !known.contains(&Some(info.sid))
}

/// Returns the reason why a daemon counts as a server: it or a descendant listens on a path, or its own
/// descriptors are not readable.
fn server_reason(
    membership: &Membership,
    root: u32,
    private: Option<&std::path::Path>,
) -> io::Result<Option<Reason>> {
    let sockets = unless_exhausted(ListeningSockets::in_namespace_of(root))?.unwrap_or_default();
    let mut subtree: Vec<u32> = membership.snapshot.subtree(root).into_iter().collect();
    subtree.sort_unstable_by_key(|pid| (*pid != root, *pid));
    for pid in subtree {
        match sockets.path_of(pid, private) {
            Ok(Some(path)) => return Ok(Some(Reason::Listens { server: pid, path })),
            Err(error) if pid == root && error.raw_os_error() == Some(Errno::EACCES as i32) => {
                return Ok(Some(Reason::HidesDescriptors));
            }
            other => drop(unless_exhausted(other)?),
        }
    }
    Ok(None)
}

/// Keeps the errors of exhausted descriptors or memory, which say nothing about the process; any other error
/// means that it has no listening socket.
fn unless_exhausted<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => {
            let exhausted = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM].map(|errno| Some(errno as i32));
            if exhausted.contains(&error.raw_os_error()) { Err(error) } else { Ok(None) }
        }
    }
}

/// Removes the living daemons and their current descendants from the members, and returns them.
pub(crate) fn remove_spared(daemons: &[Daemon], membership: &mut Membership) -> Vec<SparedProcess> {
    let mut daemon_of: HashMap<u32, &Daemon> = HashMap::new();
    for daemon in daemons.iter().filter(|daemon| is_alive(daemon, membership)) {
        let subtree = membership.snapshot.subtree(daemon.id.pid);
        daemon_of.extend(subtree.into_iter().map(|pid| (pid, daemon)));
    }
    membership.foreign.retain(|member| !daemon_of.contains_key(&member.id.pid));
    let spared = membership.members.extract_if(.., |member| daemon_of.contains_key(&member.id.pid));
    let with_reason = |member: Member| {
        let reason = daemon_of[&member.id.pid].reason_for(member.id.pid);
        SparedProcess { member, reason }
    };
    spared.map(with_reason).collect()
}

fn is_alive(daemon: &Daemon, membership: &Membership) -> bool {
    let entry = membership.snapshot.entries.get(&daemon.id.pid);
    entry.is_some_and(|entry| entry.info.id == daemon.id && entry.info.is_alive())
}

pub(crate) fn pids(spared: &[SparedProcess]) -> HashSet<u32> {
    spared.iter().map(|spared| spared.member.id.pid).collect()
}

#[cfg(test)]
mod tests {
    use protocol::ids::Tag;
    use protocol::text::OsBytes;

    use super::*;
    use crate::info::State;
    use crate::platform::proc::Image;

    #[test]
    fn a_daemon_has_neither_the_session_nor_a_terminal() {
        let info = |sid: u32, tpgid: Option<u32>| BasicInfo {
            id: ProcId { pid: 105, start: 9 },
            ppid: 100,
            pgid: 105,
            sid,
            tpgid,
            state: State::Running,
            comm: OsBytes::default(),
            image: Image::Unknown,
        };
        let of = |init: Option<u32>, sid: Option<u32>| {
            let init = init.map(|pid| ProcId { pid, start: 7 });
            Evidence { init, sid, tag: Tag([5; 16]), cgroup: None, socket: None }
        };
        assert!(has_own_session(&info(105, None), &of(Some(100), Some(100))));
        assert!(!has_own_session(&info(105, Some(105)), &of(Some(100), Some(100))), "a terminal of its own");
        assert!(!has_own_session(&info(100, None), &of(Some(100), None)), "the terminal has gone");
        assert!(!has_own_session(&info(100, None), &of(None, Some(100))));
        assert!(has_own_session(&info(100, None), &of(None, None)), "the session is unknown");
    }
}
