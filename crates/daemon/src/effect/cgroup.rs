//! Control groups: where they can be had, one for each incarnation.

use std::path::Path;
use std::sync::Arc;

use pool::settings::Bounds;
use process::cgroup;
use process::cgroup::{Group, Subtree};
use protocol::Tag;
use protocol::limits::Limits;

use crate::config::Cgroup;
use crate::engine::cgroups::Known;
use crate::engine::context::{Daemon, Loaded};
use crate::host::blocking;
use crate::host::blocking::Purpose;

/// Looks where groups can be made, where that may have changed since.
pub(crate) async fn look(daemon: &Arc<Daemon>) {
    let wanted = daemon.loaded().life.cgroup.clone();
    let server = match wanted {
        Cgroup::Auto => server(daemon).await,
        Cgroup::Off | Cgroup::At(_) => None,
    };
    let of = Some((wanted.clone(), server));
    if daemon.cgroups.known(|known| known.of == of) {
        return;
    }
    let looked = blocking::limited(Purpose::Processes, move || prepare(&wanted, server)).await;
    let known = match looked.unwrap_or_else(|| Err("control groups do not answer".to_owned())) {
        Ok((subtree, controllers)) => {
            let without = without(&controllers);
            Known { of, subtree: Some(subtree), controllers, without }
        }
        Err(why) => Known { of, without: Some(why), ..Known::default() },
    };
    let has = |name: &str| known.controllers.iter().any(|controller| controller == name);
    let bounds = Bounds { memory: has("memory"), tasks: has("pids"), cpu: has("cpu") };
    daemon.cgroups.known(|place| *place = known);
    daemon.config.send_modify(|loaded| {
        let settings = pool::Settings { bounds, ..loaded.settings.clone() };
        *loaded = Arc::new(Loaded { settings, ..(**loaded).clone() });
    });
}

async fn server(daemon: &Daemon) -> Option<u32> {
    let known = |turn: &mut crate::engine::Turn<'_>| turn.volatile.observed.server_pid(turn.pool());
    daemon.engine.turn(known).await.ok().flatten()
}

fn prepare(wanted: &Cgroup, server: Option<u32>) -> Result<(Subtree, Vec<String>), String> {
    let subtree = match (wanted, server) {
        (Cgroup::Off, _) => return Err("[pool] cgroup is off".to_owned()),
        (Cgroup::At(path), _) => Subtree::at(path)?,
        (Cgroup::Auto, Some(server)) => Subtree::of_server(server)?,
        (Cgroup::Auto, None) => return Err("no tmux server runs yet".to_owned()),
    };
    let controllers = subtree.prepare()?;
    Ok((subtree, controllers))
}

/// What cannot be bounded there.
fn without(controllers: &[String]) -> Option<String> {
    let missing: Vec<&str> = [("memory", "memory"), ("pids", "tasks"), ("cpu", "cpu")]
        .into_iter()
        .filter(|(name, _)| !controllers.iter().any(|controller| controller == name))
        .map(|(_, limit)| limit)
        .collect();
    (!missing.is_empty()).then(|| format!("the control group has no controller for {}", missing.join(", ")))
}

/// Makes the group of an incarnation. None, where there is none to be had, or why it could not be made.
pub(crate) fn create(daemon: &Daemon, tag: Tag, limits: &Limits) -> Result<Option<Group>, String> {
    daemon.cgroups.subtree().map(|subtree| subtree.create(tag, limits)).transpose()
}

/// Removes the group of an incarnation that is over.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = cgroup::remove(path) {
        tracing::debug!(path = %path.display(), %error, "its control group is left");
    }
}
