//! Work that a file system or the process table may hold up, on threads of their own: so many for each purpose, so that
//! one that does not answer stops nothing else.

use std::io;
use std::time::Duration;

use protocol::{ErrorCode, Refusal};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// How long a file system may take before it counts as dead.
const FILE_LIMIT: Duration = Duration::from_secs(10);

/// How long a thread for the purpose may take to come free.
const PLACE_LIMIT: Duration = Duration::from_secs(1);

/// What a thread is for. The sum of all is below the number of threads that the runtime starts at most (512), with 64 for
/// [`crate::loops::activity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Colours of a repository: only to be shown, from any directory that a program is in.
    Theme,
    /// Directories that users name.
    Places,
    /// Logs of sessions.
    Logs,
    /// What hooks left in files.
    Spool,
    /// Files of an incarnation that is to begin, and last screens.
    Launch,
    /// What processes use, read and listen to.
    Processes,
    /// What is looked at now and then, of the pool's own files.
    House,
    /// Reading the database.
    Reads,
    /// Removing and archiving directories.
    Removal,
    /// Exports, backups and checks: each holds a snapshot of the database.
    Copies,
}

/// Threads at the same time, in the order of the purposes.
static PLACES: [Semaphore; 10] = [
    Semaphore::const_new(2),  // Theme
    Semaphore::const_new(8),  // Places
    Semaphore::const_new(16), // Logs
    Semaphore::const_new(8),  // Spool
    Semaphore::const_new(8),  // Launch
    Semaphore::const_new(16), // Processes
    Semaphore::const_new(4),  // House
    Semaphore::const_new(32), // Reads
    Semaphore::const_new(4),  // Removal
    Semaphore::const_new(2),  // Copies
];

impl Purpose {
    async fn place(self) -> Option<SemaphorePermit<'static>> {
        let places = &PLACES[self as usize];
        match self {
            // Nobody waits for what is only nice to have, nor for what takes minutes.
            Self::Theme | Self::Copies => places.try_acquire().ok(),
            _ => timeout(PLACE_LIMIT, places.acquire()).await.ok()?.ok(),
        }
    }
}

/// Does this on a thread of its purpose. `None` where the file system does not answer, or all threads of this purpose
/// wait for one that does not.
pub(crate) async fn limited<T: Send + 'static>(
    purpose: Purpose,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    timeout(FILE_LIMIT, unlimited(purpose, work)).await.ok()?.ok()
}

/// The same, however long it takes.
///
/// # Errors
/// All threads of this purpose are taken.
pub(crate) async fn unlimited<T: Send + 'static>(
    purpose: Purpose,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let busy = || io::Error::new(io::ErrorKind::WouldBlock, "too much of that is under way; try again later");
    let place = purpose.place().await.ok_or_else(busy)?;
    // The thread has its place until it is done, also when nobody waits for it any more.
    let work = move || {
        let _place = place;
        work()
    };
    spawn_blocking(work).await.map_err(io::Error::other)
}

/// What a client is told where no thread was free.
pub(crate) fn refusal(error: io::Error) -> Refusal {
    Refusal::new(ErrorCode::Refused, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn threads_that_hang_stop_their_own_purpose_only() {
        let (stuck, wait): (mpsc::Sender<()>, _) = mpsc::channel();
        let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
        let hung: Vec<_> = (0..2)
            .map(|_| {
                let wait = std::sync::Arc::clone(&wait);
                let work = move || drop(wait.lock().map(|wait| wait.recv()));
                tokio::spawn(limited(Purpose::Theme, work))
            })
            .collect();
        while PLACES[Purpose::Theme as usize].available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(limited(Purpose::Theme, || 1).await, None, "at once");
        assert_eq!(limited(Purpose::Spool, || 2).await, Some(2));
        drop(stuck);
        for one in hung {
            one.await.unwrap();
        }
        assert_eq!(limited(Purpose::Theme, || 3).await, Some(3));
    }
}
