//! Control groups: where they can be had, one for each incarnation.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pool::settings::Bounds;
use process::cgroup::{self, Group, Subtree};
use protocol::life::Limits;
use protocol::reply::Room;
use protocol::tmux::Server;
use protocol::{OsBytes, Tag};

use crate::config::Cgroup;
use crate::context::{Daemon, Loaded};
use crate::slow::{self, Purpose};

/// What is known of the groups that can be made.
#[derive(Default)]
pub(crate) struct Cgroups(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// What was looked at: the configuration, and the server where it matters.
    of: Option<(Cgroup, Option<u32>)>,
    subtree: Option<Subtree>,
    controllers: Vec<String>,
    without: Option<String>,
}

impl Cgroups {
    fn known<R>(&self, with: impl FnOnce(&mut Known) -> R) -> R {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As `status` shows it.
    pub(crate) fn shown(&self) -> Room {
        self.known(|known| Room {
            cgroup: known.subtree.as_ref().map(|subtree| OsBytes::from(subtree.path())),
            controllers: known.controllers.clone(),
            without: known.without.clone(),
            ..Room::default()
        })
    }

    /// Removes what incarnations left that nobody keeps.
    pub(crate) fn sweep(&self, keep: &dyn Fn(Tag) -> bool) {
        if let Some(subtree) = self.subtree() {
            subtree.sweep(keep);
        }
    }

    fn subtree(&self) -> Option<Subtree> {
        self.known(|known| known.subtree.clone())
    }

    /// The group of an incarnation, where there is one.
    pub(crate) fn find(&self, tag: Tag) -> Option<PathBuf> {
        let path = self.subtree()?.group(tag);
        path.is_dir().then_some(path)
    }
}

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
    let looked = slow::limited(Purpose::Processes, move || prepare(&wanted, server)).await;
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
    let seen = |turn: &mut crate::engine::Turn<'_>| match turn.rest.view.state.server {
        Server::Up(server) => Some(server.process.pid),
        _ => turn.pool().server().map(|server| server.process.pid),
    };
    daemon.engine.turn(seen).await.ok().flatten()
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
