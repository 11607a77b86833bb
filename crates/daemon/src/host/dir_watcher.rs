//! Who wants to hear when something is written in a directory. On Linux the kernel tells, over one descriptor for all;
//! elsewhere, and where it cannot, whoever listens looks again after a while.

use std::path::Path;
use std::time::Duration;

/// Pauses between two looks where nobody tells: short after something came, longer while nothing does.
const SHORT_PAUSE: Duration = Duration::from_millis(20);

const LONG_PAUSE: Duration = Duration::from_millis(200);

/// Hears for whoever listens.
#[derive(Default)]
pub(crate) struct Ears {
    #[cfg(target_os = "linux")]
    hub: std::sync::OnceLock<Option<std::sync::Arc<linux::Hub>>>,
}

impl Ears {
    /// Listens to what is written in this directory, which need not be there yet.
    pub(crate) fn listen(
        &self,
        #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "nobody tells of it there"))]
        dir: &Path,
    ) -> Ear {
        #[cfg(target_os = "linux")]
        let hub = self.hub.get_or_init(linux::Hub::start).clone();
        let mut ear = Ear {
            pause: SHORT_PAUSE,
            #[cfg(target_os = "linux")]
            dir: dir.to_owned(),
            #[cfg(target_os = "linux")]
            hub,
            #[cfg(target_os = "linux")]
            told: None,
        };
        ear.attach();
        ear
    }
}

/// Somebody who listens to a directory, until this is dropped.
pub(crate) struct Ear {
    /// How long the next look is put off where nobody tells.
    pause: Duration,
    #[cfg(target_os = "linux")]
    dir: std::path::PathBuf,
    #[cfg(target_os = "linux")]
    hub: Option<std::sync::Arc<linux::Hub>>,
    #[cfg(target_os = "linux")]
    told: Option<linux::Told>,
}

impl Ear {
    /// Until there may be something new. What is written after it was found to be nothing is never missed.
    pub(crate) async fn hear(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(told) = &self.told {
            return told.hear().await;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONG_PAUSE);
        self.attach();
    }

    /// There was something new.
    pub(crate) fn heard(&mut self) {
        self.pause = SHORT_PAUSE;
    }

    fn attach(&mut self) {
        #[cfg(target_os = "linux")]
        {
            self.told = self.hub.as_ref().and_then(|hub| linux::Told::by(hub, &self.dir));
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

    /// Those who listen, by the kernel's number of their directory.
    type Listeners = HashMap<WatchDescriptor, Vec<Arc<Notify>>>;

    /// The kernel's end.
    pub(crate) struct Hub {
        inotify: Inotify,
        listeners: Mutex<Listeners>,
    }

    impl Hub {
        /// `None` where the kernel has none left for this user.
        pub(crate) fn start() -> Option<Arc<Self>> {
            let open = || {
                let hub = Arc::new(Self {
                    inotify: Inotify::init(InitFlags::IN_CLOEXEC)?,
                    listeners: Mutex::default(),
                });
                let run = Arc::clone(&hub);
                std::thread::Builder::new().name("ears".to_owned()).spawn(move || run.tell())?;
                io::Result::Ok(hub)
            };
            open().inspect_err(|error| tracing::warn!(%error, "logs are looked at now and then")).ok()
        }

        /// Tells for ever: this thread sleeps in the kernel while nothing happens.
        fn tell(&self) {
            loop {
                match self.inotify.read_events() {
                    Ok(events) => events.iter().for_each(|event| self.pass_on(event)),
                    Err(Errno::EINTR) => {}
                    // There is no other reason: the descriptor is as it must be.
                    Err(error) => return tracing::error!(%error, "what is written to logs is not told"),
                }
            }
        }

        fn pass_on(&self, event: &InotifyEvent) {
            if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                return self.tell_all();
            }
            let listeners = self.lock();
            listeners.get(&event.wd).into_iter().flatten().for_each(|listener| listener.notify_one());
        }

        fn tell_all(&self) {
            self.lock().values().flatten().for_each(|listener| listener.notify_one());
        }

        #[cfg(test)]
        pub(crate) fn is_quiet(&self) -> bool {
            self.lock().is_empty()
        }

        fn lock(&self) -> MutexGuard<'_, Listeners> {
            // Nothing panics while it is held.
            self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Somebody who is told.
    pub(crate) struct Told {
        hub: Arc<Hub>,
        watch: WatchDescriptor,
        news: Arc<Notify>,
    }

    impl Told {
        /// `None` where there is no such directory, or the kernel has no place left.
        pub(crate) fn by(hub: &Arc<Hub>, dir: &Path) -> Option<Self> {
            let what = AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_MOVED_TO
                | AddWatchFlags::IN_ONLYDIR;
            // The same number for the same directory: nobody may let go of it in between.
            let mut listeners = hub.lock();
            let watch = hub.inotify.add_watch(dir, what).ok()?;
            let news = Arc::new(Notify::new());
            listeners.entry(watch).or_default().push(Arc::clone(&news));
            drop(listeners);
            Some(Self { hub: Arc::clone(hub), watch, news })
        }

        pub(crate) async fn hear(&self) {
            self.news.notified().await;
        }
    }

    impl Drop for Told {
        fn drop(&mut self) {
            let mut listeners = self.hub.lock();
            let Some(others) = listeners.get_mut(&self.watch) else { return };
            others.retain(|other| !Arc::ptr_eq(other, &self.news));
            if others.is_empty() {
                listeners.remove(&self.watch);
                // It is gone already where the directory is.
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

    async fn hears(ear: &mut Ear) {
        timeout(DEADLINE, ear.hear()).await.expect("it is heard");
    }

    #[tokio::test]
    async fn what_is_written_is_heard_by_all_who_listen() {
        let (ears, dir) = (Ears::default(), tempfile::tempdir().unwrap());
        let (mut one, mut other) = (ears.listen(dir.path()), ears.listen(dir.path()));
        fs::write(dir.path().join("file"), "x").unwrap();
        hears(&mut one).await;
        hears(&mut other).await;
        drop(other);
        // Also what was written before it was asked, and when only one is left.
        fs::write(dir.path().join("file"), "y").unwrap();
        hears(&mut one).await;
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn silence_costs_nothing() {
        let (ears, dir, other) =
            (Ears::default(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut ear = ears.listen(dir.path());
        fs::write(other.path().join("file"), "x").unwrap();
        assert!(timeout(LONG_PAUSE * 2, ear.hear()).await.is_err(), "it was woken for nothing");
        let hub = ears.hub.get().unwrap().clone().unwrap();
        drop(ear);
        assert!(hub.is_quiet(), "nobody listens any more");
    }

    #[tokio::test]
    async fn a_directory_that_comes_later_is_heard_too() {
        let (ears, dir) = (Ears::default(), tempfile::tempdir().unwrap());
        let later = dir.path().join("later");
        let mut ear = ears.listen(&later);
        hears(&mut ear).await;
        fs::create_dir(&later).unwrap();
        // Now it is there, and whoever looked has to look again.
        hears(&mut ear).await;
        fs::write(later.join("file"), "x").unwrap();
        hears(&mut ear).await;
    }
}
