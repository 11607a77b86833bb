//! A session as it is shown, without its secrets.

use agents::Confirm;
use protocol::reply::{LockView, SessionView, TreeProcess};
use protocol::request::List;
use protocol::usage::Usage;
use protocol::{Lifecycle, OsBytes, Session, Timestamp, redact};

use crate::activity;
use crate::pool::Pool;
use crate::queue;

/// What the shell knows beside the pool.
#[derive(Debug)]
pub struct Shown<'a> {
    /// Where tmux listens.
    pub tmux_socket: &'a OsBytes,
    /// When the last complete listing was taken, which confirms what runs.
    pub seen_at: Option<Timestamp>,
    /// Who holds the lock.
    pub lock: Option<LockView>,
    /// Working directory of its foreground program.
    pub current_dir: Option<OsBytes>,
    /// Its processes, where they were asked for.
    pub processes: Vec<TreeProcess>,
    /// What they use, likewise.
    pub usage: Option<Usage>,
    /// Whether it may be parked to make room.
    pub parkable: bool,
    /// Its place among those that wait for a slot.
    pub slot_wait: Option<u64>,
    /// Why its next prompt is not typed yet.
    pub waits: Option<String>,
    /// How its prompts are confirmed.
    pub confirm: Confirm,
}

/// A session as it is shown.
#[must_use]
pub fn view(pool: &Pool, session: &Session, shown: Shown<'_>) -> SessionView {
    let confirmed = matches!(session.lifecycle, Lifecycle::Live) && !is_missing(session);
    let mut record = without_secrets(session);
    if confirmed {
        record.verified_at = record.verified_at.max(shown.seen_at);
    }
    record.detail = record.detail.or_else(|| began_anew(pool, session));
    let mut activity = activity::shown(pool, session);
    crate::redacted::activity(&mut activity);
    SessionView {
        session: record,
        queue: queue::counts(pool, Some(session.id)),
        tmux_socket: shown.tmux_socket.clone(),
        lock: shown.lock,
        current_dir: shown.current_dir,
        processes: shown.processes,
        usage: shown.usage,
        parkable: shown.parkable,
        slot_wait: shown.slot_wait,
        activity,
        notes: pool.notes(session.id).cloned().unwrap_or_default(),
        thought: pool.thought(session.id).cloned(),
        waits: shown.waits,
        confirm: shown.confirm.as_str().to_owned(),
        theme: None,
    }
}

/// That its agent is in another conversation than before, where it did not find that one any more: until it is taken up
/// again.
fn began_anew(pool: &Pool, session: &Session) -> Option<String> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle == Lifecycle::Live)?;
    let lost = pool.lost_conversation(session.id).filter(|_| !run.resumed)?;
    Some(format!(
        "its agent did not find conversation {lost} any more, and began a new one (conversation_lost)"
    ))
}

/// The record without the environment, and without keys and passwords in what it runs.
#[must_use]
pub fn without_secrets(session: &Session) -> Session {
    let mut record = session.clone();
    let spec = &mut record.spec;
    spec.env.clear();
    for words in [&mut spec.command, &mut spec.start_args, &mut spec.resume_args] {
        *words = redact::command(words);
    }
    record.labels = redact::labels(&record.labels);
    record
}

/// Whether a listing's filter lets it through.
#[must_use]
pub fn listed(session: &Session, filter: &List) -> bool {
    let state = match filter.state {
        Some(state) => session.lifecycle == state,
        None => filter.all || session.lifecycle.holds_slot() || session.lifecycle == Lifecycle::Parked,
    };
    let labels = filter.labels.iter().all(|(key, value)| session.labels.get(key) == Some(value));
    let agent = filter.agent.as_ref().is_none_or(|agent| session.spec.agent == *agent);
    state && labels && agent
}

fn is_missing(session: &Session) -> bool {
    session.incarnation.as_ref().is_some_and(|i| i.missing_since.is_some())
}

/// The word for a lifecycle, for people.
#[must_use]
pub fn lifecycle_word(lifecycle: Lifecycle) -> &'static str {
    match lifecycle {
        Lifecycle::Starting => "starting",
        Lifecycle::Live => "live",
        Lifecycle::Draining => "ending",
        Lifecycle::Parked => "parked",
        Lifecycle::Stopped => "stopped",
        Lifecycle::Lost => "lost",
        Lifecycle::Failed => "failed",
    }
}
