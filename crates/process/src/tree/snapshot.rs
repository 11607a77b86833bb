//! Snapshots of all processes, shared between callers. A caller accepts any snapshot that was started after
//! its call, its own or another thread's. However many trees are ended at once, only one thread reads the
//! machine at a time, and a caller waits for at most two snapshots.
//!
//! A snapshot reads the `stat` of each process. The environment is read once per exec: an unchanged memory
//! layout implies an unchanged environment (see [`Image`]). On a system that does not report the layout, each
//! snapshot reads it again. A process that does not answer is in the snapshot with what can be told of it.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::getuid;

use super::markers::Markers;
use crate::bounded_reads::UNANSWERED;
use crate::info::{BasicInfo, State};
use crate::platform;
use crate::platform::proc::Image;

/// Maximum number of passes of one snapshot, each of which adds the processes that were started during the
/// one before. The first pass takes milliseconds, in which a process that only forks and exits evades it; a
/// later one takes a fraction of that, so two or three passes are usual even on a busy machine.
const MAX_PASSES: u32 = 50;

/// All processes of the machine at one time.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) entries: HashMap<u32, SnapshotEntry>,
    pub(crate) extent: Extent,
}

/// Completeness of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Extent {
    /// All processes.
    #[default]
    Complete,
    /// The processes that its caller needed; others may be missing.
    Sufficient,
    /// A process may be missing: others ended during each of the [`MAX_PASSES`] passes.
    Overtaken,
}

#[derive(Debug)]
pub(crate) struct SnapshotEntry {
    pub(crate) info: BasicInfo,
    /// Read only of processes of the caller's user.
    pub(crate) markers: Option<Arc<Markers>>,
}

impl Snapshot {
    /// Takes a snapshot that is complete, or contains what is `sufficient`. Reuses the markers of `previous`.
    pub(crate) fn take(previous: Option<&Arc<Self>>, sufficient: &dyn Fn(&Self) -> bool) -> io::Result<Self> {
        let mut snapshot = Self::default();
        for _ in 0..MAX_PASSES {
            if snapshot.update(previous)? {
                return Ok(snapshot);
            }
            if sufficient(&snapshot) {
                snapshot.extent = Extent::Sufficient;
                return Ok(snapshot);
            }
        }
        snapshot.extent = Extent::Overtaken;
        Ok(snapshot)
    }

    /// Lists the processes, and reads those that are new or have lost their parent since the last pass. True
    /// if none ended between the listing and its reading, in which case it could have left a child unseen:
    /// the snapshot is then complete as of the listing.
    fn update(&mut self, previous: Option<&Arc<Self>>) -> io::Result<bool> {
        let mut listed = platform::pids()?;
        let now: HashSet<u32> = listed.iter().copied().collect();
        let exists = |pid: u32| pid == 0 || now.contains(&pid);
        self.entries.retain(|pid, entry| {
            exists(*pid) && exists(entry.info.ppid) && entry.info.image != Image::Unfinished
        });
        listed.retain(|pid| !self.entries.contains_key(pid));
        // The youngest first: they are likely to end first.
        listed.sort_unstable_by_key(|pid| Reverse(*pid));
        let (mut complete, mut failed) = (true, Ok(()));
        let earlier = previous.cloned();
        let read = move |pid| read_entry(pid, earlier.as_deref());
        UNANSWERED.read_each(&listed, read, |pid, result| match result {
            Some(Ok(Some(entry))) => {
                complete &= is_settled(&entry.info);
                self.entries.insert(pid, entry);
            }
            Some(Ok(None)) => complete = false,
            Some(Err(error)) if is_denied(&error) => {}
            Some(Err(error)) if error.kind() != io::ErrorKind::TimedOut => failed = Err(error),
            Some(Err(_)) | None => match unanswered_entry(pid, previous) {
                Ok(Some(entry)) => drop(self.entries.insert(pid, entry)),
                Ok(None) => complete = false,
                Err(error) => failed = Err(error),
            },
        });
        failed.map(|()| complete)
    }

    /// Returns an entry with the earlier markers, if the process has not called exec since.
    fn reuse(&self, info: &BasicInfo) -> Option<SnapshotEntry> {
        let earlier = self.entries.get(&info.id.pid)?;
        let known = matches!(info.image, Image::At(..));
        let same = known && earlier.info.image == info.image && earlier.info.id == info.id;
        same.then(|| SnapshotEntry { info: info.clone(), markers: earlier.markers.clone() })
    }

