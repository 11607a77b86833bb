//! Processes that nothing of the pool's runs any more: those with the mark of an incarnation, or of a claim, that is
//! over, tmux clients of a dead daemon, workers that say nothing. What is named was seen in two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool::stale::{Client, Stray, Worker};
use process::census::{Census, Mark, Tagged};
use protocol::reap::{Action, Rule};
use protocol::{Event, OsBytes, ProcId, SessionId, Tag};
use tokio::time::sleep;

use crate::context::Daemon;
use crate::engine::Turn;
use crate::files;

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
        let looking = files::elsewhere(move || (census.look(), census)).await;
        let Some((seen, back)) = looking else {
            tracing::warn!("the process table does not answer: orphans are not looked for");
            (census, before) = (Census::default(), BTreeSet::new());
            continue;
        };
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
async fn look(daemon: &Arc<Daemon>, seen: Vec<Tagged>, before: &BTreeSet<ProcId>) -> Option<BTreeSet<ProcId>> {
    let socket = OsBytes::from(daemon.paths.socket.clone());
    let suspected = daemon.engine.turn(move |turn| suspected(turn, seen, &socket)).await.ok()?;
    let suspects = suspected.iter().map(|tagged| tagged.process).collect();
    let again: Vec<Tagged> = suspected.into_iter().filter(|tagged| before.contains(&tagged.process)).collect();
    let dirs = daemon.paths.sessions.clone();
    let looked = if again.is_empty() { Some(Vec::new()) } else { files::elsewhere(move || served(again, &dirs)).await };
    if let Some(found) = looked {
        daemon.engine.turn(move |turn| note(turn, found)).await.ok()?;
    }
    Some(suspects)
}

/// Those with the mark of something that is over, or of a daemon that is dead.
fn suspected(turn: &mut Turn<'_>, seen: Vec<Tagged>, socket: &OsBytes) -> Vec<Tagged> {
    let held: BTreeSet<Tag> =
        turn.pool().held_messages().filter_map(|open| open.token).map(Tag::of).collect();
    let workers: BTreeSet<u32> =
        turn.rest.work.workers().filter_map(|(_, worker)| worker.process).map(|process| process.pid).collect();
    let over = |tagged: &Tagged| match tagged.mark {
        Mark::Incarnation(tag) if is_of_claim(tag) => {
            let ours = tagged.socket.as_ref() == Some(socket) && !held.contains(&tag);
            ours && !descends(tagged.process, &workers)
        }
        Mark::Incarnation(tag) => pool::stale::over(turn.pool(), tag).is_some(),
        Mark::Client(owner) => {
            tagged.socket.as_ref() == Some(socket) && process::identity::exited(owner).unwrap_or(false)
        }
    };
    seen.into_iter().filter(over).collect()
}

/// The marks of claims are no random ones ([`Tag::of`]).
fn is_of_claim(tag: Tag) -> bool {
    tag.0[..4] == [0; 4]
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

/// Which of them serve others.
fn served(found: Vec<Tagged>, sessions: &std::path::Path) -> Vec<(Tagged, Option<String>)> {
    let serves = |tagged: &Tagged| {
        let path = process::census::served(tagged.process, Some(sessions))?;
        Some(format!("serves {path}"))
    };
    found.into_iter().map(|tagged| (serves(&tagged), tagged)).map(|(serves, tagged)| (tagged, serves)).collect()
}

fn note(turn: &mut Turn<'_>, found: Vec<(Tagged, Option<String>)>) {
    let mut marked: BTreeMap<Tag, Vec<Stray>> = BTreeMap::new();
    let mut clients = Vec::new();
    for (Tagged { process, mark, command, .. }, serves) in found {
        match mark {
            Mark::Incarnation(tag) => {
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

/// Workers that are registered, ask for nothing, and hold nothing.
pub(super) fn note_workers(turn: &mut Turn<'_>) {
    let now = turn.now();
    let asking: Vec<u64> = turn.rest.work.workers().filter(|(_, worker)| worker.asks()).map(|(id, _)| id).collect();
    for id in asking {
        // Also just after its wait is over.
        turn.rest.work.worker(id).into_iter().for_each(|worker| worker.heard_at = now);
    }
    let holders: BTreeSet<ProcId> =
        turn.pool().held_messages().filter_map(|open| open.holder?.process).collect();
    let idle = turn.rest.work.workers().filter(|(_, worker)| !worker.asks());
    let silent = idle.filter_map(|(_, worker)| {
        let registered = worker.generator.as_ref()?;
        let process = worker.process.filter(|process| !holders.contains(process))?;
        let session: SessionId = registered.session;
        Some(Worker { id: registered.id, session, process, heard_at: worker.heard_at })
    });
    let workers: Vec<Worker> = silent.collect();
    if turn.rest.stale.strays.workers != workers {
        turn.rest.stale.strays.workers = workers;
    }
}
