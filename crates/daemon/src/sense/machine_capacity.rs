//! Capacity of the machine for one more session: memory, disk, terminals, open files of the tmux server.
//! Sampled before a decision, which is taken in a turn.

use std::sync::Arc;
use std::time::Duration;

use pool::slots;
use protocol::reap::Rule;
use protocol::reply::Capacity as CapacityView;
use protocol::tmux::Server;
use protocol::{Refusal, ServerId};

use crate::engine::{Daemon, LoadedConfig, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::machine_sample;
use crate::host::machine_sample::MachineSample;

/// Pseudo-terminals that are left for other programs.
const TERMINALS_RESERVED: u64 = 16;

/// Inodes that are left for the files of the pool and of running programs.
const INODES_RESERVED: u64 = 1000;

/// Maximum age of a sample.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Takes a new sample, unless the last one is recent and no start has ended since. Resources that do not answer
/// are unknown, and do not count.
pub(crate) async fn refresh(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    let before = |turn: &mut Turn<'_>| (server(turn), turn.volatile.scheduler.starts_ended());
    let before = daemon.engine.turn(before).await?;
    if is_fresh(daemon) && latest(daemon).starts_ended == before.1 {
        return Ok(());
    }
    let state = daemon.paths.state.clone();
    let processes = daemon.processes();
    let look = move || machine_sample::sample(&*processes, &state, before);
    let found = daemon.blocking.with_timeout(Purpose::Processes, look).await.unwrap_or_default();
    daemon.machine.send_replace(found);
    if found.at.is_none() {
        // The resources did not answer in time: a shortage stays until a sample shows that it is over.
        return Ok(());
    }
    let context = Arc::clone(daemon);
    let note =
        move |turn: &mut Turn<'_>| pool::reap::note_machine(turn, &context.loaded().settings, found.used);
    daemon.engine.turn(note).await
}

/// True if the last sample is recent enough to decide by.
pub(crate) fn is_fresh(daemon: &Daemon) -> bool {
    latest(daemon).age().is_some_and(|age| age < AGE_MAX)
}

pub(crate) fn latest(daemon: &Daemon) -> MachineSample {
    *daemon.machine.borrow()
}

/// Refuses a session for which the last sample shows no capacity.
///
/// # Errors
/// Refused, with the short resource and the remedy.
pub(crate) fn check(turn: &Turn<'_>, daemon: &Daemon) -> Result<(), Refusal> {
    match short_of(daemon).next() {
        Some(why) => Err(Refusal::refused(why)),
        None => check_server(turn, daemon),
    }
}

/// Returns the reasons why no session can be started, except those of the tmux server.
pub(crate) fn admission_problems(daemon: &Daemon) -> impl Iterator<Item = String> {
    short_of(daemon).map(|why| format!("no session is started now: {why}"))
}

/// Returns what one more session would lack, by the last sample, with the remedies.
fn short_of(daemon: &Daemon) -> impl Iterator<Item = String> {
    let (capacity, loaded) = (latest(daemon), daemon.loaded());
    let short = [
        short_of_memory(capacity, &loaded),
        short_of_disk(capacity, &loaded, daemon),
        short_of_inodes(capacity, &loaded, daemon),
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

/// With `min_free_disk` at 0 the disk may become full, in this respect too.
fn short_of_inodes(capacity: MachineSample, loaded: &LoadedConfig, daemon: &Daemon) -> Option<String> {
    let is_kept = loaded.daemon.min_free_disk > 0;
    let left = capacity.inodes.filter(|left| is_kept && *left < INODES_RESERVED)?;
    let place = daemon.paths.state.display();
    Some(format!(
        "the disk of {place} has {left} inodes left, and each file takes one: remove files there, `poolctl prune` \
         removes what is over"
    ))
}

fn short_of_terminals(capacity: MachineSample) -> Option<String> {
    let (used, max) = capacity.terminals.filter(|(used, max)| used + TERMINALS_RESERVED > *max)?;
    Some(format!("{used} of {max} terminals are in use: end something, or raise kernel.pty.max"))
}

/// Returns the number of sessions that can be started, by the last sample.
pub(crate) fn startable(turn: &Turn<'_>, daemon: &Daemon) -> usize {
    if short_of(daemon).next().is_some() {
        return 0;
    }
    let files = server(turn).and_then(|server| latest(daemon).server_files(server));
    files.map_or(usize::MAX, |files| slots::startable(files, unsettled(turn, daemon)))
}

/// Refuses a session that would exhaust the file descriptors of the tmux server: then it hangs for good.
fn check_server(turn: &Turn<'_>, daemon: &Daemon) -> Result<(), Refusal> {
    let unsettled = unsettled(turn, daemon);
    let full = server(turn).and_then(|server| near_file_limit(latest(daemon), server, unsettled));
    full.map_or(Ok(()), |why| Err(Refusal::refused(why)))
}

fn server(turn: &Turn<'_>) -> Option<ServerId> {
    match turn.volatile.observed.state().server {
        Server::Up(server) => Some(server),
        Server::Absent | Server::Unknown(_) => None,
    }
}

/// Number of sessions whose open files may not be in the last sample yet: it was taken during their start.
fn unsettled(turn: &Turn<'_>, daemon: &Daemon) -> usize {
    turn.volatile.scheduler.starts_since(turn.pool(), latest(daemon).starts_ended)
}

/// Returns the problem of a tmux server that can open no files for further sessions, besides those that are being
/// started.
pub(crate) fn near_file_limit(capacity: MachineSample, server: ServerId, unsettled: usize) -> Option<String> {
    let files = capacity.server_files(server).filter(|files| slots::startable(*files, unsettled) == 0)?;
    let beside = match unsettled {
        0 => String::new(),
        starts => format!(", besides {starts} that are being started,"),
    };
    Some(format!(
        "the tmux server has {} of {} files open{beside} and takes no new sessions: end some, or restart it \
         with a higher limit (`ulimit -n`, LimitNOFILE)",
        files.0, files.1
    ))
}

/// Returns what the machine is short of by the rules of the reaper: the rule, the figures, and whether a session should
/// be parked for it and none can be.
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
