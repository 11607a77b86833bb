//! Blocking work on threads, with a limit for each purpose: a file system or process table that does not
//! answer blocks only the work of its own purpose.

use std::io;
use std::time::Duration;

use protocol::{ErrorCode, Refusal};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Time after which a file system counts as dead.
const WORK_LIMIT: Duration = Duration::from_secs(10);

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
}

/// Maximum concurrent threads of each purpose, in the order of [`Purpose`].
static PERMITS: [Semaphore; 10] = [
    Semaphore::const_new(2),  // Theme
    Semaphore::const_new(8),  // UserDirs
    Semaphore::const_new(16), // Logs
    Semaphore::const_new(8),  // HookSpool
    Semaphore::const_new(8),  // Launch
    Semaphore::const_new(16), // Processes
    Semaphore::const_new(4),  // Housekeeping
    Semaphore::const_new(32), // DatabaseReads
    Semaphore::const_new(4),  // Removal
    Semaphore::const_new(2),  // DatabaseCopies
];

impl Purpose {
    async fn permit(self) -> Option<SemaphorePermit<'static>> {
        let permits = &PERMITS[self as usize];
        match self {
            // No wait for a mere decoration, nor behind work that takes minutes.
            Self::Theme | Self::DatabaseCopies => permits.try_acquire().ok(),
            _ => timeout(PERMIT_LIMIT, permits.acquire()).await.ok()?.ok(),
        }
    }
}

/// Runs `work` on a thread of the purpose, for at most [`WORK_LIMIT`]. `None` if it did not finish in time,
/// or no thread came free.
pub(crate) async fn with_timeout<T: Send + 'static>(
    purpose: Purpose,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    timeout(WORK_LIMIT, without_timeout(purpose, work)).await.ok()?.ok()
}

/// Runs `work` on a thread of the purpose, however long it takes.
///
/// # Errors
/// `WouldBlock`: all threads of the purpose are busy.
pub(crate) async fn without_timeout<T: Send + 'static>(
    purpose: Purpose,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let busy = || {
        io::Error::new(
            io::ErrorKind::WouldBlock,
            "too many operations of this kind are in progress; try again later",
        )
    };
    let permit = purpose.permit().await.ok_or_else(busy)?;
    // The thread keeps its permit until it is done, even if the caller has given up.
    let work = move || {
        let _permit = permit;
        work()
    };
    spawn_blocking(work).await.map_err(io::Error::other)
}

/// Returns the refusal for a request for which no thread was free.
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
                tokio::spawn(with_timeout(Purpose::Theme, work))
            })
            .collect();
        while PERMITS[Purpose::Theme as usize].available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(with_timeout(Purpose::Theme, || 1).await, None, "at once");
        assert_eq!(with_timeout(Purpose::HookSpool, || 2).await, Some(2));
        drop(stuck);
        for one in hung {
            one.await.unwrap();
        }
        assert_eq!(with_timeout(Purpose::Theme, || 3).await, Some(3));
    }
}
