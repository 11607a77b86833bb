//! `show`: a session with its processes, its resource usage and the colours of its repository.

mod theme;

use std::sync::Arc;

use protocol::{Reply, Response, SessionRef};

use crate::engine::daemon::Daemon;
use crate::host::blocking_pool::Purpose;
use crate::verb::{session_view, usage};

/// Processes, usage and colours are read outside of the engine.
pub(super) async fn show(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = session_view::resolve(daemon, wanted).await?;
    let processes = session_view::processes(daemon, &session).await;
    let (measured, table) = ([session.clone()], daemon.processes());
    let measure = move || usage::measure(&*table, &measured).pop();
    let usage = daemon.blocking.with_timeout(Purpose::Processes, measure).await.flatten();
    let context = Arc::clone(daemon);
    let mut reply = daemon.engine.turn(move |turn| session_view::reply(turn, &context, session.id)).await?;
    if let Ok(Response::Session(view)) = &mut reply {
        view.processes = processes;
        view.usage = usage;
        let dir = view.current_dir.clone().unwrap_or_else(|| view.session.spec.cwd.clone());
        view.theme = daemon.blocking.with_timeout(Purpose::Theme, move || theme::of(dir.as_path())).await;
    }
    reply
}
