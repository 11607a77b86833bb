//! Which processes belong to one incarnation of a session. Three nets, because each alone leaks:
//! descent from the init (which inherits every orphan where there are subreapers), the init's
//! terminal session, and the tag in the environment that a process was started with. Whatever
//! descends from a member is a member. Where the incarnation has a control group, that is a fourth
//! one without a hole.
//!
//! Membership looks at these alone: a member that serves a socket (a tmux server that an agent
//! started for itself, say) is a member like any other. Callers that must spare one name it as
//! protected; then nothing belongs merely because it descends from that one.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::getuid;
use protocol::ids::{ProcId, Tag};
use protocol::text::OsBytes;

use crate::identity::{Process, State};
use crate::{cgroup, platform};

mod table;

pub use table::{Table, processes};

/// How often a look is completed with what was started during it. Reading all takes milliseconds,
/// in which a process that only ever forks and exits is somewhere else; reading what is new takes a
/// fraction of one, so two or three rounds are usual even on a busy machine.
const MOST_ROUNDS: u32 = 50;

/// What is known of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Its init, or the program of an adopted pane.
    pub init: Option<ProcId>,
    /// The session that its init leads. Believed only where the leader is still the init, or
    /// where a tagged process is in it: session numbers are reused like process numbers.
    pub sid: Option<u32>,
    /// Its tag.
    pub tag: Tag,
    /// Its control group. Believed only where it is named for the tag.
    pub cgroup: Option<PathBuf>,
}

impl Evidence {
    /// The control group in which all belongs.
    #[must_use]
    pub fn group(&self) -> Option<&Path> {
        let named = |path: &Path| path.file_name().is_some_and(|name| name == self.tag.to_string().as_str());
        self.cgroup.as_deref().filter(|path| named(path))
    }
}

/// Why a process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// It is the init.
    Init,
    /// It descends from the init or from another member.
    Descent,
    /// Its environment has the tag.
    Tag,
    /// It is in the init's session.
    Session,
    /// It is in the control group.
    Group,
}

/// A process that belongs; never a zombie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub id: ProcId,
    /// Its parent when it was seen.
    pub ppid: u32,
    /// Its name.
    pub comm: OsBytes,
    /// What it was doing when it was seen.
    pub state: State,
    /// Why it belongs.
    pub via: Via,
}

/// One look at the whole machine: the live processes that belong, by number. Left out are the
/// caller and its ancestors, pid 0 and 1, the processes of other users, and those `protected`.
///
/// # Errors
/// Where the list of processes cannot be had; one that cannot be read is left out.
pub fn members(evidence: &Evidence, protected: &[u32]) -> io::Result<Vec<Member>> {
    let mut machine = Machine {
        all: HashMap::new(),
        tagged: HashSet::new(),
        grouped: HashSet::new(),
        me: std::process::id(),
        uid: getuid().as_raw(),
    };
    for _ in 0..MOST_ROUNDS {
        let complete = machine.catch_up(evidence.tag)?;
        machine.grouped = grouped(evidence)?;
        // What outruns a look is ended with its group: only that nothing is left needs a whole one.
        let found = || machine.members(evidence, protected).iter().any(|member| member.via != Via::Init);
        if complete || (evidence.group().is_some() && found()) {
            break;
        }
    }
    Ok(machine.members(evidence, protected))
}

fn grouped(evidence: &Evidence) -> io::Result<HashSet<u32>> {
    let pids = evidence.group().map(cgroup::processes).transpose()?;
    Ok(pids.unwrap_or_default().into_iter().collect())
}

/// Whether the reason for which a member was found holds now; asked while the process is held, so
/// that no stranger is taken for it.
pub(crate) fn still_belongs(evidence: &Evidence, member: &Member, now: &Process) -> bool {
    let inherited = evidence.init.is_some_and(|init| init.pid == now.ppid);
    match member.via {
        Via::Init => evidence.init == Some(now.id),
        Via::Descent => now.ppid == member.ppid || inherited,
        Via::Tag => platform::has_tag(now.id.pid, evidence.tag),
        Via::Session => evidence.sid == Some(now.sid),
        Via::Group => cgroup::has(evidence.tag, now.id.pid),
    }
}

/// The machine as it was seen.
#[derive(Debug)]
struct Machine {
    all: HashMap<u32, Process>,
    tagged: HashSet<u32>,
    grouped: HashSet<u32>,
    me: u32,
    uid: u32,
}

