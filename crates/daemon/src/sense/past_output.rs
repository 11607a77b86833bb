//! The time of each session's last output before this start of the daemon. No event records it: it is the time of the
//! log's last write.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{Lifecycle, Reason, Refusal, Session, SessionId, Timestamp};

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::files;

/// Notes the time of the last output of each session whose record may lack it. A later sample takes precedence.
pub(crate) async fn note(daemon: Arc<Daemon>) -> Result<(), Refusal> {
    let context = Arc::clone(&daemon);
    let logs = daemon.engine.turn(move |turn| logs(turn, &context)).await?;
    let now = daemon.world.clock.now();
    let look = move || {
        let written = |(session, log): (SessionId, PathBuf)| Some((session, last_output(&log, now)?));
        logs.into_iter().filter_map(written).collect::<Vec<_>>()
    };
    let found = daemon.blocking.with_timeout(Purpose::Logs, look).await.unwrap_or_default();
    let note = move |turn: &mut Turn<'_>| {
        for (session, at) in found {
            if turn.volatile.agents.output_at(session).is_none() {
                turn.volatile.agents.note_output(session, at);
            }
        }
    };
    daemon.engine.turn(note).await
}

fn logs(turn: &Turn<'_>, daemon: &Daemon) -> Vec<(SessionId, PathBuf)> {
    let log = |id| daemon.paths.logs_of(id).join(protocol::logs::CURRENT);
    let sessions = turn.pool().sessions().filter(|session| may_lack_output(session));
    sessions.map(|session| (session.id, log(session.id))).collect()
}

/// True if a session's last recorded activity may be older than its last output. Any other end of a session is recorded
/// as an activity.
fn may_lack_output(session: &Session) -> bool {
    let is_hung_up =
        session.reason == Some(Reason::Exited) && session.exit.is_some_and(|exit| exit.is_hangup());
    session.lifecycle.holds_slot() || session.lifecycle == Lifecycle::Lost || is_hung_up
}

/// Returns the time of the last output in a log; `None` if the log is still empty, as that of a session just adopted.
fn last_output(log: &Path, now: Timestamp) -> Option<Timestamp> {
    files::last_written(log, now).filter(|_| files::has_output(log))
}
