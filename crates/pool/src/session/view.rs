//! A session as it is shown.

use agents::Confirm;
use protocol::reply::{LockView, TransportHealth, TreeProcess};
use protocol::request::List;
use protocol::{Lifecycle, OsBytes, Session, SessionView, Timestamp, Usage};

use crate::agent::activity::current_activity;
use crate::pool::Pool;
use crate::redaction;

/// Additional inputs to a view.
#[derive(Debug)]
pub struct ViewInputs<'a> {
    /// The present time.
    pub now: Timestamp,
    /// The socket of the tmux server.
    pub tmux_socket: &'a OsBytes,
    /// The name of its tmux session, if it differs.
    pub tmux_name: Option<&'a str>,
    /// Time of the last complete listing, which confirms running sessions.
    pub seen_at: Option<Timestamp>,
    /// Time of its last output.
    pub output_at: Option<Timestamp>,
    /// The holder of its lock.
    pub lock: Option<LockView>,
    /// Working directory of its foreground program.
    pub current_dir: Option<OsBytes>,
    /// The processes, if requested.
    pub processes: Vec<TreeProcess>,
    /// The resource use, if requested.
    pub usage: Option<Usage>,
    /// True if it may be parked for another session.
    pub parkable: bool,
    /// The position among the waiters for a slot, from 1.
    pub slot_wait: Option<u64>,
    /// The reason for which its next prompt is not typed yet.
    pub waits: Option<String>,
    /// The way in which its prompts are confirmed.
    pub confirm: Confirm,
    /// The health of the observation of its pane.
    pub transport_health: TransportHealth,
    /// The patterns of error lines of its kind.
    pub error_patterns: &'a [String],
}

/// Makes the view of a session, without secrets.
pub fn view(pool: &Pool, session: &Session, inputs: ViewInputs<'_>) -> SessionView {
    let confirmed = matches!(session.lifecycle, Lifecycle::Live) && !is_missing(session);
    let mut record = redaction::session(session);
    if confirmed {
        let looks = record.verified_at.into_iter().chain(inputs.seen_at);
        record.verified_at = pool.latest_shown(inputs.now, looks);
    }
    let active = std::iter::once(record.last_activity_at).chain(inputs.output_at);
    record.last_activity_at = pool.latest_shown(inputs.now, active).unwrap_or_default();
    let named = inputs.tmux_name.map(|shown| tmux_name_note(session, shown));
    let notes = [record.detail.take(), lost_conversation_note(pool, session), named];
    record.detail = notes.into_iter().flatten().reduce(|all, note| format!("{all}; {note}"));
    let mut activity = current_activity(pool, session);
    redaction::activity(&mut activity);
    SessionView {
        session: record,
        queue: pool.queue_counts(Some(session.id)),
        tmux_socket: inputs.tmux_socket.clone(),
        lock: inputs.lock,
        current_dir: inputs.current_dir,
        processes: inputs.processes,
        usage: inputs.usage,
        parkable: inputs.parkable,
        slot_wait: inputs.slot_wait,
        activity,
        notes: pool.notes(session.id).cloned().unwrap_or_default(),
        thought: pool.thought(session.id).filter(|thought| thought.updated_at > Timestamp(0)).cloned(),
        waits: inputs.waits,
        confirm: inputs.confirm.as_str().to_owned(),
        theme: None,
        replay: None,
        transport_health: inputs.transport_health,
        plan: None,
        files: Vec::new(),
        error_patterns: inputs.error_patterns.to_vec(),
    }
}

/// The note that tmux has another name for it.
fn tmux_name_note(session: &Session, shown: &str) -> String {
    let (name, shown) = (&session.name, shown.chars().take(80).collect::<String>());
    format!("tmux has it as {shown:?}; `poolctl rename {name} {name}` gives it its own name there")
}

/// The note that its agent began a new conversation because the last one was lost, until a conversation is
/// resumed again.
fn lost_conversation_note(pool: &Pool, session: &Session) -> Option<String> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle == Lifecycle::Live)?;
    let lost = pool.lost_conversation(session.id).filter(|_| !run.resumed)?;
    Some(format!("its agent no longer found conversation {lost} and began a new one (conversation_lost)"))
}

/// True if a session passes a listing's filter.
pub fn matches_filter(session: &Session, filter: &List) -> bool {
    let state = match filter.state {
        Some(state) => session.lifecycle == state,
        None => filter.all || session.lifecycle.holds_slot() || session.lifecycle == Lifecycle::Parked,
    };
    let labels = filter.labels.iter().all(|(key, value)| session.labels.get(key) == Some(value));
    let agent = filter.agent.as_ref().is_none_or(|agent| session.spec.agent == *agent);
    state && labels && agent && session.worker.is_some() == filter.workers
}

fn is_missing(session: &Session) -> bool {
    session.incarnation.as_ref().is_some_and(|i| i.missing_since.is_some())
}

/// The name of a lifecycle state, for people.
pub fn lifecycle_label(lifecycle: Lifecycle) -> &'static str {
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
