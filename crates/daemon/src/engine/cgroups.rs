//! The control groups that can be created on this machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use process::cgroup::Subtree;
use protocol::reply::Capacity as CapacityView;
use protocol::{OsBytes, Tag};
use tokio::time::Instant;

use crate::config::CgroupPlacement;

/// The control groups that can be created, shared between tasks.
#[derive(Default)]
pub(crate) struct Cgroups {
    state: Mutex<CgroupState>,
    /// Number of searches so far.
    begun: AtomicU64,
}

/// The result of the last search for a place for control groups.
#[derive(Default)]
pub(crate) struct CgroupState {
    /// The configuration and, for [`CgroupPlacement::Auto`], the process id of the tmux server. They determine all
    /// other fields.
    pub(crate) inputs: Option<(CgroupPlacement, Option<u32>)>,
    /// The group below which those of incarnations are created.
    pub(crate) subtree: Option<Subtree>,
    /// The controllers enabled in it.
    pub(crate) controllers: Vec<String>,
    /// The reason why some limits, or all, cannot be enforced.
    pub(crate) missing: Option<String>,
    /// Time of the last search, if it found no place.
    pub(crate) failed_at: Option<Instant>,
    /// The number of the search.
    pub(crate) number: u64,
}

impl Cgroups {
    pub(crate) fn with_state<R>(&self, access: impl FnOnce(&mut CgroupState) -> R) -> R {
        access(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of a search that begins.
    pub(crate) fn begin_look(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Stores the result of a search. Returns false if the result of a search that began later is stored already.
    pub(crate) fn end_look(&self, found: CgroupState) -> bool {
        self.with_state(|state| {
            let is_newest = found.number > state.number;
            if is_newest {
                *state = found;
            }
            is_newest
        })
    }

    /// Returns the part of the capacity that `status` shows.
    pub(crate) fn view(&self) -> CapacityView {
        self.with_state(|state| CapacityView {
            cgroup: state.subtree.as_ref().map(|subtree| OsBytes::from(subtree.path())),
            controllers: state.controllers.clone(),
            without: state.missing.clone(),
            ..CapacityView::default()
        })
    }

    pub(crate) fn subtree(&self) -> Option<Subtree> {
        self.with_state(|state| state.subtree.clone())
    }

    /// Returns the group of an incarnation, if it exists.
    pub(crate) fn find(&self, tag: Tag) -> Option<PathBuf> {
        let path = self.subtree()?.group(tag);
        path.is_dir().then_some(path)
    }
}
