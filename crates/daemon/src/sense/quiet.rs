//! Silence of running programs: their logs tell when they last wrote.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use protocol::{Lifecycle, Refusal, SessionId, Timestamp};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking::Purpose;
use crate::host::{blocking, clock};

/// A running session: its log, and the start of its incarnation.
struct Subject {
    session: SessionId,
    log: PathBuf,
    started_at: Timestamp,
}

/// Samples since when running programs have written nothing, unless that was done a moment ago. Logs that do not answer, or are
/// not there, tell nothing: their programs count as writing.
///
/// # Errors
/// The engine has stopped.
pub(crate) async fn refresh(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    let context = Arc::clone(daemon);
    let Some(subjects) = daemon.engine.turn(move |turn| subjects(turn, &context)).await? else {
        return Ok(());
    };
    let look = move || subjects.into_iter().filter_map(written).collect::<Vec<_>>();
    let found = blocking::limited(Purpose::Logs, look).await.unwrap_or_default();
    let note = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        let latest =
            |(session, times): (SessionId, [Timestamp; 2])| (session, turn.pool().latest(now, times));
        let quiet: BTreeMap<SessionId, Timestamp> = found.into_iter().map(latest).collect();
        turn.volatile.scheduler.note_quiet(quiet, now);
    };
    daemon.engine.turn(note).await
}

/// All running sessions; none where the last sample is fresh.
fn subjects(turn: &Turn<'_>, daemon: &Daemon) -> Option<Vec<Subject>> {
    if turn.volatile.scheduler.is_quiet_fresh(turn.now()) {
        return None;
    }
    let running =
        turn.pool().sessions().filter(|s| matches!(s.lifecycle, Lifecycle::Live | Lifecycle::Draining));
    let subject = |session: &protocol::Session| {
        let log = daemon.paths.session(session.id).join("logs").join(protocol::logs::CURRENT);
        let started_at = session.incarnation.as_ref()?.started_at;
        Some(Subject { session: session.id, log, started_at })
    };
    Some(running.filter_map(subject).collect())
}

fn written(subject: Subject) -> Option<(SessionId, [Timestamp; 2])> {
    let modified = std::fs::metadata(subject.log).and_then(|found| found.modified()).ok()?;
    Some((subject.session, [clock::timestamp(modified), subject.started_at]))
}
