//! What is wrong with queues: health is that they go on, not that a process is up.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::message::PROMPT;
use protocol::{MessageState, SessionId};

use crate::context::Daemon;
use crate::engine::Turn;

/// A message of a kind that nobody works is a problem after this long.
const UNCLAIMED: Duration = Duration::from_secs(600);

/// Each a sentence with what to do.
pub(super) fn problems(turn: &Turn<'_>, daemon: &Daemon, quarantined: u64) -> Vec<String> {
    let mut problems = Vec::new();
    if quarantined > 0 {
        problems.push(format!("{quarantined} damaged records were put aside: `poolctl check` lists them"));
    }
    let least = daemon.loaded().min_free_disk;
    if let Some(free) = process::machine::free_disk(&daemon.paths.state).filter(|free| *free < least) {
        let (free, least) = (free >> 20, least >> 20);
        problems.push(format!(
            "the disk has {free} MiB left, {least} are kept: new messages are refused until there is room"
        ));
    }
    let revoking = turn.pool().held_messages().filter(|m| m.state == MessageState::Revoking).count();
    if revoking > 0 {
        problems.push(format!(
            "{revoking} messages wait for the end of a worker that was silent for too long: `poolctl generators`"
        ));
    }
    problems.extend(unclaimed(turn));
    problems
}

/// Kinds that wait and that nobody asks for.
fn unclaimed(turn: &Turn<'_>) -> Vec<String> {
    let worked = |session: SessionId, kind: &str| {
        let registered = turn.rest.work.workers().filter_map(|(_, worker)| worker.generator.as_ref());
        registered
            .filter(|r| r.session == session)
            .any(|r| r.kinds.is_empty() || r.kinds.iter().any(|k| k == kind))
    };
    let mut waiting: BTreeMap<(String, String), (u64, Duration)> = BTreeMap::new();
    for session in turn.pool().sessions() {
        for (kind, queued, oldest) in turn.pool().waiting_kinds(session.id) {
            let age = turn.age(oldest);
            if kind != PROMPT && age >= UNCLAIMED && !worked(session.id, kind) {
                waiting.insert((session.name.to_string(), kind.to_owned()), (queued, age));
            }
        }
    }
    let sentence = |((name, kind), (queued, age)): ((String, String), (u64, Duration))| {
        let minutes = age.as_secs() / 60;
        let (messages, wait) = if queued == 1 { ("message", "waits") } else { ("messages", "wait") };
        format!(
            "{queued} {messages} of kind {kind} for {name} {wait} for a worker, the oldest for {minutes} min: `poolctl work {name} --kind {kind} -- …`"
        )
    };
    waiting.into_iter().map(sentence).collect()
}
