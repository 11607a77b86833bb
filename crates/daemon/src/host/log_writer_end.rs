//! Waiting for the end of a session's log writer, which may never come: by short looks, so that no thread sleeps for
//! it.

use std::path::Path;
use std::time::Duration;

use protocol::Tag;
use tokio::time::{Instant, sleep};

use crate::host::blocking_pool::{BlockingPool, Purpose};

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until the log writer of an incarnation is done, up to a limit. Returns `None` if the file system does not
/// answer.
pub(crate) async fn wait(blocking: &BlockingPool, dir: &Path, run: Option<Tag>) -> Option<()> {
    let began = Instant::now();
    loop {
        let (dir, waited) = (dir.to_owned(), began.elapsed());
        let is_awaited = move || logs::should_wait(&dir, run, waited);
        if !blocking.with_timeout(Purpose::Logs, is_awaited).await? {
            return Some(());
        }
        sleep(PAUSE).await;
    }
}
