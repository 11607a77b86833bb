//! Check that the files of a session are not those of another one, too.

use std::path::PathBuf;
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

/// Refuses if the files of a session are those of another one, too, perhaps by a symbolic link.
pub(super) async fn check_unused(daemon: &Arc<Daemon>, id: SessionId) -> Result<(), Refusal> {
    let others = move |turn: &mut Turn<'_>| pool::session::directories_of_others(turn.pool(), id);
    let others = daemon.engine.turn(others).await?;
    let mut dirs: Vec<PathBuf> = others.iter().map(|(_, cwd)| cwd.as_path().to_owned()).collect();
    dirs.push(daemon.paths.session(id));
    let mut real = user_dirs::resolved(daemon, dirs).await;
    let own = real.pop().unwrap_or_default();
    let real = others.iter().zip(&real).map(|((name, cwd), real)| (name, cwd, real.as_path()));
    pool::session::check_files_unused((&daemon.paths.session(id), &own), real)
}