impl Machine {
    /// Reads what the list of processes has and `self` has not, and what has lost its parent since.
    /// Whether none ended between list and reading, when it may have left another behind: then this
    /// is how the machine was at the time of the list.
    fn catch_up(&mut self, tag: Tag) -> io::Result<bool> {
        let mut listed = platform::pids()?;
        let now: HashSet<u32> = listed.iter().copied().collect();
        self.all
            .retain(|pid, process| now.contains(pid) && (process.ppid == 0 || now.contains(&process.ppid)));
        listed.retain(|pid| !self.all.contains_key(pid));
        // The youngest first: they are gone soonest.
        listed.sort_unstable_by_key(|pid| Reverse(*pid));
        let mut complete = true;
        for pid in listed {
            match platform::read(pid) {
                Ok(Some(process)) => {
                    complete &= process.state != State::Zombie;
                    self.add(process, tag);
                }
                Ok(None) => complete = false,
                Err(_) => {}
            }
        }
        Ok(complete)
    }

    fn add(&mut self, process: Process, tag: Tag) {
        let pid = process.id.pid;
        if process.uid == self.uid && process.state != State::Zombie && platform::has_tag(pid, tag) {
            self.tagged.insert(pid);
        }
        self.all.insert(pid, process);
    }

    fn members(&self, evidence: &Evidence, protected: &[u32]) -> Vec<Member> {
        let exempt = self.exempt(protected);
        let mut found = self.roots(evidence);
        found.retain(|pid, _| !protected.contains(pid));
        self.descend(&mut found, protected);
        let mut members: Vec<Member> =
            self.all.values().filter_map(|p| member(p, *found.get(&p.id.pid)?)).collect();
        members.retain(|member| !exempt.contains(&member.id.pid));
        members.sort_by_key(|member| member.id);
        members
    }

    /// Those that belong for a reason of their own.
    fn roots(&self, evidence: &Evidence) -> HashMap<u32, Via> {
        let sid = evidence.sid.filter(|sid| *sid > 1 && self.session_is_ours(*sid, evidence.init));
        let why = |process: &Process| {
            if evidence.init == Some(process.id) {
                Some(Via::Init)
            } else if self.grouped.contains(&process.id.pid) {
                Some(Via::Group)
            } else if self.tagged.contains(&process.id.pid) {
                Some(Via::Tag)
            } else {
                (sid == Some(process.sid)).then_some(Via::Session)
            }
        };
        self.all.values().filter_map(|process| Some((process.id.pid, why(process)?))).collect()
    }

    fn session_is_ours(&self, sid: u32, init: Option<ProcId>) -> bool {
        match self.all.get(&sid) {
            Some(leader) => init == Some(leader.id) || self.tagged.contains(&sid),
            None => {
                self.all.values().any(|process| process.sid == sid && self.tagged.contains(&process.id.pid))
            }
        }
    }

    /// Adds what descends from those found, through processes of other users but not through the
    /// caller (unless it is the init itself) or a protected process.
    fn descend(&self, found: &mut HashMap<u32, Via>, protected: &[u32]) {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for process in self.all.values() {
            children.entry(process.ppid).or_default().push(process.id.pid);
        }
        let mut todo: Vec<u32> = found.keys().copied().collect();
        while let Some(parent) = todo.pop() {
            if parent == self.me && found.get(&parent) != Some(&Via::Init) {
                continue;
            }
            for child in children.get(&parent).into_iter().flatten() {
                if !found.contains_key(child) && !protected.contains(child) {
                    found.insert(*child, Via::Descent);
                    todo.push(*child);
                }
            }
        }
    }

    fn exempt(&self, protected: &[u32]) -> HashSet<u32> {
        let mut exempt: HashSet<u32> = protected.iter().copied().collect();
        exempt.extend([0, 1]);
        exempt.extend(
            self.all.values().filter(|process| process.uid != self.uid).map(|process| process.id.pid),
        );
        exempt.extend(line(self.me, |pid| self.all.get(&pid).map(|process| process.ppid)));
        exempt
    }
}

/// A process and its ancestors.
fn line(pid: u32, parent: impl Fn(u32) -> Option<u32>) -> HashSet<u32> {
    let mut line = HashSet::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| line.insert(*pid)) {
        next = parent(pid);
    }
    line
}

/// The caller and its ancestors now.
pub(crate) fn own_line() -> HashSet<u32> {
    line(std::process::id(), |pid| Some(platform::glance(pid).ok()??.ppid))
}

fn member(process: &Process, via: Via) -> Option<Member> {
    (process.state != State::Zombie).then(|| Member {
        id: process.id,
        ppid: process.ppid,
        comm: process.comm.clone(),
        state: process.state,
        via,
    })
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
