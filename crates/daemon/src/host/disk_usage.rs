//! Disk usage of directories.

use std::collections::HashSet;
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::time::Instant;

use nix::libc::{dev_t, ino_t};

use crate::host::dir_tree::{Dir, FileKind, Walk, allocated, kind, present};

/// Returns the allocated bytes of a directory and everything below it, on its own file system. No link is
/// followed, a file with several names counts once, and unreadable directories are left out. 0 if the
/// directory does not exist; `None` if the deadline passed first, or `dir` is not a directory.
pub(crate) fn disk_usage(dir: &Path, deadline: Instant) -> Option<u64> {
    let mut sum = Sum::new(deadline);
    sum.add_tree(dir).map(|()| sum.counted.bytes)
}

/// As [`disk_usage`], but returns what was counted by the deadline: a lower bound.
pub(crate) fn disk_usage_at_least(dir: &Path, deadline: Instant) -> Counted {
    let mut sum = Sum::new(deadline);
    sum.add_tree(dir);
    sum.counted
}

/// The result of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counted {
    pub(crate) bytes: u64,
    /// True if anything could not be read, and was left out.
    pub(crate) unread: bool,
}

struct Sum {
    counted: Counted,
    /// Files with several names that were counted.
    seen: HashSet<(dev_t, ino_t)>,
    deadline: Instant,
}

impl Sum {
    fn new(deadline: Instant) -> Self {
        Self { counted: Counted::default(), seen: HashSet::new(), deadline }
    }

    /// Adds a directory and everything below it; `None` if the deadline passed first.
    fn add_tree(&mut self, dir: &Path) -> Option<()> {
        let opened = present(Dir::open(dir));
        self.counted.unread |= opened.is_err();
        let Some(top) = opened.ok()? else { return Some(()) };
        let mut pending = vec![self.add_dir(&top)?];
        let mut walk = Walk::new(top, PathBuf::new());
        while let Some(names) = pending.last_mut() {
            if let Some(name) = names.pop() {
                let Some(dir) = self.read(walk.here.open_dir(&name)) else { continue };
                pending.push(self.add_dir(&dir)?);
                walk.descend(name, dir);
            } else {
                pending.pop();
                walk.ascend().ok()?;
            }
        }
        Some(())
    }

    /// Adds a directory and its files. Returns the names of its subdirectories.
    fn add_dir(&mut self, dir: &Dir) -> Option<Vec<CString>> {
        self.counted.bytes += dir.meta.blocks() * 512;
        let mut dirs = Vec::new();
        let Some(entries) = self.read(dir.entries()) else { return Some(dirs) };
        for entry in entries {
            let Some((name, is_dir)) = self.read(entry) else { break };
            if Instant::now() >= self.deadline {
                return None;
            }
            if is_dir {
                dirs.push(name);
                continue;
            }
            let Some(stat) = self.read(dir.stat(&name)) else { continue };
            if kind(&stat) == FileKind::Dir {
                dirs.push(name);
            } else if stat.st_nlink == 1 || self.seen.insert((stat.st_dev, stat.st_ino)) {
                self.counted.bytes += allocated(&stat);
            }
        }
        Some(dirs)
    }

    /// Returns what was read, and notes what could not be read, unless it is gone, replaced, or a mount point.
    fn read<T>(&mut self, result: io::Result<T>) -> Option<T> {
        let left_out = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::CrossesDevices];
        self.counted.unread |= result.as_ref().is_err_and(|error| !left_out.contains(&error.kind()));
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    use super::*;
    use crate::host::archive::tests::{Mount, deep};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn blocks(path: &Path) -> u64 {
        path.symlink_metadata().unwrap().blocks() * 512
    }

    #[test]
    fn each_file_counts_once_and_nothing_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (top, outside) = (dir.path().join("top"), dir.path().join("outside"));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(&outside, vec![1; 1 << 20]).unwrap();
        fs::write(top.join("a/b/file"), vec![1; 1 << 18]).unwrap();
        fs::hard_link(top.join("a/b/file"), top.join("twin")).unwrap();
        symlink(&outside, top.join("a/link")).unwrap();
        symlink("/", top.join("root")).unwrap();
        let parts = ["", "a", "a/b", "a/b/file", "a/link", "root"].map(|part| blocks(&top.join(part)));
        assert_eq!(disk_usage(&top, soon()), Some(parts.iter().sum()));
        assert!(parts[3] >= 1 << 18);
        // A sparse file counts with its allocated blocks only.
        fs::File::create(top.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(disk_usage(&top, soon()).unwrap() < 1 << 20);
    }

    #[test]
    fn no_answer_in_time_is_none_and_nothing_there_is_0() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(disk_usage(&dir.path().join("none"), soon()), Some(0));
        fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(disk_usage(dir.path(), Instant::now()), None);
        symlink(dir.path(), dir.path().join("link")).unwrap();
        assert_eq!(disk_usage(&dir.path().join("link"), soon()), None, "it may not be a link itself");
    }

    #[test]
    fn what_cannot_be_read_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let shut = dir.path().join("shut");
        fs::create_dir(&shut).unwrap();
        let set_mode = |mode| fs::set_permissions(&shut, fs::Permissions::from_mode(mode)).unwrap();
        let count = |dir: &Path| disk_usage_at_least(dir, soon());
        let all = Counted { bytes: blocks(dir.path()) + blocks(&shut), unread: false };
        assert_eq!((count(dir.path()), count(&dir.path().join("none"))), (all, Counted::default()));
        set_mode(0);
        // Root reads it all the same.
        let unread = fs::read_dir(&shut).is_err();
        assert_eq!((count(dir.path()).unread, count(&shut).unread), (unread, unread));
        set_mode(0o700);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(count(&dir.path().join("file")).unread, "it is no directory");
    }

    #[test]
    fn other_file_systems_are_left_out_and_no_depth_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        deep(dir.path(), &"d".repeat(200), 50);
        let without = disk_usage(dir.path(), soon()).unwrap();
        let Some(mount) = Mount::new(&dir.path().join("mount"), "4m") else { return };
        fs::write(mount.path.join("much"), vec![1; 1 << 20]).unwrap();
        assert_eq!(disk_usage(dir.path(), soon()), Some(without));
        assert!(disk_usage(&mount.path, soon()).unwrap() >= 1 << 20);
    }
}
