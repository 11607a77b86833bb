//! `events`: a part of the journal.

use std::sync::Arc;

use protocol::request::Events;
use protocol::{Reply, Response, Stamped};

use crate::engine::{Daemon, in_doubt};
use crate::host::blocking_pool::Purpose;
use crate::verb::answer_parts::Parts;
use crate::verb::database;

/// Maximum number of events in one answer.
const EVENTS_MAX: u32 = 100_000;

/// Number of events read at a time.
const PAGE: usize = 500;

/// Bytes of events after which a page ends.
const PAGE_BYTES: usize = 1 << 20;

/// Reads page by page outside of the engine, and sends as fast as the client reads.
pub(super) async fn events(daemon: &Arc<Daemon>, asked: Events, parts: Parts<'_>) -> Reply {
    let (mut since, mut left) = (asked.since, asked.limit.clamp(1, EVENTS_MAX) as usize);
    let reader = database::reader(daemon).await?;
    while left > 0 {
        let (reader, page) = (reader.clone(), left.min(PAGE));
        let read = daemon
            .blocking
            .without_timeout(Purpose::DatabaseReads, move || reader.events_page(since, (page, PAGE_BYTES)));
        let (events, _) =
            read.await.map_err(|_| in_doubt())?.map_err(|e| database::read_failed(daemon, &e))?;
        let Some(last) = events.last() else { break };
        (since, left) = (last.seq, left - events.len());
        parts.send(Response::Events(events.into_iter().map(redacted).collect())).await?;
    }
    Ok(Response::Events(Vec::new()))
}

/// Returns an event without its secrets.
pub(crate) fn redacted(mut stamped: Stamped) -> Stamped {
    pool::redaction::event(&mut stamped.event);
    stamped
}
