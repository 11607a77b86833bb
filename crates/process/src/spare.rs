//! What a tree leaves for others: a daemon that somebody started in it, which serves more than the session (a
//! tmux server, an ssh-agent, another pool), is no leftover of it.
//!
//! A daemon has given up what ties a program to whoever started it: its parent (an init or a stranger adopted
//! it), the session, the terminal, and pipes and sockets as its standard input and output. The last tells it
//! from a helper of the program (in a session of its own, too) that was orphaned by the program's end: the init
//! adopts such a one before it can learn of that end. With a daemon goes all that descends from it.
//!
//! Which are spared is settled by the first look of a kill, before anything is signalled, so that nothing is
//! spared for what the kill made of it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use protocol::ids::ProcId;

use crate::identity::Glance;
use crate::platform;
use crate::serve::Listeners;
use crate::tree::{Evidence, Family, Member, Via};

/// Which daemons outlive the tree in which they were started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Spare {
    /// None.
    #[default]
    Nothing,
    /// Those that listen on a Unix socket with a name in the file system, or hide their descriptors as an
    /// `ssh-agent` does. On macOS nobody is seen to listen, so they are ended.
    Servers {
        /// What listens only in this directory serves nobody else: it belongs to the session.
        private: Option<PathBuf>,
    },
    /// All.
    Detached,
}

/// A process that was left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spared {
    /// It, as if it were to be ended.
    pub member: Member,
    /// Why, in the words after "it".
    pub why: String,
}

/// A daemon that is to be spared.
#[derive(Debug)]
pub(crate) struct Daemon {
    id: ProcId,
    reason: Reason,
}

#[derive(Debug, PartialEq, Eq)]
enum Reason {
    Serves { server: u32, path: String },
    Hides,
    Detached,
}

impl Daemon {
    fn why(&self, pid: u32) -> String {
        let first = pid == self.id.pid;
        match &self.reason {
            Reason::Serves { server, path } if *server == pid => format!("serves {path}"),
            Reason::Serves { path, .. } => format!("is of a daemon that serves {path}"),
            Reason::Hides if first => "is a daemon that hides whom it serves".into(),
            Reason::Hides => "is of a daemon that hides whom it serves".into(),
            Reason::Detached if first => "was detached".into(),
            Reason::Detached => "is of what was detached".into(),
        }
    }
}

/// The daemons to be spared of what belongs to an incarnation. `init_stands_by`: it adopts orphans.
///
/// # Errors
/// For want of descriptors or memory, when nothing may be taken for one that serves nobody.
pub(crate) fn daemons(
    spare: &Spare,
    family: &Family,
    evidence: &Evidence,
    init_stands_by: bool,
) -> io::Result<Vec<Daemon>> {
    let init = evidence.init.filter(|_| init_stands_by);
    let found = family.members.iter().filter(|member| {
        let now = &family.look.all[&member.id.pid].now;
        let adopted =
            init.is_some_and(|init| init.pid == now.ppid) || !family.reasons.contains_key(&now.ppid);
        member.via != Via::Init && adopted && is_apart(now, evidence)
    });
    let reason = |member: &Member| match spare {
        Spare::Nothing => Ok(None),
        Spare::Detached => Ok(Some(Reason::Detached)),
        Spare::Servers { private } => serves(family, member.id.pid, private.as_deref()),
    };
    let untied = found.filter(|member| *spare != Spare::Nothing && !platform::is_piped(member.id.pid));
    let daemon = |member: &Member| Ok(reason(member)?.map(|reason| Daemon { id: member.id, reason }));
    untied.filter_map(|member| daemon(member).transpose()).collect()
}

/// In a session of its own, without a terminal.
fn is_apart(now: &Glance, evidence: &Evidence) -> bool {
    let known = [evidence.sid, evidence.init.map(|init| init.pid)];
    now.tpgid.is_none() && !known.contains(&Some(now.sid))
}

/// Only the daemon itself may hide.
fn serves(family: &Family, root: u32, private: Option<&std::path::Path>) -> io::Result<Option<Reason>> {
    let listeners = unless_short(Listeners::seen_by(root))?.unwrap_or_default();
    let mut line: Vec<u32> = family.look.line(root).into_iter().collect();
    line.sort_unstable_by_key(|pid| (*pid != root, *pid));
    for pid in line {
        match listeners.held_by(pid, private) {
            Ok(Some(path)) => return Ok(Some(Reason::Serves { server: pid, path })),
            Err(error) if pid == root && error.raw_os_error() == Some(Errno::EACCES as i32) => {
                return Ok(Some(Reason::Hides));
            }
            other => drop(unless_short(other)?),
        }
    }
    Ok(None)
}

/// What went wrong for want of descriptors or memory says nothing about a process; what else did says that it serves
/// nobody.
fn unless_short<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => {
            let short = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM].map(|errno| Some(errno as i32));
            if short.contains(&error.raw_os_error()) { Err(error) } else { Ok(None) }
        }
    }
}

/// Takes the daemons, and what descends from them now, out of the members.
pub(crate) fn set_apart(daemons: &[Daemon], family: &mut Family) -> Vec<Spared> {
    let mut whose: HashMap<u32, &Daemon> = HashMap::new();
    for daemon in daemons.iter().filter(|daemon| is_there(daemon, family)) {
        whose.extend(family.look.line(daemon.id.pid).into_iter().map(|pid| (pid, daemon)));
    }
    family.foreign.retain(|member| !whose.contains_key(&member.id.pid));
    let spared = family.members.extract_if(.., |member| whose.contains_key(&member.id.pid));
    spared.map(|member| Spared { why: whose[&member.id.pid].why(member.id.pid), member }).collect()
}

fn is_there(daemon: &Daemon, family: &Family) -> bool {
    family.look.all.get(&daemon.id.pid).is_some_and(|seen| seen.now.id == daemon.id && seen.now.is_alive())
}

/// The numbers of the spared.
pub(crate) fn pids(spared: &[Spared]) -> HashSet<u32> {
    spared.iter().map(|spared| spared.member.id.pid).collect()
}

#[cfg(test)]
mod tests {
    use protocol::ids::Tag;
    use protocol::text::OsBytes;

    use super::*;
    use crate::identity::State;
    use crate::proc::Image;

    #[test]
    fn a_daemon_has_neither_the_session_nor_a_terminal() {
        let now = |sid: u32, tpgid: Option<u32>| Glance {
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
        assert!(is_apart(&now(105, None), &of(Some(100), Some(100))));
        assert!(!is_apart(&now(105, Some(105)), &of(Some(100), Some(100))), "a terminal of its own");
        assert!(!is_apart(&now(100, None), &of(Some(100), None)), "the terminal has gone");
        assert!(!is_apart(&now(100, None), &of(None, Some(100))));
        assert!(is_apart(&now(100, None), &of(None, None)), "nobody knows of its session");
    }
}
