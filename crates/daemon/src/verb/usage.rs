//! Measuring the resource usage of a session, for `stats` and `show`.

use std::time::{Duration, Instant};

use process::tree::Table;
use protocol::Session;
use protocol::usage::Usage;

use crate::host::disk_usage::disk_usage;
use crate::sense::usage;

/// Time for counting the files of one directory; files counted by then are the result.
const DISK_LIMIT: Duration = Duration::from_millis(500);

/// Returns the current usage of a session: only that of the disk if it does not run.
pub(super) fn measure(session: &Session) -> Usage {
    measure_in(Table::read().ok().as_ref(), session)
}

/// Returns the current usage of a session, its processes as in `table`.
pub(super) fn measure_in(table: Option<&Table>, session: &Session) -> Usage {
    let dir = session.dir.as_path();
    Usage {
        disk: disk_usage(dir, Instant::now() + DISK_LIMIT),
        log: disk_usage(&dir.join("logs"), Instant::now() + DISK_LIMIT),
        ..table.and_then(|table| usage::usage_in(table, session)).unwrap_or_default()
    }
}
