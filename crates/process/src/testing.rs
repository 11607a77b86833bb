//! Helpers of the unit tests.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Time limit of a condition, long enough for a slow machine; only a failing test reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// A child process that is killed at the end of its test, also if the test fails.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

/// A control group of the test's own; it and its descendants are removed at the end of the test.
#[cfg(target_os = "linux")]
pub(crate) struct Scratch(pub(crate) std::path::PathBuf);

#[cfg(target_os = "linux")]
impl Scratch {
    /// Creates the group; `None`, with a message, if that is not possible here.
    pub(crate) fn new() -> Option<Self> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?.to_owned();
        let name = format!("process-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::path::Path::new(&mount).join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                eprintln!("skipped: no control group {}: {error}", path.display());
                None
            }
        }
    }

    /// Starts a process in the group at `path`, which is created if it is missing.
    pub(crate) fn run(path: &std::path::Path, command: &mut Command) -> Running {
        std::fs::create_dir_all(path).unwrap();
        let child = Running::start(command);
        std::fs::write(path.join("cgroup.procs"), child.id().to_string()).unwrap();
        child
    }
}

#[cfg(target_os = "linux")]
impl Drop for Scratch {
    fn drop(&mut self) {
        drop(crate::cgroup::kill(&self.0));
        wait_until("the end of all in the group", || crate::cgroup::remove(&self.0).is_ok());
    }
}
