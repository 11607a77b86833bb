//! Scans of the machine for orphans: processes with a marker of the pool whose incarnation, claim or daemon
//! has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use pool::reap::{self, OrphanClient, OrphanProcess, Orphans};
use process::tree::marker_scan::{MarkedProcess, Marker, MarkerScanner};
use protocol::paths::is_same;
use protocol::tmux::Server;
use protocol::{Event, OsBytes, ProcId, Tag};
use tokio::time::sleep;

use world::processes::Processes;

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;

/// Time between two scans, in intervals of the reaper's rules. A process that a scan suspects for the first time is
/// examined again after one interval.
const SCAN_INTERVALS: u32 = 6;

/// Maximum number of generations followed from a process to its ancestors.
const GENERATIONS_MAX: u32 = 64;

/// Scans until the daemon ends.
pub(crate) async fn run(daemon: &Arc<Daemon>) {
    let mut scanner = MarkerScanner::default();
    let mut before = BTreeSet::new();
    let mut intervals = SCAN_INTERVALS;
    loop {
        sleep(daemon.loaded().daemon.reap_interval * intervals).await;
        // One scan at a time, so that a scan that hangs takes one thread only.
        let processes = daemon.processes();
        let scan = move || (processes.marked(&mut scanner), scanner);
        let looked = daemon.blocking.without_timeout(Purpose::Housekeeping, scan).await;
        let (seen, back) = looked.unwrap_or_else(|error| (Err(error), MarkerScanner::default()));
        scanner = back;
        match seen {
            Ok(seen) => match report(daemon, seen, &before).await {
                Some(suspects) => {
                    intervals = if suspects.is_subset(&before) { SCAN_INTERVALS } else { 1 };
                    before = suspects;
                }
                None => return,
            },
            Err(error) => tracing::warn!(%error, "the scan for orphans failed"),
        }
    }
}

/// The markers found in a scan, by what the pool's record says of them.
struct Markers {
    /// Tags of incarnations that have ended.
    ended: BTreeSet<Tag>,
    /// Tags of claims that are held.
    held: BTreeSet<Tag>,
    /// Process ids of workers.
    workers: BTreeSet<u32>,
}

/// Reports the processes that are suspects in this scan and were so in the last one. Returns the suspects;
/// none once the engine has stopped.
async fn report(
    daemon: &Arc<Daemon>,
    seen: Vec<MarkedProcess>,
    before: &BTreeSet<ProcId>,
) -> Option<BTreeSet<ProcId>> {
    let classify = move |turn: &mut Turn<'_>| {
        forget_tags(turn, &seen);
        (markers(turn, &seen), seen)
    };
    let (markers, seen) = daemon.engine.turn(classify).await.ok()?;
    let (socket, sessions) = (OsBytes::from(daemon.paths.socket.clone()), daemon.paths.sessions.clone());
    let (before, processes) = (before.clone(), daemon.processes());
    let check = move || {
        let suspected: Vec<MarkedProcess> =
            seen.into_iter().filter(|marked| is_suspect(&*processes, marked, &markers, &socket)).collect();
        let suspects: BTreeSet<ProcId> = suspected.iter().map(|marked| marked.process).collect();
        let again = suspected.into_iter().filter(|marked| before.contains(&marked.process)).collect();
        (suspects, with_service(&*processes, again, &sessions))
    };
    // No time limit, as for the scan: a path that another program chose may be on a file system that does not answer.
    match daemon.blocking.without_timeout(Purpose::Housekeeping, check).await {
        Ok((suspects, found)) => {
            daemon.engine.turn(move |turn| note(turn, found)).await.ok()?;
            Some(suspects)
        }
        Err(_) => Some(BTreeSet::new()),
    }
}

/// Forgets retired tags that no process and no pane has had for long.
fn forget_tags(turn: &mut Turn<'_>, seen: &[MarkedProcess]) {
    let state = turn.volatile.observed.state();
    if matches!(state.server, Server::Unknown(_)) {
        return;
    }
    let of_process = |marked: &MarkedProcess| match marked.marker {
        Marker::Incarnation(tag) => Some(tag),
        Marker::Client(_) => None,
    };
    let panes = state.panes.values().filter_map(|pane| pane.tag);
    let carried = seen.iter().filter_map(of_process).chain(panes).collect();
    let mono = turn.mono();
    let (pool, volatile) = turn.state();
    let forgotten = volatile.reaping.note_carried_tags(pool, &carried, mono);
    turn.emit_all(forgotten.into_iter().map(Event::TagForgotten));
}

/// Looks the markers found up in the record.
fn markers(turn: &Turn<'_>, seen: &[MarkedProcess]) -> Markers {
    let of_incarnation = |marked: &MarkedProcess| match marked.marker {
        Marker::Incarnation(tag) => {
            Some(tag).filter(|tag| turn.volatile.reaping.is_left_over(turn.pool(), *tag))
        }
        Marker::Client(_) => None,
    };
    Markers {
        ended: seen.iter().filter_map(of_incarnation).collect(),
        held: turn.pool().held_messages().filter_map(|open| open.token).map(Tag::for_claim).collect(),
        workers: turn.volatile.workers.processes().into_iter().map(|process| process.pid).collect(),
    }
}

