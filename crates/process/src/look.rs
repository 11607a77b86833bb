//! Looks at the whole machine, which many share: whoever needs to know what is there *now* takes a look that
//! began after the question, its own or another's. So however many trees are ended at once, the machine is read
//! by one at a time, and at most twice for each.
//!
//! Each process costs the reading of its `stat`. The environment is read once for each exec: where its image
//! lies in memory tells that it is still the same (see [`Image`]). On a system that does not tell, it is read
//! in each look.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::unistd::getuid;

use crate::identity::{Glance, State};
use crate::marks::Marks;
use crate::platform;
use crate::proc::Image;

/// How often a look is completed with what was started during it. Reading all takes milliseconds,
/// in which a process that only ever forks and exits is somewhere else; reading what is new takes a
/// fraction of one, so two or three rounds are usual even on a busy machine.
const MOST_ROUNDS: u32 = 50;

/// The machine as it was seen.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub(crate) all: HashMap<u32, Seen>,
    /// Given up early, because it was enough for whoever looked.
    partial: bool,
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) now: Glance,
    /// Of the caller's user alone.
    pub(crate) marks: Option<Arc<Marks>>,
}

impl Look {
    /// Looks until nothing was missed, or `enough` was found; `before` saves the reading of what is known.
    pub(crate) fn take(before: Option<&Self>, enough: &dyn Fn(&Self) -> bool) -> io::Result<Self> {
        let mut look = Self::default();
        for _ in 0..MOST_ROUNDS {
            let complete = look.catch_up(before)?;
            look.partial = !complete && enough(&look);
            if complete || look.partial {
                break;
            }
        }
        Ok(look)
    }

    /// Reads what the list of processes has and `self` has not, and what has lost its parent since.
    /// Whether none ended between list and reading, when it may have left another behind: then this
    /// is how the machine was at the time of the list.
    fn catch_up(&mut self, before: Option<&Self>) -> io::Result<bool> {
        let mut listed = platform::pids()?;
        let now: HashSet<u32> = listed.iter().copied().collect();
        let is_there = |pid: u32| pid == 0 || now.contains(&pid);
        self.all.retain(|pid, seen| {
            is_there(*pid) && is_there(seen.now.ppid) && seen.now.image != Image::Unfinished
        });
        listed.retain(|pid| !self.all.contains_key(pid));
        // The youngest first: they are gone soonest.
        listed.sort_unstable_by_key(|pid| Reverse(*pid));
        let mut complete = true;
        for pid in listed {
            match platform::glance(pid) {
                Ok(Some(now)) => {
                    complete &= now.state != State::Zombie && now.image != Image::Unfinished;
                    let known = before.and_then(|look| look.recall(&now));
                    self.all.insert(pid, known.map_or_else(|| read(now), Ok)?);
                }
                Ok(None) => complete = false,
                Err(error) if is_denied(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(complete)
    }

    /// The marks of a process that has started no other program since.
    fn recall(&self, now: &Glance) -> Option<Seen> {
        let then = self.all.get(&now.id.pid)?;
        let same = matches!(now.image, Image::At(..)) && then.now.image == now.image && then.now.id == now.id;
        same.then(|| Seen { now: now.clone(), marks: then.marks.clone() })
    }

    /// A process and what descends from it.
    pub(crate) fn line(&self, root: u32) -> HashSet<u32> {
        let children = self.children();
        let mut line = HashSet::from([root]);
        let mut todo = vec![root];
        while let Some(parent) = todo.pop() {
            let more = children.get(&parent).into_iter().flatten();
            todo.extend(more.filter(|child| line.insert(**child)));
        }
        line
    }

    pub(crate) fn children(&self) -> HashMap<u32, Vec<u32>> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, seen) in &self.all {
            children.entry(seen.now.ppid).or_default().push(*pid);
        }
        children
    }
}

/// With its marks, if they can be read; those of another user are not believed.
fn read(now: Glance) -> io::Result<Seen> {
    let pid = now.id.pid;
    let has_any = now.is_alive() && now.image != Image::None;
    let marks = if has_any { shown(Marks::of(pid))? } else { None };
    let ours = marks.is_some() && shown(platform::uid(pid))? == Some(getuid().as_raw());
    Ok(Seen { now, marks: marks.filter(|_| ours).map(Arc::new) })
}

fn shown<T>(result: io::Result<Option<T>>) -> io::Result<Option<T>> {
    result.or_else(|error| if is_denied(&error) { Ok(None) } else { Err(error) })
}

/// The process does not show this. For want of descriptors or memory, say, nothing is told about it.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidData)
}

static SHARED: Shared = Shared { begun: AtomicU64::new(0), last: Mutex::new(None) };

struct Shared {
    begun: AtomicU64,
    last: Mutex<Option<(u64, Arc<Look>)>>,
}

/// A look that began after the call. It is complete unless what it has is `enough`.
///
/// # Errors
/// Where the list of processes cannot be had; one that does not show itself is left out.
pub(crate) fn shared(enough: &dyn Fn(&Look) -> bool) -> io::Result<Arc<Look>> {
    SHARED.look(enough)
}

impl Shared {
    fn look(&self, enough: &dyn Fn(&Look) -> bool) -> io::Result<Arc<Look>> {
        let begun = self.begun.load(Ordering::SeqCst);
        // Waits for a look that is being taken, and may have begun before the call.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((number, look)) = &*last
            && *number > begun
            && (!look.partial || enough(look))
        {
            return Ok(Arc::clone(look));
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let look = Arc::new(Look::take(last.as_ref().map(|(_, look)| look.as_ref()), enough)?);
        *last = Some((number, Arc::clone(&look)));
        Ok(look)
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "look_tests.rs"]
mod tests;
