//! A small file system for one test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::output::Output;

/// A mounted tmpfs, unmounted on drop.
#[derive(Debug)]
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts a tmpfs of `size` at `path`; prints a skip and returns `None` where mounting is not permitted.
    pub(crate) fn new(path: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let mount = Self(path);
        mount.run(Command::new("mount").args(["-t", "tmpfs", "-o", &options(size), "tmpfs"])).then_some(mount)
    }

    pub(crate) fn resize(&self, size: &str) {
        assert!(self.run(Command::new("mount").args(["-o", &format!("remount,{}", options(size))])));
    }

    fn run(&self, command: &mut Command) -> bool {
        let output = Output::of(command.arg(&self.0), b"");
        if output.code != 0 {
            super::skipped(&output.stderr);
        }
        output.code == 0
    }
}

fn options(size: &str) -> String {
    format!("size={size},mode=0700")
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazy: the pool has ended, but the last processes may still be exiting.
        let output = Output::of(Command::new("umount").arg("-l").arg(&self.0), b"");
        assert_eq!(output.code, 0, "{output:?}");
        drop(fs::remove_dir_all(self.0.parent().unwrap()));
    }
}
