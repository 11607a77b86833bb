//! Finds the processes that belong to one incarnation of a session. There are three criteria, because a
//! process can escape any single one: descent from the init (which adopts every orphan on systems with
//! subreapers), the init's terminal session, and the tag in the initial environment. A descendant of a member
//! is a member. The control group, if the incarnation has one, is a fourth criterion that no process escapes.
//!
//! Controlling terminal and process group are no separate criteria: the kernel confines each to one session,
//! so the session covers them. A session whose leader has gone counts only if a process in it has the tag,
//! even if the leader was our init: once its last process has ended its id can be reused by an unrelated
//! session, whose leader may have gone as well.
//!
//! There are no other criteria: a member that listens on a socket, such as a tmux server that an agent
//! started for itself, is a member like any other. A caller excludes a process by naming it as protected,
//! which also excludes what belongs only as its descendant, or by sparing daemons
//! ([`crate::kill::SparedDaemons`]).
//!
//! `evidence` has the known facts about an incarnation, `markers` those in a process's environment,
//! `snapshot` the processes of the machine. The other modules are further uses of these: `marker_scan`,
//! `listeners`, `process_table`.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use nix::unistd::getuid;
use protocol::{OsBytes, ProcId};

use crate::info::{BasicInfo, Process, State};
use crate::{cgroup, platform};

mod evidence;
pub mod listeners;
pub mod marker_scan;
mod markers;
mod process_table;
pub(crate) mod snapshot;

pub use evidence::Evidence;
pub use process_table::{Background, Table, processes};

use markers::Markers;
pub(crate) use snapshot::Extent;
use snapshot::{Snapshot, SnapshotEntry};

/// The criterion by which a process is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// The init itself.
    Init,
    /// Descent from the init or from another member.
    Descent,
    /// The tag in its environment.
    Tag,
    /// The init's terminal session.
    Session,
    /// The control group.
    Group,
}

/// A process that belongs to an incarnation; never a zombie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub id: ProcId,
    /// Parent pid at the time of the snapshot.
    pub ppid: u32,
    /// Program name as the kernel keeps it.
    pub comm: OsBytes,
    /// Run state at the time of the snapshot.
    pub state: State,
    /// The criterion that it meets.
    pub via: Via,
}

/// Returns the living members, ordered by pid, as of one snapshot of the machine. Excludes the caller and its
/// ancestors, pid 0 and 1, processes of other users, and those `protected`.
///
/// # Errors
/// The processes cannot be listed; a process that cannot be read is omitted.
pub fn members(evidence: &Evidence, protected: &[u32]) -> io::Result<Vec<Member>> {
    Ok(membership(evidence, protected)?.members)
}

/// Like [`members`], with the snapshot and the criteria of every match.
pub(crate) fn membership(evidence: &Evidence, protected: &[u32]) -> io::Result<Membership> {
    let mine = getuid().as_raw();
    let failed = Cell::new(None);
    let is_ours = |pid| match platform::uid(pid) {
        // A process that has ended since the snapshot still counts as found.
        Ok(uid) => uid.is_none_or(|uid| uid == mine),
        Err(error) if snapshot::is_denied(&error) => false,
        Err(error) => {
            failed.set(Some(error));
            false
        }
    };
    let (me, is_ours) = (std::process::id(), &is_ours);
    let search = |in_group| MemberSearch { evidence, protected, in_group, me, is_ours };
    // If there is a control group, a partial snapshot suffices while there is a process to end: one that evades the
    // snapshot is killed with the group. Only the proof that none is left needs a complete snapshot.
    let has_members = |snapshot: &Snapshot| {
        let in_group = evidence.group().is_some().then(|| group_pids(evidence).ok()).flatten();
        in_group.is_some_and(|in_group| search(in_group).finds_some(snapshot))
    };
    let run = |snapshot: &Snapshot| Ok(search(group_pids(evidence)?).run(snapshot));
    let take = |complete: bool| snapshot::shared(&|snapshot| !complete && has_members(snapshot));
    let (snapshot, (matches, members, foreign)) = search_conclusively(take, run)?;
    // The owner of a process could not be read, for example because descriptors are exhausted.
    failed.take().map_or(Ok(()), Err)?;
    Ok(Membership { snapshot, matches, members, foreign })
}

/// The criterion of every match, the members, and the matches that belong to other users.
type Found = (HashMap<u32, Via>, Vec<Member>, Vec<Member>);

/// Searches a snapshot that may be partial, and a complete one if the first is not conclusive. `take` is told whether
/// the snapshot has to be complete.
fn search_conclusively(
    take: impl Fn(bool) -> io::Result<Arc<Snapshot>>,
    run: impl Fn(&Snapshot) -> io::Result<Found>,
) -> io::Result<(Arc<Snapshot>, Found)> {
    let mut snapshot = take(false)?;
    let mut found = run(&snapshot)?;
    if !is_conclusive(&snapshot, &found.1) {
        snapshot = take(true)?;
        found = run(&snapshot)?;
    }
    Ok((snapshot, found))
}

/// True unless a partial snapshot shows nobody but the init: the processes that made it seem sufficient have ended
/// since.
fn is_conclusive(snapshot: &Snapshot, members: &[Member]) -> bool {
    snapshot.extent != Extent::Sufficient || members.iter().any(|member| member.via != Via::Init)
}

/// The processes that belong to an incarnation.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) snapshot: Arc<Snapshot>,
    /// Criterion of every process that meets one, those that must not be signalled included; by pid.
    pub(crate) matches: HashMap<u32, Via>,
    /// Ordered by pid.
    pub(crate) members: Vec<Member>,
    /// Processes that would be members, but now belong to another user.
    pub(crate) foreign: Vec<Member>,
}

