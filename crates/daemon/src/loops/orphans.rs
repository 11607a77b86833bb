//! Scans of the machine for processes that belong to nothing of the pool any more.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use pool::reap;
use pool::stale::{Client, Stray, Strays};
use process::tree::marker_scan::{MarkedProcess, Marker, MarkerScanner};
use protocol::tmux::Server;
use protocol::{Event, OsBytes, ProcId, Tag};
use tokio::time::sleep;

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::sense::exits::has_exited;

/// Intervals of the reaper's rules between two scans.
const EVERY: u32 = 6;

/// Most generations that are followed from a process up to one that started it.
const GENERATIONS: u32 = 64;

/// Scans until the daemon ends.
pub(crate) async fn run(daemon: &Arc<Daemon>) {
    let mut scanner = MarkerScanner::default();
    let mut before = BTreeSet::new();
    loop {
        sleep(daemon.loaded().life.interval * EVERY).await;
        // One scan at a time: one that hangs keeps no others waiting, and no further thread.
        let looked = blocking::unlimited(Purpose::House, move || (scanner.scan(), scanner)).await;
        let (seen, back) = looked.unwrap_or_else(|error| (Err(error), MarkerScanner::default()));
        scanner = back;
        match seen {
            Ok(seen) => match look_into(daemon, seen, &before).await {
                Some(suspects) => before = suspects,
                None => return,
            },
            Err(error) => tracing::warn!(%error, "orphans are not looked for"),
        }
    }
}

/// Marks whose bearers would be orphans, as the pool's record has it.
struct Marks {
    /// Marks of incarnations that are over.
    over: BTreeSet<Tag>,
    /// Marks of claims that are held.
    held: BTreeSet<Tag>,
    /// Process ids of workers.
    workers: BTreeSet<u32>,
}

/// Reports the processes that were suspected before, and still are. Returns those suspected now; none once the engine has
/// stopped.
async fn look_into(
    daemon: &Arc<Daemon>,
    seen: Vec<MarkedProcess>,
    before: &BTreeSet<ProcId>,
) -> Option<BTreeSet<ProcId>> {
    let take_in = move |turn: &mut Turn<'_>| {
        forget_tags(turn, &seen);
        (marks(turn, &seen), seen)
    };
    let (marks, seen) = daemon.engine.turn(take_in).await.ok()?;
    let (socket, sessions) = (OsBytes::from(daemon.paths.socket.clone()), daemon.paths.sessions.clone());
    let before = before.clone();
    let look = move || {
        let suspected: Vec<MarkedProcess> =
            seen.into_iter().filter(|tagged| is_suspect(tagged, &marks, &socket)).collect();
        let suspects: BTreeSet<ProcId> = suspected.iter().map(|tagged| tagged.process).collect();
        let again = suspected.into_iter().filter(|tagged| before.contains(&tagged.process)).collect();
        (suspects, served(again, &sessions))
    };
    match blocking::limited(Purpose::Processes, look).await {
        Some((suspects, found)) => {
            daemon.engine.turn(move |turn| note(turn, found)).await.ok()?;
            Some(suspects)
        }
        None => Some(BTreeSet::new()),
    }
}

/// Forgets retired tags that nothing has borne for long.
fn forget_tags(turn: &mut Turn<'_>, seen: &[MarkedProcess]) {
    let state = turn.volatile.observed.state();
    if matches!(state.server, Server::Unknown(_)) {
        return;
    }
    let of_process = |tagged: &MarkedProcess| match tagged.marker {
        Marker::Incarnation(tag) => Some(tag),
        Marker::Client(_) => None,
    };
    let panes = state.panes.values().filter_map(|pane| pane.tag);
    let borne = seen.iter().filter_map(of_process).chain(panes).collect();
    let mono = turn.mono();
    let (pool, volatile) = turn.state();
    let forgotten = volatile.reaping.note_borne_tags(pool, &borne, mono);
    turn.emit_all(forgotten.into_iter().map(Event::TagForgotten));
}

