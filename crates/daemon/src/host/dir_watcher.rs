//! Notifies tasks of writes in a directory. On Linux through one inotify descriptor for all directories;
//! elsewhere, and if inotify is unavailable, by polling with back-off.

use std::path::Path;
use std::time::Duration;

use protocol::Backoff;
use tokio::time::sleep;

/// Poll interval right after a change; it doubles up to [`LONG_PAUSE`] while nothing changes.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(200);

/// Watches directories for many tasks.
#[derive(Default)]
pub(crate) struct DirWatcher {
    #[cfg(target_os = "linux")]
    hub: std::sync::OnceLock<Option<std::sync::Arc<linux::Hub>>>,
}

impl DirWatcher {
    /// Returns a watcher that polls.
    pub(crate) fn polling() -> Self {
        let watcher = Self::default();
        #[cfg(target_os = "linux")]
        watcher.hub.get_or_init(|| None);
        watcher
    }

    /// Watches this directory, which need not exist yet.
    pub(crate) fn watch(
        &self,
        #[cfg_attr(
            not(target_os = "linux"),
            expect(unused_variables, reason = "directories are polled there")
        )]
        dir: &Path,
    ) -> DirWatch {
        #[cfg(target_os = "linux")]
        let hub = self.hub.get_or_init(linux::Hub::start).clone();
        let mut watch = DirWatch {
            backoff: Backoff::new(SHORT_PAUSE, LONG_PAUSE),
            #[cfg(target_os = "linux")]
            dir: dir.to_owned(),
            #[cfg(target_os = "linux")]
            hub,
            #[cfg(target_os = "linux")]
            subscription: None,
        };
        watch.attach();
        watch
    }
}

/// A watch on a directory, until it is dropped.
pub(crate) struct DirWatch {
    /// Time until the next poll, without inotify.
    backoff: Backoff,
    #[cfg(target_os = "linux")]
    dir: std::path::PathBuf,
    #[cfg(target_os = "linux")]
    hub: Option<std::sync::Arc<linux::Hub>>,
    #[cfg(target_os = "linux")]
    subscription: Option<linux::Subscription>,
}

impl DirWatch {
    /// Waits until there may be a change. A change after the caller's last read of the directory is never
    /// missed.
    pub(crate) async fn changed(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(subscription) = &self.subscription {
            return subscription.changed().await;
        }
        sleep(self.backoff.pause()).await;
        self.attach();
    }

