//! Processes that nothing of the pool's runs any more: those with the mark of an incarnation, or of a claim, that is
//! over, tmux clients of a dead daemon, workers that say nothing. What is named was seen in two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool::stale::{Client, Stray, Worker};
use process::census::{Census, Mark, Tagged};
use protocol::reap::{Action, Rule};
use protocol::{Event, OsBytes, ProcId, SessionId, Tag, Timestamp};
use tokio::time::sleep;

use super::retired;
use crate::context::Daemon;
use crate::engine::Turn;
use crate::slow::{self, Purpose};

/// So many intervals lie between two looks at all processes of the machine.
const EVERY: u32 = 6;
/// The longest way from a process to whoever started it that is followed.
const GENERATIONS: u32 = 64;

/// Looks for ever.
pub(super) async fn run(daemon: &Arc<Daemon>) {
    let mut census = Census::default();
    let mut before = BTreeSet::new();
    loop {
        sleep(daemon.loaded().life.interval * EVERY).await;
        // One look at a time: one that hangs keeps no others waiting, and no further thread.
        let looked = slow::unlimited(Purpose::House, move || (census.look(), census)).await;
        let (seen, back) = looked.unwrap_or_else(|error| (Err(error), Census::default()));
        census = back;
        match seen {
            Ok(seen) => match look(daemon, seen, &before).await {
                Some(suspects) => before = suspects,
                None => return,
            },
            Err(error) => tracing::warn!(%error, "orphans are not looked for"),
        }
    }
}

/// Names what was suspected before, and is still. Answers what is suspected now; `None`: the daemon ends.
async fn look(
    daemon: &Arc<Daemon>,
    seen: Vec<Tagged>,
    before: &BTreeSet<ProcId>,
) -> Option<BTreeSet<ProcId>> {
    let socket = OsBytes::from(daemon.paths.socket.clone());
    let take_in = move |turn: &mut Turn<'_>| {
        retired::forget(turn, &seen);
        suspected(turn, seen, &socket)
    };
    let suspected = daemon.engine.turn(take_in).await.ok()?;
    let suspects = suspected.iter().map(|tagged| tagged.process).collect();
    let again: Vec<Tagged> =
        suspected.into_iter().filter(|tagged| before.contains(&tagged.process)).collect();
    let dirs = daemon.paths.sessions.clone();
    let looked = if again.is_empty() {
        Some(Vec::new())
    } else {
        slow::limited(Purpose::Processes, move || served(again, &dirs)).await
    };
    if let Some(found) = looked {
        daemon.engine.turn(move |turn| note(turn, found)).await.ok()?;
    }
    Some(suspects)
}

/// Those with the mark of something that is over, or of a daemon that is dead.
fn suspected(turn: &mut Turn<'_>, seen: Vec<Tagged>, socket: &OsBytes) -> Vec<Tagged> {
    let held: BTreeSet<Tag> =
        turn.pool().held_messages().filter_map(|open| open.token).map(Tag::of).collect();
    let workers: BTreeSet<u32> = turn
        .rest
        .work
        .workers()
        .filter_map(|(_, worker)| worker.process)
        .map(|process| process.pid)
        .collect();
    let over = |tagged: &Tagged| match tagged.mark {
        Mark::Incarnation(tag) if tag.is_of_claim() => {
            let ours = tagged.socket.as_ref() == Some(socket) && !held.contains(&tag);
            ours && !descends(tagged.process, &workers)
        }
        // Another pool may be made of a copy of this one.
        Mark::Incarnation(tag) => {
            tagged.socket.as_ref() == Some(socket) && pool::stale::over(turn.pool(), tag).is_some()
        }
        Mark::Client(owner) => {
            tagged.socket.as_ref() == Some(socket) && process::identity::exited(owner).unwrap_or(false)
        }
    };
    seen.into_iter().filter(over).collect()
}

/// Whether one of these, or what cannot be looked at, started it.
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

