//! Control groups of this machine, as far as they can be made here.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use process::cgroup::Subtree;
use protocol::reply::Capacity as CapacityView;
use protocol::{OsBytes, Tag};

use crate::config::Cgroup;

/// What is known of the groups that can be made.
#[derive(Default)]
pub(crate) struct Cgroups(Mutex<Known>);

#[derive(Default)]
pub(crate) struct Known {
    /// What was looked at: the configuration, and the server where it matters.
    pub(crate) of: Option<(Cgroup, Option<u32>)>,
    pub(crate) subtree: Option<Subtree>,
    pub(crate) controllers: Vec<String>,
    pub(crate) without: Option<String>,
}

impl Cgroups {
    pub(crate) fn known<R>(&self, with: impl FnOnce(&mut Known) -> R) -> R {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As `status` shows it.
    pub(crate) fn shown(&self) -> CapacityView {
        self.known(|known| CapacityView {
            cgroup: known.subtree.as_ref().map(|subtree| OsBytes::from(subtree.path())),
            controllers: known.controllers.clone(),
            without: known.without.clone(),
            ..CapacityView::default()
        })
    }

    /// Removes what incarnations left that nobody keeps.
    pub(crate) fn sweep(&self, keep: &dyn Fn(Tag) -> bool) {
        if let Some(subtree) = self.subtree() {
            subtree.sweep(keep);
        }
    }

    pub(crate) fn subtree(&self) -> Option<Subtree> {
        self.known(|known| known.subtree.clone())
    }

    /// The group of an incarnation, where there is one.
    pub(crate) fn find(&self, tag: Tag) -> Option<PathBuf> {
        let path = self.subtree()?.group(tag);
        path.is_dir().then_some(path)
    }
}