    /// Returns a process and its descendants.
    pub(crate) fn subtree(&self, root: u32) -> HashSet<u32> {
        let children = self.children();
        let mut subtree = HashSet::from([root]);
        let mut todo = vec![root];
        while let Some(parent) = todo.pop() {
            let more = children.get(&parent).into_iter().flatten();
            todo.extend(more.filter(|child| subtree.insert(**child)));
        }
        subtree
    }

    pub(crate) fn children(&self) -> HashMap<u32, Vec<u32>> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, entry) in &self.entries {
            children.entry(entry.info.ppid).or_default().push(*pid);
        }
        children
    }
}

/// False for a process that may have left a child unseen, as it has ended, or whose markers are not readable yet.
fn is_settled(info: &BasicInfo) -> bool {
    info.state != State::Zombie && info.image != Image::Unfinished
}

/// Reads a process with its markers, which are those of an earlier snapshot if they are the same.
fn read_entry(pid: u32, previous: Option<&Snapshot>) -> io::Result<Option<SnapshotEntry>> {
    let Some(info) = platform::basic_info(pid)? else { return Ok(None) };
    let reused = previous.and_then(|snapshot| snapshot.reuse(&info));
    reused.map_or_else(|| with_markers(info), Ok).map(Some)
}

/// Returns the entry of a process that does not answer: what can be read about it anyway, and its identity and markers
/// from the previous snapshot.
fn unanswered_entry(pid: u32, previous: Option<&Arc<Snapshot>>) -> io::Result<Option<SnapshotEntry>> {
    let Some(info) = platform::unanswered_info(pid)? else { return Ok(None) };
    let earlier = previous.and_then(|snapshot| snapshot.entries.get(&pid));
    let id = earlier.map_or(info.id, |earlier| earlier.info.id);
    let markers = earlier.and_then(|earlier| earlier.markers.clone());
    Ok(Some(SnapshotEntry { info: BasicInfo { id, ..info }, markers }))
}

/// Adds the markers, if they are readable; those of another user are not trusted.
fn with_markers(info: BasicInfo) -> io::Result<SnapshotEntry> {
    let pid = info.id.pid;
    let has_environment = info.is_alive() && info.image != Image::None;
    let markers = if has_environment { unless_denied(Markers::read(pid))? } else { None };
    let ours = markers.is_some() && unless_denied(platform::uid(pid))? == Some(getuid().as_raw());
    Ok(SnapshotEntry { info, markers: markers.filter(|_| ours).map(Arc::new) })
}

/// Maps denied access to `None`.
fn unless_denied<T>(result: io::Result<Option<T>>) -> io::Result<Option<T>> {
    result.or_else(|error| if is_denied(&error) { Ok(None) } else { Err(error) })
}

/// True if the process does not permit the read. Other errors, such as exhausted descriptors or memory, say
/// nothing about the process.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData)
}

static SHARED: SharedSnapshot = SharedSnapshot { started: AtomicU64::new(0), last: Mutex::new(None) };

struct SharedSnapshot {
    /// Number of snapshots started.
    started: AtomicU64,
    /// The last finished snapshot, with its number.
    last: Mutex<Option<(u64, Arc<Snapshot>)>>,
}

/// Returns a snapshot that was started after the call: a complete one, or one that is `sufficient`.
///
/// # Errors
/// The processes cannot be listed; a process that cannot be read is omitted.
pub(crate) fn shared(sufficient: &dyn Fn(&Snapshot) -> bool) -> io::Result<Arc<Snapshot>> {
    SHARED.get(sufficient)
}

impl SharedSnapshot {
    fn get(&self, sufficient: &dyn Fn(&Snapshot) -> bool) -> io::Result<Arc<Snapshot>> {
        let started = self.started.load(Ordering::SeqCst);
        // Waits for a snapshot in progress, which may have been started before the call.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, snapshot)) = &*last
            && *number > started
            && (snapshot.extent != Extent::Sufficient || sufficient(snapshot))
        {
            return Ok(Arc::clone(snapshot));
        }
        let number = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        let previous = last.as_ref().map(|(_, snapshot)| snapshot);
        let snapshot = Arc::new(Snapshot::take(previous, sufficient)?);
        *last = Some((number, Arc::clone(&snapshot)));
        Ok(snapshot)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
