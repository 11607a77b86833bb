//! The directories that are being removed, which can take long: nothing is started in them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The directories that are being removed.
#[derive(Debug, Default)]
pub(crate) struct Removals(Mutex<Vec<PathBuf>>);

/// The removal of directories, until this is dropped.
#[derive(Debug)]
pub(crate) struct Removal {
    removals: Arc<Removals>,
    dirs: Vec<PathBuf>,
}

impl Removals {
    /// Begins to remove a directory, which has these paths.
    pub(crate) fn begin(self: &Arc<Self>, dirs: Vec<PathBuf>) -> Removal {
        self.dirs().extend(dirs.iter().cloned());
        Removal { removals: Arc::clone(self), dirs }
    }

    /// True if nothing is being removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirs().is_empty()
    }

    /// True if a path is in a directory that is being removed.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        self.dirs().iter().any(|dir| path.starts_with(dir))
    }

    fn dirs(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        let mut all = self.removals.dirs();
        for dir in &self.dirs {
            if let Some(at) = all.iter().position(|one| one == dir) {
                all.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_covered_until_its_last_removal_ends() {
        let removals = Arc::new(Removals::default());
        let first = removals.begin(vec!["/a".into(), "/real".into()]);
        let second = removals.begin(vec!["/a".into()]);
        let covered = |path: &str| removals.covers(Path::new(path));
        assert!(covered("/a/work") && covered("/real") && !covered("/ab"));
        drop(first);
        assert!(covered("/a") && !covered("/real"));
        drop(second);
        assert!(removals.is_empty());
    }
}
