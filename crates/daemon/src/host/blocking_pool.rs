//! Blocking work on threads, with a limit for each purpose: a file system or process table that does not
//! answer blocks only the work of its own purpose.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use world::World;

/// Time after which a file system counts as dead.
pub(crate) const WORK_LIMIT: Duration = Duration::from_secs(10);

/// Maximum wait for a free thread of the purpose.
const PERMIT_LIMIT: Duration = Duration::from_secs(1);

/// The purpose of a blocking thread. The sum of all limits, with the 64 threads of [`crate::sense::sampler`],
/// stays below the number of blocking threads that the runtime starts (512).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Colours of a repository, in whatever directory a program is. Only for display.
    Theme,
    /// Directories that users name.
    UserDirs,
    /// Sizes of directories, for people.
    DiskUsage,
    /// The same for the limits of sessions.
    DiskLimits,
    /// Logs of sessions.
    Logs,
    /// Reports that hooks spooled in files.
    HookSpool,
    /// Files of an incarnation about to start, and last screens.
    Launch,
    /// The process table: resource use, terminals, sockets.
    Processes,
    /// Periodic checks of the pool's own files.
    Housekeeping,
    /// Reads of the database.
    DatabaseReads,
    /// Removal and archiving of directories.
    Removal,
    /// Exports, backups and checks: each holds a snapshot of the database.
    DatabaseCopies,
    /// The files of an orderly end.
    Stop,
}

/// Maximum concurrent threads of each purpose, in the order of [`Purpose`].
const THREADS: [usize; 13] = [
    2,  // Theme
    8,  // UserDirs
    4,  // DiskUsage
    4,  // DiskLimits
    16, // Logs
    8,  // HookSpool
    8,  // Launch
    16, // Processes
    4,  // Housekeeping
    32, // DatabaseReads
    4,  // Removal
    2,  // DatabaseCopies
    2,  // Stop
];

/// The place for work on a path, by the number of its purpose and the path.
type Places = BTreeMap<(usize, PathBuf), Arc<Semaphore>>;

/// Runs blocking work on threads.
#[derive(Clone)]
pub(crate) struct BlockingPool {
    world: World,
    permits: [Arc<Semaphore>; THREADS.len()],
    places: Arc<Mutex<Places>>,
}

impl BlockingPool {
    pub(crate) fn new(world: World) -> Self {
        Self {
            world,
            permits: THREADS.map(|threads| Arc::new(Semaphore::new(threads))),
            places: Arc::default(),
        }
    }

    /// Runs `work` on a thread of the purpose, for at most [`WORK_LIMIT`]. `None` if it did not finish in
    /// time, or no thread came free.
    pub(crate) async fn with_timeout<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        timeout(WORK_LIMIT, self.without_timeout(purpose, work)).await.ok()?.ok()
    }

    /// Runs `work` on a thread of the purpose, however long it takes.
    ///
    /// # Errors
    /// `WouldBlock`: all threads of the purpose are busy.
    pub(crate) async fn without_timeout<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let busy = || {
            io::Error::new(
                io::ErrorKind::WouldBlock,
                "too many operations of this kind are in progress; try again later",
            )
        };
        let permit = self.permit(purpose).await.ok_or_else(busy)?;
        // The thread keeps its permit until it is done, even if the caller has given up.
        let work = move || {
            let _permit = permit;
            work()
        };
        self.world.block(work).await
    }

    /// Runs `work` on this path for at most `limit`, after earlier work of the same purpose on the path. So a path
    /// that does not answer takes one thread, however many requests there are for it. `None` in the same cases as
    /// [`Self::with_timeout`].
    pub(crate) async fn one_at_a_time<T: Send + 'static>(
        &self,
        (purpose, path): (Purpose, &Path),
        limit: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = self.place(purpose, path);
        let work = async {
            let place = place.acquire_owned().await.ok()?;
            let work = move || {
                let _place = place;
                work()
            };
            self.without_timeout(purpose, work).await.ok()
        };
        timeout(limit, work).await.ok()?
    }

    /// Returns the semaphore for work of the purpose on a path, and drops those that nobody uses or waits for.
    fn place(&self, purpose: Purpose, path: &Path) -> Arc<Semaphore> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, place| Arc::strong_count(place) > 1);
        let place = places.entry((purpose as usize, path.to_owned()));
        Arc::clone(place.or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    async fn permit(&self, purpose: Purpose) -> Option<OwnedSemaphorePermit> {
        let permits = Arc::clone(&self.permits[purpose as usize]);
        match purpose {
            // Colours are not worth a wait, and copies of the database take minutes.
            Purpose::Theme | Purpose::DatabaseCopies => permits.try_acquire_owned().ok(),
            _ => timeout(PERMIT_LIMIT, permits.acquire_owned()).await.ok()?.ok(),
        }
    }
}

/// Returns the refusal for a request for which no thread was free.
pub(crate) fn refusal(error: io::Error) -> Refusal {
    Refusal::refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_path_that_hangs_takes_one_thread_and_others_are_answered() {
        let pool = BlockingPool::new(World::system());
        let (release, wait) = mpsc::channel::<()>();
        let hang = move || wait.recv().is_ok();
        let (hung, good) = (Path::new("/hung"), Path::new("/good"));
        let soon = Duration::from_millis(20);
        assert!(pool.one_at_a_time((Purpose::Theme, hung), soon, hang).await.is_none());
        for _ in 0..5 {
            assert!(pool.one_at_a_time((Purpose::Theme, hung), soon, || ()).await.is_none());
        }
        assert!(pool.one_at_a_time((Purpose::Theme, good), WORK_LIMIT, || ()).await.is_some());
        drop(release);
        assert!(pool.one_at_a_time((Purpose::Theme, hung), WORK_LIMIT, || ()).await.is_some());
        assert_eq!(pool.places.lock().unwrap().len(), 1, "the last one");
    }

    #[tokio::test]
    async fn threads_that_hang_stop_their_own_purpose_only() {
        let pool = BlockingPool::new(World::system());
        let (stuck, wait): (mpsc::Sender<()>, _) = mpsc::channel();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let hung: Vec<_> = (0..2)
            .map(|_| {
                let wait = std::sync::Arc::clone(&wait);
                let work = move || drop(wait.lock().map(|wait| wait.recv()));
                let pool = pool.clone();
                tokio::spawn(async move { pool.with_timeout(Purpose::Theme, work).await })
            })
            .collect();
        while pool.permits[Purpose::Theme as usize].available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.with_timeout(Purpose::Theme, || 1).await, None, "at once");
        assert_eq!(pool.with_timeout(Purpose::HookSpool, || 2).await, Some(2));
        drop(stuck);
        for one in hung {
            one.await.unwrap();
        }
        assert_eq!(pool.with_timeout(Purpose::Theme, || 3).await, Some(3));
    }
}
