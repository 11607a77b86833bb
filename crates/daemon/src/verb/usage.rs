//! Measuring the resource usage of sessions, for `stats` and `show`.

use std::time::Duration;

use protocol::{Session, Usage};
use tokio::time::Instant;
use world::processes::Processes;

use crate::host::disk_usage::disk_usage;
use crate::sense::usage;

/// Time for counting the files of one directory; files counted by then are the result.
const DISK_LIMIT: Duration = Duration::from_millis(500);

/// Returns the current usage of each session: only that of the disk if it does not run.
pub(super) fn measure(processes: &dyn Processes, sessions: &[Session]) -> Vec<Usage> {
    let with_disk = |(session, usage): (&Session, Option<Usage>)| {
        let dir = session.dir.as_path();
        Usage {
            disk: disk_usage(dir, Instant::now() + DISK_LIMIT),
            log: disk_usage(&dir.join("logs"), Instant::now() + DISK_LIMIT),
            ..usage.unwrap_or_default()
        }
    };
    sessions.iter().zip(usage::of_sessions(processes, sessions)).map(with_disk).collect()
}
