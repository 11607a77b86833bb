//! What is wrong with queues: health is that they go on, not that a process is up.

use pool::queue;
use pool::queue::Unclaimed;
use protocol::{MessageState, SessionId};

use crate::engine::Turn;
use crate::engine::context::Daemon;

/// Each a sentence with what to do.
pub(super) fn problems(turn: &Turn<'_>, daemon: &Daemon, quarantined: u64) -> Vec<String> {
    let mut problems = Vec::new();
    if quarantined > 0 {
        problems.push(format!("{quarantined} damaged records were put aside: `poolctl check` lists them"));
    }
    let least = daemon.loaded().min_free_disk;
    if let Some(free) = process::inspect::machine::free_disk(&daemon.paths.state).filter(|free| *free < least)
    {
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
    let found = queue::unclaimed(turn.pool(), |session, kind| is_worked(turn, session, kind), turn.now());
    let sentence = |found: Unclaimed<'_>| {
        let (text, next) = found.told(turn.age(found.oldest));
        format!("{text}: `{next}`")
    };
    let mut found: Vec<Unclaimed<'_>> = found.collect();
    found.sort_by_key(|found| (&found.session.name, found.kind));
    found.into_iter().map(sentence).collect()
}

/// Whether a worker is registered for a kind of a session's messages.
pub(super) fn is_worked(turn: &Turn<'_>, session: SessionId, kind: &str) -> bool {
    let registered = turn.volatile.workers.iter().filter_map(|(_, worker)| worker.registration.as_ref());
    let takes = |kinds: &[String]| kinds.is_empty() || kinds.iter().any(|taken| taken == kind);
    registered.filter(|worker| worker.session == session).any(|worker| takes(&worker.kinds))
}
