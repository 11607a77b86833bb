//! How much room a directory takes on disk.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::libc::{dev_t, ino_t};

use crate::host::archive::tree::{Folder, Kind, Walk, allocated, kind, present};

/// Allocated bytes of a directory and all below it, on its own file system; no link is followed, and a file
/// with several names is counted once. 0 where there is none; what may not be looked into is left out.
/// `None` where it could not be told until then.
pub(crate) fn disk_use(dir: &Path, deadline: Instant) -> Option<u64> {
    let mut sum = Sum { bytes: 0, seen: HashSet::new(), deadline };
    sum.all(dir).map(|()| sum.bytes)
}

/// The same, as far as it came until then: it is at least so much.
pub(crate) fn disk_use_at_least(dir: &Path, deadline: Instant) -> u64 {
    let mut sum = Sum { bytes: 0, seen: HashSet::new(), deadline };
    sum.all(dir);
    sum.bytes
}

struct Sum {
    bytes: u64,
    /// Files with several names.
    seen: HashSet<(dev_t, ino_t)>,
    deadline: Instant,
}

impl Sum {
    /// Adds all of it; `None` where that takes too long.
    fn all(&mut self, dir: &Path) -> Option<()> {
        let Some(top) = present(Folder::open(dir)).ok()? else { return Some(()) };
        let mut pending = vec![self.folder(&top)?];
        let mut walk = Walk::new(top, PathBuf::new());
        while let Some(folders) = pending.last_mut() {
            if let Some(name) = folders.pop() {
                // It may be gone, closed to us, or a mount.
                let Ok(folder) = walk.here.enter(&name) else { continue };
                pending.push(self.folder(&folder)?);
                walk.down(name, folder);
            } else {
                pending.pop();
                walk.up().ok()?;
            }
        }
        Some(())
    }

    /// Adds a directory with its files; gives the names of the directories in it.
    fn folder(&mut self, folder: &Folder) -> Option<Vec<CString>> {
        self.bytes += folder.meta.blocks() * 512;
        let mut folders = Vec::new();
        let Ok(names) = folder.names() else { return Some(folders) };
        for name in names.map_while(io::Result::ok) {
            if Instant::now() >= self.deadline {
                return None;
            }
            let Ok(stat) = folder.stat(&name) else { continue };
            if kind(&stat) == Kind::Folder {
                folders.push(name);
            } else if stat.st_nlink == 1 || self.seen.insert((stat.st_dev, stat.st_ino)) {
                self.bytes += allocated(&stat);
            }
        }
        Some(folders)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
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
        assert_eq!(disk_use(&top, soon()), Some(parts.iter().sum()));
        assert!(parts[3] >= 1 << 18);
        // Sparse files take what they take.
        fs::File::create(top.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert!(disk_use(&top, soon()).unwrap() < 1 << 20);
    }

    #[test]
    fn no_answer_in_time_is_none_and_nothing_there_is_0() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(disk_use(&dir.path().join("none"), soon()), Some(0));
        fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(disk_use(dir.path(), Instant::now()), None);
        symlink(dir.path(), dir.path().join("link")).unwrap();
        assert_eq!(disk_use(&dir.path().join("link"), soon()), None, "it may not be a link itself");
    }

    #[test]
    fn other_file_systems_are_left_out_and_no_depth_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        deep(dir.path(), &"d".repeat(200), 50);
        let without = disk_use(dir.path(), soon()).unwrap();
        let Some(mount) = Mount::new(&dir.path().join("mount"), "4m") else { return };
        fs::write(mount.path.join("much"), vec![1; 1 << 20]).unwrap();
        assert_eq!(disk_use(dir.path(), soon()), Some(without));
        assert!(disk_use(&mount.path, soon()).unwrap() >= 1 << 20);
    }
}
