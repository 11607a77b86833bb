//! Control groups: finds where they can be created, creates and removes those of incarnations.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pool::EnforceableLimits;
use process::cgroup::{self, Group, Subtree};
use protocol::{Limits, Tag};
use tokio::time::Instant;

use crate::config::CgroupPlacement;
use crate::engine::{CgroupState, Daemon, Turn};
use crate::host::blocking_pool::Purpose;

/// Time after which the search for a place for groups is repeated: a busy system may not have answered.
const RETRY: Duration = Duration::from_secs(60);

/// Finds where groups can be created, if the configuration or the tmux server changed since the last call, or if the
/// last search failed some time ago.
pub(crate) async fn refresh(daemon: &Arc<Daemon>) {
    let wanted = daemon.loaded().daemon.cgroup.clone();
    let server = match wanted {
        CgroupPlacement::Auto => server_pid(daemon).await,
        CgroupPlacement::Off | CgroupPlacement::At(_) => None,
    };
    let inputs = Some((wanted.clone(), server));
    let is_known = |state: &mut CgroupState| {
        state.inputs == inputs && state.failed_at.is_none_or(|at| at.elapsed() < RETRY)
    };
    if daemon.cgroups.with_state(is_known) {
        return;
    }
    let number = daemon.cgroups.begin_look();
    let prepared = daemon.blocking.with_timeout(Purpose::Processes, move || prepare(&wanted, server)).await;
    let found = match prepared.unwrap_or_else(|| Err("control groups do not answer".to_owned())) {
        Ok((subtree, controllers)) => {
            let missing = missing(&controllers);
            CgroupState { inputs, subtree: Some(subtree), controllers, missing, failed_at: None, number }
        }
        Err(why) => {
            let failed_at = Some(Instant::now());
            CgroupState { inputs, missing: Some(why), failed_at, number, ..CgroupState::default() }
        }
    };
    let has = |name: &str| found.controllers.iter().any(|controller| controller == name);
    let bounds = EnforceableLimits { memory: has("memory"), tasks: has("pids"), cpu: has("cpu") };
    if !daemon.cgroups.end_look(found) {
        return;
    }
    daemon.config.send_modify(|loaded| {
        Arc::make_mut(&mut Arc::make_mut(loaded).settings).enforceable = bounds;
    });
}

async fn server_pid(daemon: &Daemon) -> Option<u32> {
    let server = |turn: &mut Turn<'_>| turn.volatile.observed.server_pid(turn.pool());
    daemon.engine.turn(server).await.ok().flatten()
}

fn prepare(wanted: &CgroupPlacement, server: Option<u32>) -> Result<(Subtree, Vec<String>), String> {
    let subtree = match (wanted, server) {
        (CgroupPlacement::Off, _) => return Err("[pool] cgroup is off".to_owned()),
        (CgroupPlacement::At(path), _) => Subtree::at(path)?,
        (CgroupPlacement::Auto, Some(server)) => Subtree::of_server(server)?,
        (CgroupPlacement::Auto, None) => return Err("no tmux server runs yet".to_owned()),
    };
    let controllers = subtree.prepare()?;
    Ok((subtree, controllers))
}

/// Returns the limits that cannot be enforced without further controllers, as a sentence.
fn missing(controllers: &[String]) -> Option<String> {
    let missing: Vec<&str> = [("memory", "memory"), ("pids", "tasks"), ("cpu", "cpu")]
        .into_iter()
        .filter(|(name, _)| !controllers.iter().any(|controller| controller == name))
        .map(|(_, limit)| limit)
        .collect();
    (!missing.is_empty()).then(|| format!("the control group has no controller for {}", missing.join(", ")))
}

/// Creates the group of an incarnation; `None` if there is no group to create it in.
pub(crate) fn create(daemon: &Daemon, tag: Tag, limits: &Limits) -> Result<Option<Group>, String> {
    daemon.cgroups.subtree().map(|subtree| subtree.create(tag, limits)).transpose()
}

/// Removes the group of an ended incarnation. Errors are only logged.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = cgroup::remove(path) {
        tracing::debug!(path = %path.display(), %error, "its control group is left");
    }
}
