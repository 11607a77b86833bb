//! Daemons that run an older build than the one on disk: after an upgrade, until they are restarted.

use process::identity::{identify, is_outdated};
use protocol::ProcId;
use protocol::reply::Status;

use crate::show::status;
use crate::up::{health, programs, service, started};
use crate::{Context, supervisor_lock};

/// The version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A daemon that runs an older build, or the supervisor (`up`).
#[derive(Debug)]
pub(crate) struct Outdated {
    pub name: &'static str,
    pid: u32,
    /// True if `up` has started it, and so can restart it.
    is_kept: bool,
}

/// This pool's outdated daemons, the supervisor first.
pub(crate) fn outdated(context: &Context, status: Option<&Status>) -> Vec<Outdated> {
    // If the record of started daemons cannot be read, all of them count as started by `up`.
    let alive = started::alive(&context.paths).ok();
    let is_recorded =
        |id: ProcId| alive.as_ref().is_none_or(|alive| alive.iter().any(|(_, handle)| handle.id() == id));
    let is_kept = |id: ProcId| is_recorded(id) || started::is_child_of_supervisor(&context.paths, id.pid);
    let supervisor = outdated_supervisor(context).map(|id| ("up", id, true));
    let poold = || alive.iter().flatten().find(|(name, _)| name == service::NAMES[0]);
    let daemons = match status {
        Some(found) => outdated_daemons(found),
        // Without a status, `poold` counts as outdated if it speaks too old a protocol to tell its version.
        None => poold()
            .filter(|_| health::is_too_old(context))
            .map(|(_, handle)| (service::NAMES[0], handle.id()))
            .into_iter()
            .collect(),
    };
    let daemons = daemons.into_iter().map(|(name, id)| (name, id, is_kept(id)));
    let all = supervisor.into_iter().chain(daemons);
    all.map(|(name, id, is_kept)| Outdated { name, pid: id.pid, is_kept }).collect()
}

/// The names of the outdated daemons that `up` can restart, in one line; empty if there are none.
pub(crate) fn kept(old: &[Outdated]) -> String {
    old.iter().filter(|one| one.is_kept).map(|one| one.name).collect::<Vec<_>>().join(", ")
}

/// Says which outdated daemons were not started by `up`, and have to be restarted by whoever started them. `None` if
/// there are none.
pub(crate) fn others(old: &[Outdated]) -> Option<String> {
    let others = old.iter().filter(|one| !one.is_kept);
    let others: Vec<String> = others.map(|one| format!("{} (pid {})", one.name, one.pid)).collect();
    (!others.is_empty()).then(|| {
        let which = others.join(", ");
        format!("older build: {which}, not started by `poolctl up`: restart each the way it was started")
    })
}

/// The supervisor of this pool if it runs an older build.
pub(crate) fn outdated_supervisor(context: &Context) -> Option<ProcId> {
    let lock = &context.paths.up_lock;
    let is_old = |holder: &ProcId| {
        is_outdated(*holder, &programs::this())
            || supervisor_lock::terms(lock).build.is_some_and(|build| is_older(&build))
    };
    supervisor_lock::holder(lock).filter(is_old)
}

/// The outdated ones among `poold` and the daemons that are connected to it.
fn outdated_daemons(found: &Status) -> Vec<(&'static str, ProcId)> {
    let running = |name: &str| -> Option<(ProcId, Option<&String>)> {
        if name == service::NAMES[0] {
            return Some((found.process, Some(&found.build)));
        }
        let component = status::component(found, name).filter(|one| one.connected)?;
        Some((identify(component.pid?).ok().flatten()?, component.build.as_ref()))
    };
    let old = |name: &'static str| {
        let (id, build) = running(name)?;
        // The program was not found if only its name is returned, which would be taken for a file of the current
        // directory.
        let program = Some(programs::find(name)).filter(|program| program.is_absolute());
        let is_old = build.is_some_and(|build| is_older(build))
            || program.is_some_and(|program| is_outdated(id, &program));
        is_old.then_some((name, id))
    };
    service::NAMES.into_iter().filter_map(old).collect()
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
    fn who_can_restart_them_is_told_apart() {
        let one = |name, is_kept| Outdated { name, pid: 5, is_kept };
        let old = [one("up", true), one("poold", false), one("reaper", true)];
        assert_eq!(kept(&old), "up, reaper");
        assert!(others(&old).is_some_and(|told| told.starts_with("older build: poold (pid 5), not ")));
        assert_eq!((kept(&old[1..2]), others(&old[2..])), (String::new(), None));
    }

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
