//! `compact`: returns unused space of the database to the file system.

use std::sync::Arc;
use std::time::Duration;

use protocol::{Refusal, Reply, Response};
use tokio::sync::oneshot;

use crate::engine::{Daemon, in_doubt};
use crate::verb::database;

/// Maximum duration of a compaction, beside a second for each `BYTES_PER_SECOND` of the database.
const BASE_LIMIT: Duration = Duration::from_secs(60);
const BYTES_PER_SECOND: u64 = 2 << 20;

/// Compacts the database, one compaction after the other, also if the client leaves.
pub(super) async fn compact(daemon: &Arc<Daemon>) -> Reply {
    let context = Arc::clone(daemon);
    let work = async move {
        let _turn = context.compaction.lock().await;
        compact_now(&context).await
    };
    daemon.world.detach("compact", work).await.ok_or_else(in_doubt)?
}

/// Has the engine compact the database after a turn. Nothing else is answered meanwhile; `poolctl up` and the watchdog
/// are told how long it may take.
async fn compact_now(daemon: &Arc<Daemon>) -> Reply {
    let bytes = std::fs::metadata(&daemon.paths.database).map_or(0, |found| found.len());
    // The database is written to a new place before it shrinks. If that fails for lack of space, it cannot be opened
    // again.
    if let Some(free) = daemon.disk.reserve(0).filter(|free| *free < bytes) {
        let (free, bytes) = (free >> 20, bytes.div_ceil(1 << 20));
        return Err(Refusal::refused(format!(
            "compacting needs as much room as the database takes, {bytes} MiB, and its disk has {free} MiB left"
        )));
    }
    let limit = BASE_LIMIT + Duration::from_secs(bytes / BYTES_PER_SECOND);
    let notice = daemon.paths.run.join("compacting");
    // Measured in time awake, so that neither sleep nor a step of the clock ends it early.
    let until = protocol::time::millis(daemon.world.clock.awake() + limit);
    // Only a hint for `poolctl up`.
    drop(std::fs::write(&notice, format!("{} {until}\n", std::process::id())));
    daemon.engine.set_long_work(Some(limit));
    let result = run(daemon).await;
    daemon.engine.set_long_work(None);
    drop(std::fs::remove_file(notice));
    let (before, after) = result?;
    Ok(Response::Compacted { before, after })
}

/// Returns the size before and after, in bytes.
async fn run(daemon: &Arc<Daemon>) -> Result<(u64, u64), Refusal> {
    let (answer, answered) = oneshot::channel();
    daemon.engine.turn(move |turn| turn.compact(answer)).await?;
    answered.await.map_err(|_| in_doubt())?.map_err(|error| database::refusal(&error))
}
