//! Which processes belong to one incarnation of a session. Three nets, because each alone leaks:
//! descent from the init (which inherits every orphan where there are subreapers), the init's
//! terminal session, and the tag in the environment that a process was started with. Whatever
//! descends from a member is a member. Where the incarnation has a control group, that is a fourth
//! one without a hole.
//!
//! A controlling terminal and a process group need no net of their own: the kernel gives each to one
//! session, so whatever shares them is in the session. A session whose leader has gone is believed
//! only by a tag, even where the leader was our init: when its last process ended, its number became
//! free for a stranger's session, the leader of which may have gone too.
//!
//! Membership looks at these alone: a member that serves a socket (a tmux server that an agent
//! started for itself, say) is a member like any other. Callers that must spare one name it as
//! protected, when nothing belongs merely because it descends from that one, or say what is to be
//! spared ([`crate::spare`]).

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::getuid;
use protocol::ids::{ProcId, Tag};
use protocol::text::OsBytes;

use crate::identity::{Glance, Process, State};
use crate::look::{self, Look, Seen};
use crate::marks::Marks;
use crate::{cgroup, platform};

mod table;

pub use table::{Background, Table, processes};

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
    /// The socket of its pool, where another pool may use the same tag: the tag is believed only along with
    /// this in `POOL_SOCKET`.
    pub socket: Option<PathBuf>,
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

/// The live processes that belong, by number, after one look at the whole machine. Left out are the
/// caller and its ancestors, pid 0 and 1, the processes of other users, and those `protected`.
///
/// # Errors
/// Where the list of processes cannot be had; one that cannot be read is left out.
pub fn members(evidence: &Evidence, protected: &[u32]) -> io::Result<Vec<Member>> {
    Ok(family(evidence, protected)?.members)
}

/// The same, with the look that it is from.
pub(crate) fn family(evidence: &Evidence, protected: &[u32]) -> io::Result<Family> {
    let mine = getuid().as_raw();
    let failed = Cell::new(None);
    let is_ours = |pid| match platform::uid(pid) {
        // What has ended since was found nevertheless.
        Ok(uid) => uid.is_none_or(|uid| uid == mine),
        Err(error) if look::is_denied(&error) => false,
        Err(error) => {
            failed.set(Some(error));
            false
        }
    };
    let (me, is_ours) = (std::process::id(), &is_ours);
    let nets = |grouped| Nets { evidence, protected, grouped, me, is_ours };
    // What outruns a look is ended with its group: only that nothing is left needs a whole one.
    let found = |look: &Look| {
        let seen = evidence.group().is_some().then(|| grouped(evidence).ok()).flatten();
        let members = seen.map(|grouped| nets(grouped).catch(look).1);
        members.is_some_and(|members| members.iter().any(|member| member.via != Via::Init))
    };
    let look = look::shared(&found)?;
    let (reasons, members, foreign) = nets(grouped(evidence)?).catch(&look);
    // Whose a process is, is not known for want of descriptors, say.
    failed.take().map_or(Ok(()), Err)?;
    Ok(Family { look, reasons, members, foreign })
}

/// What belongs to an incarnation.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) look: Arc<Look>,
    /// Of all that is in one of the nets, also of what must not be touched.
    pub(crate) reasons: HashMap<u32, Via>,
    /// By number.
    pub(crate) members: Vec<Member>,
    /// Those that would be members, and are another user's now.
    pub(crate) foreign: Vec<Member>,
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
        Via::Tag => Marks::of(now.id.pid).is_ok_and(|marks| marks.is_some_and(|marks| marks.name(evidence))),
        Via::Session => evidence.sid == Some(now.sid),
        Via::Group => cgroup::has(evidence.tag, now.id.pid),
    }
}

/// The nets that are cast over a look.
struct Nets<'a> {
    evidence: &'a Evidence,
    protected: &'a [u32],
    grouped: HashSet<u32>,
    me: u32,
    is_ours: &'a dyn Fn(u32) -> bool,
}

impl Nets<'_> {
    /// What is in one of them and why, and of that the members, and those that are another user's.
    fn catch(&self, look: &Look) -> (HashMap<u32, Via>, Vec<Member>, Vec<Member>) {
        let mut found = self.roots(look);
        found.retain(|pid, _| !self.protected.contains(pid));
        self.descend(look, &mut found);
        let exempt = self.exempt(look);
        let caught = found.iter().filter_map(|(pid, via)| Some((look.all.get(pid)?, *via)));
        let caught = caught.filter(|(seen, _)| seen.now.is_alive() && !exempt.contains(&seen.now.id.pid));
        let mut members: Vec<Member> = caught.map(|(seen, via)| member(&seen.now, via)).collect();
        members.sort_by_key(|member| member.id);
        let (members, foreign) = members.into_iter().partition(|member| (self.is_ours)(member.id.pid));
        (found, members, foreign)
    }

    /// Those that belong for a reason of their own.
    fn roots(&self, look: &Look) -> HashMap<u32, Via> {
        let sid = self.evidence.sid.filter(|sid| *sid > 1 && self.session_is_ours(look, *sid));
        let why = |seen: &Seen| {
            if self.evidence.init == Some(seen.now.id) {
                Some(Via::Init)
            } else if self.grouped.contains(&seen.now.id.pid) {
                Some(Via::Group)
            } else if self.is_tagged(seen) {
                Some(Via::Tag)
            } else {
                (sid == Some(seen.now.sid)).then_some(Via::Session)
            }
        };
        look.all.values().filter_map(|seen| Some((seen.now.id.pid, why(seen)?))).collect()
    }

    fn is_tagged(&self, seen: &Seen) -> bool {
        seen.marks.as_ref().is_some_and(|marks| marks.name(self.evidence))
    }

    fn session_is_ours(&self, look: &Look, sid: u32) -> bool {
        match look.all.get(&sid) {
            Some(leader) => self.evidence.init == Some(leader.now.id) || self.is_tagged(leader),
            None => look.all.values().any(|seen| seen.now.sid == sid && self.is_tagged(seen)),
        }
    }

    /// Adds what descends from those found, through processes of other users but not through the
    /// caller (unless it is the init itself) or a protected process.
    fn descend(&self, look: &Look, found: &mut HashMap<u32, Via>) {
        let children = look.children();
        let mut todo: Vec<u32> = found.keys().copied().collect();
        while let Some(parent) = todo.pop() {
            if parent == self.me && found.get(&parent) != Some(&Via::Init) {
                continue;
            }
            for child in children.get(&parent).into_iter().flatten() {
                if !found.contains_key(child) && !self.protected.contains(child) {
                    found.insert(*child, Via::Descent);
                    todo.push(*child);
                }
            }
        }
    }

    fn exempt(&self, look: &Look) -> HashSet<u32> {
        let mut exempt: HashSet<u32> = self.protected.iter().copied().collect();
        exempt.extend([0, 1]);
        exempt.extend(line(self.me, |pid| look.all.get(&pid).map(|seen| seen.now.ppid)));
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

fn member(now: &Glance, via: Via) -> Member {
    Member { id: now.id, ppid: now.ppid, comm: now.comm.clone(), state: now.state, via }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
