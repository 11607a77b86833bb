//! Problems of queues: health means that messages progress, not that a process is up.

use protocol::{MessageState, StuckLane};

use crate::engine::{Daemon, Turn};

/// Returns the problems, each a sentence with what to do. `free_disk` is sampled, in bytes.
pub(super) fn problems(
    turn: &Turn<'_>,
    daemon: &Daemon,
    stuck: &[StuckLane],
    (quarantined, free_disk): (u64, Option<u64>),
) -> Vec<String> {
    let mut problems = Vec::new();
    if quarantined > 0 {
        let were = if quarantined == 1 { "record was" } else { "records were" };
        problems.push(format!("{quarantined} damaged {were} quarantined: `poolctl check` lists them"));
    }
    let least = daemon.loaded().daemon.queue_min_free_disk;
    if let Some(free) = free_disk.filter(|free| *free < least) {
        let (free, least) = (free >> 20, least >> 20);
        problems.push(format!(
            "new messages are refused: the disk has {free} MiB left, and [queue] min_free_disk keeps {least}: \
             make room there"
        ));
    }
    let revoking = turn.pool().held_messages().filter(|m| m.state == MessageState::Revoking).count();
    if revoking > 0 {
        let wait = if revoking == 1 { "message waits" } else { "messages wait" };
        problems.push(format!(
            "{revoking} {wait} for the proof that a worker that was silent for too long is gone: \
             `poolctl reap --dry-run`"
        ));
    }
    problems.extend(stuck.iter().map(|lane| {
        let standstill = &lane.standstill;
        let next = standstill.reason.next_command(&lane.name.for_people(), &lane.kind);
        format!("{}: `{next}`", lane.describe(turn.age(standstill.since)))
    }));
    problems
}