/// Which of them serve others, or bear the mark of one that does: what a daemon starts later is its user's, too.
fn served(found: Vec<Tagged>, sessions: &std::path::Path) -> Vec<(Tagged, Option<String>)> {
    let serves = |tagged: &Tagged| {
        let path = process::census::served(tagged.process, Some(sessions))?;
        Some(format!("serves {path}"))
    };
    // One may have ended since it was seen.
    let found =
        found.into_iter().filter(|tagged| !process::identity::exited(tagged.process).unwrap_or(false));
    let looked: Vec<(Tagged, Option<String>)> =
        found.map(|tagged| (serves(&tagged), tagged)).map(|(serves, tagged)| (tagged, serves)).collect();
    let servers: Vec<(Mark, u32)> =
        looked.iter().filter(|(_, serves)| serves.is_some()).map(|(t, _)| (t.mark, t.process.pid)).collect();
    let of = |mark: Mark| servers.iter().find(|(served, _)| *served == mark).map(|(_, pid)| pid);
    let with_its = |(tagged, serves): (Tagged, Option<String>)| {
        let its = of(tagged.mark).map(|pid| format!("bears the mark of process {pid}, which serves others"));
        (tagged, serves.or(its))
    };
    looked.into_iter().map(with_its).collect()
}

fn note(turn: &mut Turn<'_>, found: Vec<(Tagged, Option<String>)>) {
    let mut marked: BTreeMap<Tag, Vec<Stray>> = BTreeMap::new();
    let mut clients = Vec::new();
    for (Tagged { process, mark, command, .. }, serves) in found {
        // It may have been ended since it was looked at.
        if process::identity::exited(process).unwrap_or(false) {
            continue;
        }
        match mark {
            Mark::Incarnation(tag) => {
                if turn.rest.stale.left.contains(&(tag, process)) {
                    continue;
                }
                let command = command.as_os_str().to_string_lossy().into_owned();
                tell(turn, tag, (process, &command, serves.as_deref()));
                marked.entry(tag).or_default().push(Stray { process, command, serves });
            }
            Mark::Client(owner) if serves.is_none() => clients.push(Client { process, owner }),
            Mark::Client(_) => {}
        }
    }
    let strays = &mut turn.rest.stale.strays;
    if (&strays.marked, &strays.clients) != (&marked, &clients) {
        (strays.marked, strays.clients) = (marked, clients);
        turn.stir();
    }
}

/// What serves others is left, and that is told once.
fn tell(turn: &mut Turn<'_>, tag: Tag, (process, command, serves): (ProcId, &str, Option<&str>)) {
    let Some((serves, session)) = serves.zip(pool::stale::over(turn.pool(), tag)) else { return };
    if turn.rest.stale.reported.insert((tag, Rule::Orphans)) {
        let evidence = format!("process {} ({command}) {serves}, and is left", process.pid);
        turn.emit(Event::StaleFound { session, rule: Rule::Orphans, action: Action::Report, evidence });
    }
}

/// Workers that are registered, ask for nothing, and hold nothing: each process by its newest word, over whatever
/// connection.
pub(super) fn note_workers(turn: &mut Turn<'_>) {
    let now = turn.now();
    let mut heard: BTreeMap<ProcId, Timestamp> = BTreeMap::new();
    for (_, worker) in turn.rest.work.workers() {
        let Some(process) = worker.process else { continue };
        let at = if worker.asks() { now } else { worker.heard_at };
        let newest = heard.entry(process).or_default();
        *newest = at.max(*newest);
    }
    let holds = turn.pool().held_messages().filter_map(|open| open.holder?.process);
    heard.extend(holds.map(|process| (process, now)));
    // Also just after its wait is over, or what it held is settled.
    let asking: Vec<u64> =
        turn.rest.work.workers().filter(|(_, w)| is_fresh(w, &heard, now)).map(|(id, _)| id).collect();
    for id in asking {
        turn.rest.work.worker(id).into_iter().for_each(|worker| worker.heard_at = now);
    }
    let registered = turn.rest.work.workers().filter_map(|(_, worker)| {
        let (registered, process) = (worker.generator.as_ref()?, worker.process?);
        let heard_at = heard.get(&process).copied().filter(|at| *at < now)?;
        let session: SessionId = registered.session;
        Some(Worker { id: registered.id, session, process, heard_at })
    });
    turn.rest.stale.strays.workers = registered.collect();
}

fn is_fresh(worker: &crate::work::Worker, heard: &BTreeMap<ProcId, Timestamp>, now: Timestamp) -> bool {
    worker.process.is_some_and(|process| heard.get(&process) == Some(&now))
}
