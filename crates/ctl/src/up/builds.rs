//! Daemons that run an older build than the one on disk: after an upgrade, until they are restarted.

use process::identity::{identify, is_outdated};
use protocol::ProcId;
use protocol::reply::Status;

use crate::show::status;
use crate::up::{programs, service};
use crate::{Context, supervisor_lock};

/// The names of this pool's outdated daemons, the supervisor (`up`) among them.
pub(crate) fn outdated(context: &Context, status: Option<&Status>) -> Vec<&'static str> {
    let mut names = Vec::new();
    if let Some(supervisor) = supervisor_lock::holder(&context.paths.up_lock)
        && is_outdated(supervisor, &programs::this())
    {
        names.push("up");
    }
    names.extend(status.map(outdated_daemons).unwrap_or_default());
    names
}

/// The outdated ones among `poold` and the daemons that are connected to it.
fn outdated_daemons(found: &Status) -> Vec<&'static str> {
    let process = |name: &str| -> Option<ProcId> {
        if name == service::NAMES[0] {
            return Some(found.process);
        }
        identify(status::component(found, name).filter(|one| one.connected)?.pid?).ok().flatten()
    };
    let is_old = |name: &&str| {
        // A bare name is no path, and would be taken for a file of the current directory.
        let program = Some(programs::find(name)).filter(|program| program.is_absolute());
        process(name).zip(program).is_some_and(|(id, program)| is_outdated(id, &program))
    };
    service::NAMES.into_iter().filter(is_old).collect()
}