fn marks(turn: &Turn<'_>, seen: &[MarkedProcess]) -> Marks {
    let of_incarnation = |tagged: &MarkedProcess| match tagged.marker {
        Marker::Incarnation(tag) => Some(tag).filter(|tag| pool::stale::over(turn.pool(), *tag).is_some()),
        Marker::Client(_) => None,
    };
    Marks {
        over: seen.iter().filter_map(of_incarnation).collect(),
        held: turn.pool().held_messages().filter_map(|open| open.token).map(Tag::for_claim).collect(),
        workers: turn.volatile.workers.processes().into_iter().map(|process| process.pid).collect(),
    }
}

/// True for a process with the mark of something of this pool that is over, or of a daemon that is dead. Another pool may be made
/// of a copy of this one: its marks have another socket.
fn is_suspect(tagged: &MarkedProcess, marks: &Marks, socket: &OsBytes) -> bool {
    if tagged.socket.as_ref() != Some(socket) {
        return false;
    }
    match tagged.marker {
        Marker::Incarnation(tag) if tag.is_claim() => {
            !marks.held.contains(&tag) && !descends(tagged.process, &marks.workers)
        }
        Marker::Incarnation(tag) => marks.over.contains(&tag),
        Marker::Client(owner) => has_exited(owner),
    }
}

/// True if one of these processes, or one that cannot be looked at, started the process.
fn descends(process: ProcId, from: &BTreeSet<u32>) -> bool {
    let mut pid = process.pid;
    for _ in 0..GENERATIONS {
        match process::identity::read(pid) {
            Ok(Some(found)) if from.contains(&found.ppid) => return true,
            Ok(Some(found)) if found.ppid > 1 => pid = found.ppid,
            Ok(_) => return false,
            Err(_) => return true,
        }
    }
    true
}

/// Processes that live, each with what it serves others with. One with the mark of one that serves others serves them as well:
/// what a daemon starts later is its user's, too.
fn served(found: Vec<MarkedProcess>, sessions: &Path) -> Vec<(MarkedProcess, Option<String>)> {
    let serves = |tagged: &MarkedProcess| {
        let path = process::tree::listeners::listening_path(tagged.process, Some(sessions))?;
        Some(format!("serves {path}"))
    };
    // One may have ended since it was seen.
    let found = found.into_iter().filter(|tagged| !has_exited(tagged.process));
    let looked: Vec<(MarkedProcess, Option<String>)> =
        found.map(|tagged| (serves(&tagged), tagged)).map(|(serves, tagged)| (tagged, serves)).collect();
    let servers: Vec<(Marker, u32)> = looked
        .iter()
        .filter(|(_, serves)| serves.is_some())
        .map(|(t, _)| (t.marker, t.process.pid))
        .collect();
    let of = |mark: Marker| servers.iter().find(|(served, _)| *served == mark).map(|(_, pid)| pid);
    let with_its = |(tagged, serves): (MarkedProcess, Option<String>)| {
        let its =
            of(tagged.marker).map(|pid| format!("bears the mark of process {pid}, which serves others"));
        (tagged, serves.or(its))
    };
    looked.into_iter().map(with_its).collect()
}

fn note(turn: &mut Turn<'_>, found: Vec<(MarkedProcess, Option<String>)>) {
    let mut marked: BTreeMap<Tag, Vec<Stray>> = BTreeMap::new();
    let mut clients = Vec::new();
    for (MarkedProcess { process, marker: mark, command, .. }, serves) in found {
        match mark {
            Marker::Incarnation(tag) => {
                if turn.volatile.reaping.is_spared(tag, process) {
                    continue;
                }
                let command = command.as_os_str().to_string_lossy().into_owned();
                if let Some(serves) = &serves {
                    reap::report_server(turn, tag, (process, &command, serves));
                }
                marked.entry(tag).or_default().push(Stray { process, command, serves });
            }
            Marker::Client(owner) if serves.is_none() => clients.push(Client { process, owner }),
            Marker::Client(_) => {}
        }
    }
    if turn.volatile.reaping.note_strays(Strays { marked, clients, workers: Vec::new() }) {
        turn.wake();
    }
}
