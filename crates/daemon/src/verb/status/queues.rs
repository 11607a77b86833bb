//! Problems of queues: health means that messages progress, not that a process is up.

use pool::queue::{self, Unclaimed};
use protocol::MessageState;

use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::verb::attention::has_worker;

/// Returns the problems, each a sentence with what to do. `free_disk` is sampled, in bytes.
pub(super) fn problems(
    turn: &Turn<'_>,
    daemon: &Daemon,
    (quarantined, free_disk): (u64, Option<u64>),
) -> Vec<String> {
    let mut problems = Vec::new();
    if quarantined > 0 {
        problems.push(format!("{quarantined} damaged records were put aside: `poolctl check` lists them"));
    }
    let least = daemon.loaded().daemon.queue_min_free_disk;
    if let Some(free) = free_disk.filter(|free| *free < least) {
        let (free, least) = (free >> 20, least >> 20);
        problems.push(format!(
            "the disk has {free} MiB left, {least} are kept: new messages are refused until there is room"
        ));
    }
    let revoking = turn.pool().held_messages().filter(|m| m.state == MessageState::Revoking).count();
    if revoking > 0 {
        problems.push(format!(
            "{revoking} messages wait for the end of a worker that was silent for too long: \
             `poolctl generators`"
        ));
    }
    problems.extend(unclaimed(turn));
    problems
}

/// Returns the kinds of messages that wait and have no worker.
fn unclaimed(turn: &Turn<'_>) -> Vec<String> {
    let found = queue::unclaimed(turn.pool(), |session, kind| has_worker(turn, session, kind), turn.now());
    let sentence = |found: Unclaimed<'_>| {
        let (text, next) = found.describe(turn.age(found.oldest));
        format!("{text}: `{next}`")
    };
    let mut found: Vec<Unclaimed<'_>> = found.collect();
    found.sort_by_key(|found| (&found.session.name, found.kind));
    found.into_iter().map(sentence).collect()
}
