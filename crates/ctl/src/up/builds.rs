//! Daemons that run an older build than the files on disk: after an upgrade, until they are started again.

use process::identity::{identify, is_outdated};
use protocol::ProcId;
use protocol::reply::Status;

use crate::context::Context;
use crate::show::status;
use crate::up::{lock, programs, service};

/// The names of those of this pool, the supervisor (`up`) among them.
#[must_use]
pub(crate) fn outdated(context: &Context, found: Option<&Status>) -> Vec<&'static str> {
    let mut names = Vec::new();
    if let Some(supervisor) = lock::holder(&context.paths.up_lock)
        && is_outdated(supervisor, &programs::this())
    {
        names.push("up");
    }
    names.extend(found.map(daemons).unwrap_or_default());
    names
}

/// The names of `poold` and of the daemons that are connected to it.
#[must_use]
pub(crate) fn daemons(found: &Status) -> Vec<&'static str> {
    let process = |name: &str| -> Option<ProcId> {
        if name == service::NAMES[0] {
            return Some(found.process);
        }
        identify(status::component(found, name).filter(|one| one.connected)?.pid?).ok().flatten()
    };
    let is_old = |name: &&str| {
        // Without a directory it would be looked for in this one.
        let program = Some(programs::find(name)).filter(|program| program.is_absolute());
        process(name).zip(program).is_some_and(|(id, program)| is_outdated(id, &program))
    };
    service::NAMES.into_iter().filter(is_old).collect()
}
