//! Capacity of the machine for one more session: memory, disk, terminals, open files of the tmux server.
//! Sampled before a decision, which is taken in a turn.

use std::sync::Arc;
use std::time::Duration;

use protocol::reap::Rule;
use protocol::reply::Capacity as CapacityView;
use protocol::tmux::Server;
use protocol::{ErrorCode, Refusal, ServerId};

use crate::engine::Turn;
use crate::engine::daemon::{Daemon, LoadedConfig};
use crate::host::blocking_pool::Purpose;
use crate::host::machine_sample;
use crate::host::machine_sample::MachineSample;

/// Pseudo-terminals that are left for other programs.
const TERMINALS_RESERVED: u64 = 16;

/// Open files of the tmux server that a new session needs, with a margin: its terminal, its log, attached
/// clients.
const FILES_PER_SESSION: u64 = 16;

/// Maximum age of a sample.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Takes a new sample, unless the last one is recent. Resources that do not answer are unknown, and do not
/// count.
///
/// # Errors
/// The engine has stopped.
pub(crate) async fn refresh(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    if is_fresh(daemon) {
        return Ok(());
    }
    let server = |turn: &mut Turn<'_>| match turn.volatile.observed.state().server {
        Server::Up(server) => Some(server),
        Server::Absent | Server::Unknown(_) => None,
    };
    let (server, state) = (daemon.engine.turn(server).await?, daemon.paths.state.clone());
    let processes = daemon.processes();
    let look = move || machine_sample::sample(&*processes, &state, server);
    let found = daemon.blocking.with_timeout(Purpose::Processes, look).await.unwrap_or_default();
    daemon.machine.send_replace(found);
    if found.at.is_none() {
        // No answer in time: what was short stays so until it is known to be over.
        return Ok(());
    }
    let context = Arc::clone(daemon);
    let note = move |turn: &mut Turn<'_>| pool::reap::note_host(turn, &context.loaded().settings, found.host);
    daemon.engine.turn(note).await
}

/// True if the last sample is recent enough to decide by.
pub(crate) fn is_fresh(daemon: &Daemon) -> bool {
    latest(daemon).age().is_some_and(|age| age < AGE_MAX)
}

/// The last sample.
pub(crate) fn latest(daemon: &Daemon) -> MachineSample {
    *daemon.machine.borrow()
}

/// Refuses a session for which the last sample shows no capacity.
///
/// # Errors
/// Refused, with the short resource and the remedy.
pub(crate) fn check(turn: &Turn<'_>, daemon: &Daemon) -> Result<(), Refusal> {
    match short_of(daemon).next() {
        Some(why) => Err(Refusal::new(ErrorCode::Refused, why)),
        None => check_server(turn, daemon),
    }
}

/// Returns the problems for which no session is started, besides that of the tmux server.
pub(crate) fn admission_problems(daemon: &Daemon) -> impl Iterator<Item = String> {
    short_of(daemon).map(|why| format!("no session is started now: {why}"))
}

/// Returns what the last sample has too little of for one more session, with the remedies.
fn short_of(daemon: &Daemon) -> impl Iterator<Item = String> {
    let (capacity, loaded) = (latest(daemon), daemon.loaded());
    let short = [
        short_of_memory(capacity, &loaded),
        short_of_disk(capacity, &loaded, daemon),
        short_of_terminals(capacity),
    ];
    short.into_iter().flatten()
}

fn short_of_memory(capacity: MachineSample, loaded: &LoadedConfig) -> Option<String> {
    let free = capacity.memory.filter(|free| *free < loaded.daemon.min_free_memory)?;
    let (free, least) = (free >> 20, loaded.daemon.min_free_memory >> 20);
    Some(format!(
        "{free} MiB of memory are available, and [pool] min_free_memory keeps {least}: end or park something"
    ))
}

fn short_of_disk(capacity: MachineSample, loaded: &LoadedConfig, daemon: &Daemon) -> Option<String> {
    let free = capacity.disk.filter(|free| *free < loaded.daemon.min_free_disk)?;
    let (free, least) = (free >> 20, loaded.daemon.min_free_disk >> 20);
    let place = daemon.paths.state.display();
    Some(format!(
        "the disk of {place} has {free} MiB left, and [pool] min_free_disk keeps {least}: make room there, \
         `poolctl prune` removes what is over"
    ))
}

fn short_of_terminals(capacity: MachineSample) -> Option<String> {
    let (used, max) = capacity.terminals.filter(|(used, max)| used + TERMINALS_RESERVED > *max)?;
    Some(format!("{used} of {max} terminals are in use: end something, or raise kernel.pty.max"))
}

/// Refuses a session that would exhaust the file descriptors of the tmux server: then it hangs for good.
///
/// # Errors
/// Refused.
pub(crate) fn check_server(turn: &Turn<'_>, daemon: &Daemon) -> Result<(), Refusal> {
    let full = match turn.volatile.observed.state().server {
        Server::Up(server) => near_file_limit(latest(daemon), server),
        Server::Absent | Server::Unknown(_) => None,
    };
    full.map_or(Ok(()), |why| Err(Refusal::new(ErrorCode::Refused, why)))
}

/// Returns the problem of a tmux server that takes no new sessions.
pub(crate) fn near_file_limit(capacity: MachineSample, server: ServerId) -> Option<String> {
    let (used, max) = capacity.server_files(server).filter(|(used, max)| used + FILES_PER_SESSION > *max)?;
    Some(format!(
        "the tmux server has {used} of {max} files open and takes no new sessions: end some, or restart it \
         with a higher limit (`ulimit -n`, LimitNOFILE)"
    ))
}

/// Returns what the machine is short of by the rules of the reaper, with its figures, and whether no session can
/// be parked for it although one should be.
fn shortages(turn: &Turn<'_>, daemon: &Daemon) -> Vec<(Rule, String, bool)> {
    pool::reap::shortages(turn.pool(), turn.volatile, &daemon.loaded().settings, turn.now())
}

/// Returns the problems of shortages for which no session can be parked.
pub(crate) fn unrelieved(turn: &Turn<'_>, daemon: &Daemon) -> Vec<String> {
    let unrelieved = shortages(turn, daemon).into_iter().filter(|(.., is_unrelieved)| *is_unrelieved);
    let problem = |(rule, figures, _): (Rule, String, bool)| {
        format!(
            "{figures}, and no session can be parked for it (the rule {}): end something; \
             `poolctl reap --explain SESSION` tells why it is kept",
            rule.as_str()
        )
    };
    unrelieved.map(problem).collect()
}

/// Returns the capacity that `status` shows.
pub(crate) fn view(turn: &Turn<'_>, daemon: &Daemon) -> CapacityView {
    let capacity = latest(daemon);
    CapacityView {
        waiting: turn.volatile.scheduler.waiting.len() as u64,
        memory: capacity.memory,
        terminals: capacity.terminals,
        short_of: shortages(turn, daemon).into_iter().map(|(_, figures, _)| figures).collect(),
        ..daemon.cgroups.view()
    }
}
