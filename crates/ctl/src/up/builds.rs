//! Daemons that run an older build than the one on disk: after an upgrade, until they are restarted.

use process::identity::{identify, is_outdated};
use protocol::ProcId;
use protocol::reply::Status;

use crate::show::status;
use crate::up::{programs, service};
use crate::{Context, supervisor_lock};

/// The version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The names of this pool's outdated daemons, the supervisor (`up`) among them.
pub(crate) fn outdated(context: &Context, status: Option<&Status>) -> Vec<&'static str> {
    let supervisor = is_supervisor_outdated(context).then_some("up");
    supervisor.into_iter().chain(status.map(outdated_daemons).unwrap_or_default()).collect()
}

/// True if the supervisor of this pool runs an older build.
pub(crate) fn is_supervisor_outdated(context: &Context) -> bool {
    let lock = &context.paths.up_lock;
    let Some(holder) = supervisor_lock::holder(lock) else { return false };
    is_outdated(holder, &programs::this())
        || supervisor_lock::terms(lock).build.is_some_and(|build| is_older(&build))
}

/// The outdated ones among `poold` and the daemons that are connected to it.
fn outdated_daemons(found: &Status) -> Vec<&'static str> {
    let running = |name: &str| -> Option<(ProcId, Option<&String>)> {
        if name == service::NAMES[0] {
            return Some((found.process, Some(&found.build)));
        }
        let component = status::component(found, name).filter(|one| one.connected)?;
        Some((identify(component.pid?).ok().flatten()?, component.build.as_ref()))
    };
    let is_old = |name: &&str| {
        // A bare name is no path, and would be taken for a file of the current directory.
        let program = Some(programs::find(name)).filter(|program| program.is_absolute());
        running(name).is_some_and(|(id, build)| {
            build.is_some_and(|build| is_older(build))
                || program.is_some_and(|program| is_outdated(id, &program))
        })
    };
    service::NAMES.into_iter().filter(is_old).collect()
}

/// True if a build (`poold 0.1.0`) is older than this one. A newer one is left alone: the `poold` of this build might
/// not know its database.
fn is_older(build: &str) -> bool {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        version.split('.').map(|number| number.parse::<u64>().ok()).collect()
    };
    let theirs = build.rsplit(' ').next().and_then(numbers);
    theirs.zip(numbers(VERSION)).is_some_and(|(theirs, mine)| theirs < mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_build_that_is_known_to_be_older_is() {
        for older in ["poold 0.0.99", "0.0.99", "poold 0.0"] {
            assert!(is_older(older), "{older}");
        }
        let (major, rest) = VERSION.split_once('.').unwrap();
        let newer = format!("poold {}.{rest}", major.parse::<u64>().unwrap() + 1);
        let same = format!("poold {VERSION}");
        for other in [same.as_str(), newer.as_str(), "poold 0.0.9-rc1", "poold", ""] {
            assert!(!is_older(other), "{other}");
        }
    }
}