/// True if the process has the marker of an ended incarnation or claim of this pool, or of a dead daemon. A
/// pool that was made from a copy of this one has another socket in its markers.
fn is_suspect(
    processes: &dyn Processes,
    marked: &MarkedProcess,
    markers: &Markers,
    socket: &OsBytes,
) -> bool {
    let is_left = match marked.marker {
        Marker::Incarnation(tag) if tag.is_claim() => {
            !markers.held.contains(&tag) && !descends(processes, marked.process, &markers.workers)
        }
        Marker::Incarnation(tag) => markers.ended.contains(&tag),
        Marker::Client(owner) => processes.has_exited(owner),
    };
    // Last, as it follows a path that others chose.
    is_left && marked.socket.as_ref().is_some_and(|marked| is_same(marked.as_path(), socket.as_path()))
}

/// True if one of these processes is an ancestor of the process, or an ancestor cannot be read.
fn descends(processes: &dyn Processes, process: ProcId, from: &BTreeSet<u32>) -> bool {
    let mut pid = process.pid;
    for _ in 0..GENERATIONS_MAX {
        match processes.read(pid) {
            Ok(Some(found)) if from.contains(&found.ppid) => return true,
            Ok(Some(found)) if found.ppid > 1 => pid = found.ppid,
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
    true
}

/// Returns the processes that are still alive, each with the reason to spare it, if there is one: it listens for
/// others, or it has the same marker as a process that does. What a background service starts later belongs to its
/// user, too.
fn with_service(
    processes: &dyn Processes,
    found: Vec<MarkedProcess>,
    sessions: &Path,
) -> Vec<(MarkedProcess, Option<String>)> {
    let serves = |marked: &MarkedProcess| {
        let path = processes.listening_path(marked.process, sessions)?;
        Some(format!("serves {path}"))
    };
    // A process may have ended since the scan.
    let found = found.into_iter().filter(|marked| !processes.has_exited(marked.process));
    let looked: Vec<(MarkedProcess, Option<String>)> =
        found.map(|marked| (serves(&marked), marked)).map(|(serves, marked)| (marked, serves)).collect();
    let servers: Vec<(Marker, u32)> = looked
        .iter()
        .filter(|(_, serves)| serves.is_some())
        .map(|(t, _)| (t.marker, t.process.pid))
        .collect();
    let of = |mark: Marker| servers.iter().find(|(served, _)| *served == mark).map(|(_, pid)| pid);
    let with_its = |(marked, serves): (MarkedProcess, Option<String>)| {
        let its =
            of(marked.marker).map(|pid| format!("bears the mark of process {pid}, which serves others"));
        (marked, serves.or(its))
    };
    looked.into_iter().map(with_its).collect()
}

/// Records the orphans found.
fn note(turn: &mut Turn<'_>, found: Vec<(MarkedProcess, Option<String>)>) {
    let mut marked: BTreeMap<Tag, Vec<OrphanProcess>> = BTreeMap::new();
    let mut clients = Vec::new();
    for (MarkedProcess { process, marker: mark, command, .. }, serves) in found {
        match mark {
            Marker::Incarnation(tag) => {
                if turn.volatile.reaping.is_spared(tag, process) {
                    continue;
                }
                let command = command.as_os_str().to_string_lossy().into_owned();
                if let Some(serves) = &serves {
                    reap::report_spared_server(turn, tag, (process, &command, serves));
                }
                marked.entry(tag).or_default().push(OrphanProcess { process, command, serves });
            }
            Marker::Client(owner) if serves.is_none() => clients.push(OrphanClient { process, owner }),
            Marker::Client(_) => {}
        }
    }
    if turn.volatile.reaping.note_orphans(Orphans { marked, clients, workers: Vec::new() }) {
        turn.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::TestProcesses;

    fn process(pid: u32) -> ProcId {
        ProcId { pid, start: 1 }
    }

    #[test]
    fn a_process_with_an_ancestor_that_cannot_be_read_may_descend_from_a_worker() {
        let workers = BTreeSet::from([7]);
        let descends = |parents: &[(u32, u32)]| {
            let parents = parents.iter().copied().collect();
            let processes = TestProcesses { parents, ..TestProcesses::default() };
            super::descends(&processes, process(30), &workers)
        };
        assert!(descends(&[(30, 20), (20, 7)]));
        assert!(!descends(&[(30, 20), (20, 1)]));
        assert!(descends(&[(30, 20)]), "process 20 cannot be read");
    }

    #[test]
    fn what_bears_the_mark_of_a_service_is_spared_with_it() {
        let marked = |pid, tag| MarkedProcess {
            process: process(pid),
            marker: Marker::Incarnation(Tag([tag; 16])),
            socket: None,
            command: "program".into(),
        };
        let processes = TestProcesses { listener: Some(20), ..TestProcesses::default() };
        let found = vec![marked(10, 1), marked(20, 1), marked(30, 2)];
        let looked = with_service(&processes, found, Path::new("/sessions"));
        let spared = looked.iter().filter(|(_, why)| why.is_some()).map(|(marked, _)| marked.process.pid);
        assert_eq!(spared.collect::<Vec<_>>(), [10, 20]);
    }
}
