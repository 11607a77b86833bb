//! Reads: `ls`, `show`, `queue`, `logs`, `events`, `config`.

use std::sync::Arc;

use protocol::reply::LogFiles;
use protocol::request::{Events, List};
use protocol::{ErrorCode, MessageId, Refusal, Reply, Response, SessionRef};

use super::shown;
use crate::config::Config;
use crate::context::{Daemon, Loaded};
use crate::files;

/// Finished messages that a listing shows beside the unfinished ones.
const FINISHED_SHOWN: usize = 100;
/// The most events of one answer.
const EVENTS_MAX: u32 = 100_000;

pub(super) async fn list(daemon: &Arc<Daemon>, filter: List) -> Reply {
    let socket = daemon.tmux_socket();
    let read = move |turn: &mut crate::engine::Turn<'_>| {
        // Views are large: a vector that grows copies them again and again.
        let mut views = Vec::with_capacity(turn.pool().sessions().count());
        let listed = turn.pool().sessions().filter(|s| pool::view::listed(s, &filter));
        views.extend(listed.map(|s| shown::shown(turn, &socket, s)));
        Response::Sessions(views)
    };
    daemon.engine.turn(read).await
}

pub(super) async fn show(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = shown::find(daemon, wanted).await?;
    let processes = shown::processes(&session).await;
    let context = Arc::clone(daemon);
    let mut reply = daemon.engine.turn(move |turn| shown::reply(turn, &context, session.id)).await?;
    if let Ok(Response::Session(view)) = &mut reply {
        view.processes = processes;
    }
    reply
}

pub(super) async fn message(daemon: &Arc<Daemon>, id: MessageId) -> Reply {
    let found = daemon.engine.turn(move |turn| turn.pool().message(id).cloned()).await?;
    let message = found.ok_or_else(|| Refusal::new(ErrorCode::NotFound, format!("no message {id}")))?;
    Ok(Response::Message(Box::new(message)))
}

pub(super) async fn messages(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = shown::find(daemon, wanted).await?;
    let read = move |turn: &mut crate::engine::Turn<'_>| {
        let all = || turn.pool().messages_of(session.id);
        let finished = all().filter(|m| m.state.is_final()).count();
        let mut skipped = finished.saturating_sub(FINISHED_SHOWN);
        let shown = all().filter(|m| {
            let skip = m.state.is_final() && skipped > 0;
            skipped -= usize::from(skip);
            !skip
        });
        Response::Messages(shown.cloned().collect())
    };
    daemon.engine.turn(read).await
}

pub(super) async fn logs(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = shown::find(daemon, wanted).await?;
    let files = files::logs(&daemon.paths.sessions, session.id);
    Ok(Response::Logs(LogFiles { files: files.into_iter().map(Into::into).collect() }))
}

pub(super) async fn events(daemon: &Arc<Daemon>, asked: Events) -> Reply {
    let limit = asked.limit.clamp(1, EVENTS_MAX) as usize;
    let read = daemon.engine.turn(move |turn| turn.store().events_since(asked.since, limit)).await?;
    let events = read.map_err(|e| Refusal::new(ErrorCode::Storage, e.to_string()))?;
    Ok(Response::Events(events.into_iter().map(redacted).collect()))
}

/// An event as it may be shown: without the environment of a new session.
pub(crate) fn redacted(mut stamped: protocol::Stamped) -> protocol::Stamped {
    if let protocol::Event::SessionCreated(session) = &mut stamped.event {
        session.spec.env.clear();
    }
    stamped
}

pub(super) async fn candidates(daemon: &Arc<Daemon>) -> Reply {
    let context = Arc::clone(daemon);
    let read = move |turn: &mut crate::engine::Turn<'_>| crate::view::candidates(turn, &context);
    Ok(Response::Candidates(daemon.engine.turn(read).await?))
}

pub(super) fn config(daemon: &Daemon) -> Reply {
    let text = daemon.config.borrow().config.to_toml();
    text.map(Response::Text).map_err(|e| Refusal::new(ErrorCode::Failed, e.to_string()))
}

/// Reads the file again. What only a start can change is named.
pub(crate) fn reload(daemon: &Daemon) -> Reply {
    let usage = |e: crate::config::ConfigError| {
        Refusal::new(ErrorCode::Usage, format!("{e}; the configuration is as before"))
    };
    let config = Config::read(&daemon.paths.config).map_err(usage)?;
    let settings = config.settings(&daemon.paths.sessions, daemon.settings().umask).map_err(usage)?;
    let before = daemon.config.borrow().config.clone();
    let restart = before.tmux.socket != config.tmux.socket
        || before.tmux.binary != config.tmux.binary
        || before.tmux.config != config.tmux.config
        || before.watch != config.watch;
    let changed = before != config;
    daemon.config.send_replace(Arc::new(Loaded { config, settings }));
    Ok(Response::Text(match (changed, restart) {
        (false, _) => "nothing changed".to_owned(),
        (true, false) => "the new configuration is in force".to_owned(),
        (true, true) => {
            "in force, but for [tmux] socket, binary, config and [watch], which need a restart of poold"
                .to_owned()
        }
    }))
}
