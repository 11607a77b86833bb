//! What the unit tests share.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Long enough for any machine: reached only by a test that fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}

/// A child that ends with its test, also where that fails.
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

/// A control group of the test's own, with all below it; both end with the test.
#[cfg(target_os = "linux")]
pub(crate) struct Scratch(pub(crate) std::path::PathBuf);

#[cfg(target_os = "linux")]
impl Scratch {
    /// `None`, and a word about it, where none can be made.
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

    /// A process in the group at `path`, which is made where it is missing.
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
