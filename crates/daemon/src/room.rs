//! Whether the machine has room for one more session: memory, disk, terminals, files of the tmux server.

use protocol::reply::Room;
use protocol::{ErrorCode, Refusal};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::verb;

/// Terminals that are left for everybody else.
const TERMINALS_LEFT: u64 = 16;

/// Refuses where there is no room for one more session.
///
/// # Errors
/// Refused, with what is short and what to do.
pub(crate) fn check(turn: &Turn<'_>, daemon: &Daemon) -> Result<(), Refusal> {
    let loaded = daemon.loaded();
    let life = &loaded.life;
    let refuse = |why: String| Err(Refusal::new(ErrorCode::Refused, why));
    if let Some(free) = process::machine::available_memory().filter(|free| *free < life.min_free_memory) {
        let (free, least) = (free >> 20, life.min_free_memory >> 20);
        return refuse(format!(
            "{free} MiB of memory are available, and [pool] min_free_memory keeps {least}: end or park something"
        ));
    }
    if let Some(free) =
        process::machine::free_disk(&daemon.paths.state).filter(|free| *free < life.min_free_disk)
    {
        let (free, least) = (free >> 20, life.min_free_disk >> 20);
        let place = daemon.paths.state.display();
        return refuse(format!(
            "the disk of {place} has {free} MiB left, and [pool] min_free_disk keeps {least}: make room there, \
             `poolctl prune` removes what is over"
        ));
    }
    if let Some((used, max)) =
        process::machine::terminals().filter(|(used, max)| used + TERMINALS_LEFT > *max)
    {
        return refuse(format!(
            "{used} of {max} terminals are in use: end something, or raise kernel.pty.max"
        ));
    }
    verb::has_room(turn)
}

/// The same, to be shown.
pub(crate) fn shown(turn: &Turn<'_>, daemon: &Daemon) -> Room {
    Room {
        waiting: turn.rest.line.len() as u64,
        memory: process::machine::available_memory(),
        terminals: process::machine::terminals(),
        ..daemon.cgroups.shown()
    }
}