/// Returns the pids in the control group; empty if there is none.
fn group_pids(evidence: &Evidence) -> io::Result<HashSet<u32>> {
    let pids = evidence.group().map(cgroup::processes).transpose()?;
    Ok(pids.unwrap_or_default().into_iter().collect())
}

/// True if the criterion by which a member was found still holds. Called while a handle of the process is
/// open, so that an unrelated process with the same pid is not mistaken for it.
pub(crate) fn still_belongs(evidence: &Evidence, member: &Member, now: &Process) -> bool {
    let adopted = evidence.init.is_some_and(|init| init.pid == now.ppid);
    match member.via {
        Via::Init => evidence.init == Some(now.id),
        Via::Descent => now.ppid == member.ppid || adopted,
        Via::Tag => Markers::read(now.id.pid).is_ok_and(|markers| has_tag(markers.as_ref(), evidence)),
        Via::Session => evidence.sid == Some(now.sid),
        Via::Group => cgroup::contains(evidence.tag, now.id.pid),
    }
}

fn has_tag(markers: Option<&Markers>, evidence: &Evidence) -> bool {
    markers.is_some_and(|markers| markers.match_incarnation(evidence))
}

/// Application of the criteria to a snapshot.
struct MemberSearch<'a> {
    evidence: &'a Evidence,
    protected: &'a [u32],
    /// Pids in the control group.
    in_group: HashSet<u32>,
    /// Pid of the caller.
    me: u32,
    is_ours: &'a dyn Fn(u32) -> bool,
}

impl MemberSearch<'_> {
    /// Searches a snapshot.
    fn run(&self, snapshot: &Snapshot) -> Found {
        let mut found = self.direct_matches(snapshot);
        found.retain(|pid, _| !self.protected.contains(pid));
        self.add_descendants(snapshot, &mut found);
        let excluded = self.excluded(snapshot);
        let entries = found.iter().filter_map(|(pid, via)| Some((&snapshot.entries.get(pid)?.info, *via)));
        let living = entries.filter(|(info, _)| info.is_alive() && !excluded.contains(&info.id.pid));
        let mut members: Vec<Member> = living.map(|(info, via)| member(info, via)).collect();
        members.sort_by_key(|member| member.id);
        let (members, foreign) = members.into_iter().partition(|member| (self.is_ours)(member.id.pid));
        (found, members, foreign)
    }

    /// True if there is a member besides the init, or a process in the group that is younger than the snapshot. On a
    /// busy machine all processes of a fork bomb are new by the end of each pass.
    fn finds_some(&self, snapshot: &Snapshot) -> bool {
        let mut unseen = self.in_group.iter().filter(|pid| !snapshot.entries.contains_key(*pid));
        unseen.any(|pid| !self.protected.contains(pid))
            || self.run(snapshot).1.iter().any(|member| member.via != Via::Init)
    }

    /// Returns the processes that meet a criterion other than descent.
    fn direct_matches(&self, snapshot: &Snapshot) -> HashMap<u32, Via> {
        let sid = self.evidence.sid.filter(|sid| *sid > 1 && self.session_is_ours(snapshot, *sid));
        let criterion = |entry: &SnapshotEntry| {
            if self.evidence.init == Some(entry.info.id) {
                Some(Via::Init)
            } else if self.in_group.contains(&entry.info.id.pid) {
                Some(Via::Group)
            } else if self.is_tagged(entry) {
                Some(Via::Tag)
            } else {
                (sid == Some(entry.info.sid)).then_some(Via::Session)
            }
        };
        let entries = snapshot.entries.values();
        entries.filter_map(|entry| Some((entry.info.id.pid, criterion(entry)?))).collect()
    }

    fn is_tagged(&self, entry: &SnapshotEntry) -> bool {
        has_tag(entry.markers.as_deref(), self.evidence)
    }

    fn session_is_ours(&self, snapshot: &Snapshot, sid: u32) -> bool {
        match snapshot.entries.get(&sid) {
            Some(leader) => self.evidence.init == Some(leader.info.id) || self.is_tagged(leader),
            None => snapshot.entries.values().any(|entry| entry.info.sid == sid && self.is_tagged(entry)),
        }
    }

    /// Adds the descendants of the matches, also through processes of other users, but not through the caller
    /// (unless it is the init itself) or a protected process.
    fn add_descendants(&self, snapshot: &Snapshot, found: &mut HashMap<u32, Via>) {
        let children = snapshot.children();
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

    /// Returns the pids that are never members.
    fn excluded(&self, snapshot: &Snapshot) -> HashSet<u32> {
        let mut excluded: HashSet<u32> = self.protected.iter().copied().collect();
        excluded.extend([0, 1]);
        excluded.extend(ancestry(self.me, |pid| snapshot.entries.get(&pid).map(|entry| entry.info.ppid)));
        excluded
    }
}

/// Returns a process and its ancestors.
fn ancestry(pid: u32, parent: impl Fn(u32) -> Option<u32>) -> HashSet<u32> {
    let mut ancestry = HashSet::new();
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| ancestry.insert(*pid)) {
        next = parent(pid);
    }
    ancestry
}

/// Returns the calling process and its current ancestors.
pub(crate) fn own_ancestry() -> HashSet<u32> {
    ancestry(std::process::id(), |pid| Some(platform::basic_info(pid).ok()??.ppid))
}

fn member(info: &BasicInfo, via: Via) -> Member {
    Member { id: info.id, ppid: info.ppid, comm: info.comm.clone(), state: info.state, via }
}

#[cfg(test)]
mod tests;
