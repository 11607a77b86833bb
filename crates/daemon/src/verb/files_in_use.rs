//! The check that no other session uses the files of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::{Refusal, SessionId};

use crate::engine::{Daemon, Turn};
use crate::host::removals::Removal;
use crate::sense::user_dirs;

/// Begins to remove the files of a session: from now on nothing is started in them.
pub(super) async fn begin_removal(daemon: &Daemon, id: SessionId) -> Removal {
    let dir = daemon.paths.session(id);
    let mut dirs = user_dirs::resolved(daemon, vec![dir.clone()]).await;
    dirs.push(dir);
    daemon.removals.begin(dirs)
}

/// Refuses if another session uses the files of this one, perhaps through a symbolic link.
pub(super) async fn check_unused(daemon: &Arc<Daemon>, id: SessionId) -> Result<(), Refusal> {
    let others = move |turn: &mut Turn<'_>| pool::session::directories_of_others(turn.pool(), id);
    let others = daemon.engine.turn(others).await?;
    let dir = daemon.paths.session(id);
    // Each directory is resolved once. Those that the pool made are left out, because there are as many as sessions.
    let is_users = |cwd: &&Path| !cwd.starts_with(&daemon.paths.sessions);
    let dirs = others.iter().map(|(_, cwd)| cwd.as_path()).filter(is_users).chain([dir.as_path()]);
    let dirs: Vec<PathBuf> = dirs.collect::<BTreeSet<_>>().into_iter().map(Path::to_owned).collect();
    let resolved = user_dirs::resolved(daemon, dirs.clone()).await;
    let real: BTreeMap<PathBuf, PathBuf> = dirs.into_iter().zip(resolved).collect();
    let others = others.iter().map(|(name, cwd)| {
        let cwd_path = cwd.as_path();
        (name, cwd, real.get(cwd_path).map_or(cwd_path, PathBuf::as_path))
    });
    pool::session::check_files_unused((&dir, &real[&dir]), others)
}