    /// Notes that a change was found: polls quickly again.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff.reset();
    }

    fn attach(&mut self) {
        #[cfg(target_os = "linux")]
        {
            self.subscription = self.hub.as_ref().and_then(|hub| linux::Subscription::new(hub, &self.dir));
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use nix::errno::Errno;
    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
    use tokio::sync::Notify;

    /// Subscribed tasks, by the watch descriptor of their directory.
    type Subscribers = HashMap<WatchDescriptor, Vec<Arc<Notify>>>;

    /// The inotify descriptor, and the subscribers of each directory.
    pub(crate) struct Hub {
        inotify: Inotify,
        subscribers: Mutex<Subscribers>,
    }

    impl Hub {
        /// Starts the thread that reads the events. `None` if the user's limit of inotify instances is
        /// reached.
        pub(crate) fn start() -> Option<Arc<Self>> {
            let open = || {
                let hub = Arc::new(Self {
                    inotify: Inotify::init(InitFlags::IN_CLOEXEC)?,
                    subscribers: Mutex::default(),
                });
                let run = Arc::clone(&hub);
                std::thread::Builder::new().name("dir_watcher".to_owned()).spawn(move || run.dispatch())?;
                io::Result::Ok(hub)
            };
            open().inspect_err(|error| tracing::warn!(%error, "no inotify; logs are polled")).ok()
        }

        /// Dispatches events forever; the thread sleeps in the kernel while nothing happens.
        fn dispatch(&self) {
            loop {
                match self.inotify.read_events() {
                    Ok(events) => events.iter().for_each(|event| self.notify(event)),
                    Err(Errno::EINTR) => {}
                    // No other error is expected of a valid descriptor.
                    Err(error) => {
                        return tracing::error!(%error, "inotify failed; changes of logs are not noticed");
                    }
                }
            }
        }

        fn notify(&self, event: &InotifyEvent) {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                return self.notify_all();
            }
            let subscribers = self.lock();
            subscribers.get(&event.wd).into_iter().flatten().for_each(|subscriber| subscriber.notify_one());
        }

        fn notify_all(&self) {
            self.lock().values().flatten().for_each(|subscriber| subscriber.notify_one());
        }

        #[cfg(test)]
        pub(crate) fn is_unused(&self) -> bool {
            self.lock().is_empty()
        }

        fn lock(&self) -> MutexGuard<'_, Subscribers> {
            // No code panics while it is held.
            self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// A task's subscription to a directory.
    pub(crate) struct Subscription {
        hub: Arc<Hub>,
        watch: WatchDescriptor,
        changed: Arc<Notify>,
    }

    impl Subscription {
        /// Subscribes to writes in a directory. `None` if it does not exist, or the user's limit of watches
        /// is reached.
        pub(crate) fn new(hub: &Arc<Hub>, dir: &Path) -> Option<Self> {
            let mask = AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_MOVED_TO
                | AddWatchFlags::IN_ONLYDIR;
            // Watches of one directory share a descriptor: the lock keeps another task from removing it in
            // between.
            let mut subscribers = hub.lock();
            let watch = hub.inotify.add_watch(dir, mask).ok()?;
            let changed = Arc::new(Notify::new());
            subscribers.entry(watch).or_default().push(Arc::clone(&changed));
            drop(subscribers);
            Some(Self { hub: Arc::clone(hub), watch, changed })
        }

        pub(crate) async fn changed(&self) {
            self.changed.notified().await;
        }
    }

    impl Drop for Subscription {
        fn drop(&mut self) {
            let mut subscribers = self.hub.lock();
            let Some(others) = subscribers.get_mut(&self.watch) else { return };
            others.retain(|other| !Arc::ptr_eq(other, &self.changed));
            if others.is_empty() {
                subscribers.remove(&self.watch);
                // Fails if the directory is gone, and its watch with it.
                self.hub.inotify.rm_watch(self.watch).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::timeout;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    async fn is_notified(watch: &mut DirWatch) {
        timeout(DEADLINE, watch.changed()).await.expect("the change is noticed");
    }

    #[tokio::test]
    async fn a_write_notifies_every_watch_of_the_directory() {
        let (dir_watcher, dir) = (DirWatcher::default(), tempfile::tempdir().unwrap());
        let (mut one, mut other) = (dir_watcher.watch(dir.path()), dir_watcher.watch(dir.path()));
        fs::write(dir.path().join("file"), "x").unwrap();
        is_notified(&mut one).await;
        is_notified(&mut other).await;
        drop(other);
        // Also if it was written before the call, and when only one watch is left.
        fs::write(dir.path().join("file"), "y").unwrap();
        is_notified(&mut one).await;
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_watch_of_a_quiet_directory_is_never_woken() {
        let (dir_watcher, dir, other) =
            (DirWatcher::default(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut watch = dir_watcher.watch(dir.path());
        fs::write(other.path().join("file"), "x").unwrap();
        assert!(timeout(LONG_PAUSE * 2, watch.changed()).await.is_err(), "it was woken without a change");
        let hub = dir_watcher.hub.get().unwrap().clone().unwrap();
        drop(watch);
        assert!(hub.is_unused(), "the last watch is gone");
    }

    #[tokio::test]
    async fn a_directory_that_is_created_later_is_watched() {
        let (dir_watcher, dir) = (DirWatcher::default(), tempfile::tempdir().unwrap());
        let later = dir.path().join("later");
        let mut watch = dir_watcher.watch(&later);
        is_notified(&mut watch).await;
        fs::create_dir(&later).unwrap();
        // Now it exists, and the caller has to look again.
        is_notified(&mut watch).await;
        fs::write(later.join("file"), "x").unwrap();
        is_notified(&mut watch).await;
    }
}
