//! Measuring the resource usage of sessions, for `stats` and `show`.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Session, Usage};
use tokio::time::Instant;

use crate::engine::Daemon;
use crate::host::blocking_pool::Purpose;
use crate::host::disk_usage::disk_usage;
use crate::sense::usage;

/// Time for counting the files of one directory; without a result if it takes longer.
const DISK_LIMIT: Duration = Duration::from_millis(500);

/// Time for both directories of a session: one that hangs costs its own figures.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Time for the directories of all sessions together.
const TOTAL_LIMIT: Duration = Duration::from_secs(6);

/// Returns the current usage of each session: only that of the disk if it does not run. `None` if the process table
/// does not answer.
pub(super) async fn measure(daemon: &Daemon, sessions: &Arc<[Session]>) -> Option<Vec<Usage>> {
    let (processes, measured) = (daemon.processes(), Arc::clone(sessions));
    let look = move || usage::of_sessions(&*processes, &measured);
    let of_processes = daemon.blocking.with_timeout(Purpose::Processes, look).await?;
    let (mut all, until) = (Vec::with_capacity(of_processes.len()), Instant::now() + TOTAL_LIMIT);
    for (session, usage) in sessions.iter().zip(of_processes) {
        let dir = session.dir.clone();
        let count = move || {
            let usage = |dir: &std::path::Path| disk_usage(dir, Instant::now() + DISK_LIMIT);
            (usage(dir.as_path()), usage(&dir.as_path().join("logs")))
        };
        let place = (Purpose::DiskUsage, session.dir.as_path());
        let limit = ANSWER_LIMIT.min(until.saturating_duration_since(Instant::now()));
        let (disk, log) = daemon.blocking.one_at_a_time(place, limit, count).await.unwrap_or_default();
        all.push(Usage { disk, log, ..usage.unwrap_or_default() });
    }
    Some(all)
}
