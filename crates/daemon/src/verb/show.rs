//! `show`: a session with its processes, its resource usage, the colours of its repository, and the plan and the
//! files of its agent.

use std::sync::Arc;

use protocol::{Reply, Response, SessionRef};

use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;
use crate::host::theme;
use crate::verb::{session_usage, session_view};

/// Processes, usage and colours are read outside of the engine.
pub(super) async fn show(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = session_view::resolve(daemon, wanted).await?;
    let processes = session_view::processes(daemon, &session).await;
    let usage =
        session_usage::measure(daemon, &Arc::from([session.clone()])).await.and_then(|mut all| all.pop());
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| {
        let mut reply = session_view::reply(turn, &context, session.id);
        let artefacts = turn.volatile.agents.artefacts(session.id);
        if let (Ok(Response::Session(view)), Some(artefacts)) = (&mut reply, artefacts) {
            view.plan = artefacts.plan().map(protocol::redact::text);
            view.files = artefacts.files().map(str::to_owned).collect();
        }
        reply
    };
    let mut reply = daemon.engine.turn(read).await?;
    if let Ok(Response::Session(view)) = &mut reply {
        view.processes = processes;
        view.usage = usage;
        let dir = view.current_dir.clone().unwrap_or_else(|| view.session.spec.cwd.clone());
        view.theme = daemon.blocking.with_timeout(Purpose::Theme, move || theme::of(dir.as_path())).await;
    }
    reply
}
