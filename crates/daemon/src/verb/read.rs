//! Reads: `ls`, `show`, `queue`, `logs`, `events`, `config`.

use crate::engine::turn::Retention;
use pool::reap;
use std::sync::Arc;

use protocol::reply::LogFiles;
use protocol::request::{Events, List, Messages};
use protocol::{
    ErrorCode, Frame, Message, MessageId, OsBytes, Refusal, Reply, Response, SessionId, SessionRef,
};

use crate::config::file::Config;
use crate::decide::blocked::waits;
use crate::decide::queue;
use crate::effect::rules;
use crate::engine::Turn;
use crate::engine::context::{Daemon, Loaded};
use crate::engine::handle::in_doubt;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::host::outbox::Outbox;
use crate::verb::{shown, theme, usage};

/// Finished messages that a listing shows beside the unfinished ones.
const FINISHED_SHOWN: u32 = 100;

/// Messages or events that are read at once.
const PAGE: usize = 500;

/// The most events of one answer.
const EVENTS_MAX: u32 = 100_000;

pub(super) async fn list(daemon: &Arc<Daemon>, filter: List) -> Reply {
    let (socket, context) = (daemon.tmux_socket(), Arc::clone(daemon));
    let read = move |turn: &mut crate::engine::Turn<'_>| {
        // Views are large: a vector that grows copies them again and again.
        let mut views = Vec::with_capacity(turn.pool().sessions().count());
        let listed = turn.pool().sessions().filter(|s| pool::view::listed(s, &filter));
        views.extend(listed.map(|s| shown::shown(turn, &context, &socket, s)));
        Response::Sessions(views)
    };
    daemon.engine.turn(read).await
}

pub(super) async fn show(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = shown::find(daemon, wanted).await?;
    let processes = shown::processes(&session).await;
    let measured = session.clone();
    let usage = blocking::limited(Purpose::Processes, move || usage::measured(&measured)).await;
    let context = Arc::clone(daemon);
    let mut reply = daemon.engine.turn(move |turn| shown::reply(turn, &context, session.id)).await?;
    if let Ok(Response::Session(view)) = &mut reply {
        view.processes = processes;
        view.usage = usage;
        let dir = view.current_dir.clone().unwrap_or_else(|| view.session.spec.cwd.clone());
        view.theme = blocking::limited(Purpose::Theme, move || theme::of(dir.as_path())).await;
    }
    reply
}

pub(super) async fn message(daemon: &Arc<Daemon>, id: MessageId) -> Reply {
    let (message, _) = stored(daemon, id).await?;
    Ok(Response::Message(Box::new(message)))
}

pub(super) async fn body(daemon: &Arc<Daemon>, id: MessageId) -> Reply {
    let (_, body) = stored(daemon, id).await?;
    Ok(Response::Body(OsBytes(body)))
}

async fn stored(daemon: &Arc<Daemon>, id: MessageId) -> Result<(Message, Vec<u8>), Refusal> {
    let read = move |turn: &mut Turn<'_>| {
        let mut found = queue::message(turn, id)?;
        if let Some((message, _)) = &mut found {
            explain(message, waits(turn, message.session).as_ref());
        }
        found.ok_or_else(|| queue::absent(id))
    };
    daemon.engine.turn(read).await?
}

/// A prompt that waits says why.
fn explain(message: &mut Message, waits: Option<&(MessageId, String)>) {
    let why =
        waits.filter(|(id, _)| *id == message.id && message.status.state == protocol::MessageState::Queued);
    if let Some((_, why)) = why {
        message.status.reason = Some(why.clone());
    }
}

/// All that are not over, and the newest that are.
pub(crate) async fn messages(daemon: &Arc<Daemon>, session: SessionRef, to: (&Outbox, u64)) -> Reply {
    let all = Messages { session, kinds: Vec::new(), states: Vec::new(), limit: FINISHED_SHOWN };
    list_messages(daemon, all, u32::MAX, to).await
}

pub(crate) async fn some_messages(daemon: &Arc<Daemon>, asked: Messages, to: (&Outbox, u64)) -> Reply {
    let open = asked.limit;
    list_messages(daemon, asked, open, to).await
}

/// The first so many that are not over, in the order in which they were queued, and the newest that are.
/// Read from the disk, elsewhere, and sent in parts as fast as the client reads.
async fn list_messages(
    daemon: &Arc<Daemon>,
    asked: Messages,
    open: u32,
    (outbox, id): (&Outbox, u64),
) -> Reply {
    let choose = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?.id;
        Ok((chosen(turn, session, &asked, open), waits(turn, session), turn.reader()))
    };
    let (ids, waits, reader) = daemon.engine.turn(choose).await??;
    for ids in ids.chunks(PAGE) {
        let (ids, reader) = (ids.to_vec(), reader.clone());
        let read = blocking::unlimited(Purpose::Reads, move || reader.messages(&ids))
            .await
            .map_err(blocking::refusal)?;
        let mut messages = read.map_err(|e| failed(daemon, &e))?;
        messages.iter_mut().for_each(|message| explain(message, waits.as_ref()));
        let part = Response::Messages(messages);
        let (parts, last) = crate::host::chunks::split(part);
        for part in parts.into_iter().chain(last) {
            outbox.send(Frame::Part { id, part }).await.map_err(|_| in_doubt())?;
        }
    }
    Ok(Response::Messages(Vec::new()))
}

pub(super) fn chosen(turn: &Turn<'_>, session: SessionId, asked: &Messages, open: u32) -> Vec<MessageId> {
    let of_kind = |kind: &str| asked.kinds.is_empty() || asked.kinds.iter().any(|wanted| wanted == kind);
    let of_state = |state| asked.states.is_empty() || asked.states.contains(&state);
    let waiting = turn.pool().open_messages_of(session).filter(|m| of_kind(m.kind) && of_state(m.state));
    let mut ids: Vec<MessageId> = waiting.map(|m| m.id).collect();
    ids.sort_unstable();
    ids.truncate(open as usize);
    let over = turn.pool().over_messages_of(session);
    let mut over: Vec<_> =
        over.filter(|(_, state, kind, _)| of_kind(kind) && of_state(*state)).map(|m| (m.3, m.0)).collect();
    over.sort_unstable();
    let newest = over.len().saturating_sub(asked.limit as usize);
    ids.extend(over[newest..].iter().map(|(_, id)| *id));
    ids.sort_unstable();
    ids
}

/// The engine learns of it with its next turn: after a failure nothing is answered any more.
fn failed(daemon: &Daemon, error: &store::StoreError) -> Refusal {
    daemon.engine.post(|_| ());
    Refusal::new(ErrorCode::Storage, error.to_string())
}

pub(super) async fn logs(daemon: &Arc<Daemon>, wanted: SessionRef) -> Reply {
    let session = shown::find(daemon, wanted).await?;
    Ok(Response::Logs(LogFiles { dir: daemon.paths.session(session.id).join("logs").into() }))
}

/// Read elsewhere, page by page, and sent as fast as the client reads.
pub(crate) async fn events(daemon: &Arc<Daemon>, asked: Events, (outbox, id): (&Outbox, u64)) -> Reply {
    let (mut since, mut left) = (asked.since, asked.limit.clamp(1, EVENTS_MAX) as usize);
    let reader = daemon.engine.turn(|turn| turn.reader()).await?;
    while left > 0 {
        let (reader, page) = (reader.clone(), left.min(PAGE));
        let read = blocking::unlimited(Purpose::Reads, move || reader.events_since(since, page));
        let events = read.await.map_err(|_| in_doubt())?.map_err(|e| failed(daemon, &e))?;
        let Some(last) = events.last() else { break };
        (since, left) = (last.seq, left - events.len());
        let (parts, last) =
            crate::host::chunks::split(Response::Events(events.into_iter().map(redacted).collect()));
        for part in parts.into_iter().chain(last) {
            outbox.send(Frame::Part { id, part }).await.map_err(|_| in_doubt())?;
        }
    }
    Ok(Response::Events(Vec::new()))
}

/// An event as it may be shown.
pub(crate) fn redacted(mut stamped: protocol::Stamped) -> protocol::Stamped {
    pool::redacted::event(&mut stamped.event);
    stamped
}

/// What should be dead now, and which running sessions a rule would end.
pub(super) async fn candidates(daemon: &Arc<Daemon>) -> Reply {
    rules::sample(daemon).await;
    let context = Arc::clone(daemon);
    let read = move |turn: &mut Turn<'_>| {
        let (settings, now) = (context.settings(), (turn.now(), turn.mono()));
        let named = reap::candidates(turn.pool(), turn.volatile, &settings, now);
        named.into_iter().chain(reap::would_end(turn, &settings)).collect()
    };
    Ok(Response::Candidates(daemon.engine.turn(read).await?))
}

pub(super) fn config(daemon: &Daemon) -> Reply {
    let loaded = daemon.loaded();
    let text = loaded.config.to_toml().map_err(|e| Refusal::new(ErrorCode::Failed, e.to_string()))?;
    let waits = needs_restart(&daemon.first_config, &loaded.config);
    let note = if waits {
        format!("# Not in force before a restart of poold: {AT_START}.\n")
    } else {
        String::new()
    };
    Ok(Response::Text(note + &text))
}

/// What is taken from the configuration at a start alone.
const AT_START: &str = "[tmux] socket, binary, config and [watch]";

fn needs_restart(started_with: &Config, config: &Config) -> bool {
    started_with.tmux.socket != config.tmux.socket
        || started_with.tmux.binary != config.tmux.binary
        || started_with.tmux.config != config.tmux.config
        || started_with.watch != config.watch
}

/// Reads the file again. What only a start can change is named.
pub(crate) fn reload(daemon: &Daemon) -> Reply {
    let usage = |e: crate::config::values::ConfigError| {
        Refusal::new(ErrorCode::Usage, format!("{e}; the configuration is as before"))
    };
    let config = Config::read(&daemon.paths.config).map_err(usage)?;
    let settings = config.settings(&daemon.paths.sessions, daemon.settings().umask).map_err(usage)?;
    let before = daemon.config.borrow().config.clone();
    let restart = needs_restart(&daemon.first_config, &config);
    let changed = before != config;
    let min_free_disk = config.min_free_disk().map_err(usage)?;
    let (keep, keep_for) = (config.events.keep, config.keep_events_for().map_err(usage)?);
    let life = config.life().map_err(usage)?;
    let settings = pool::Settings { bounds: daemon.settings().bounds, ..settings };
    daemon.config.send_replace(Arc::new(Loaded { config, settings, min_free_disk, life }));
    daemon.engine.post(move |turn| turn.set_retention(Retention { events: keep, age: keep_for }));
    Ok(Response::Text(match (changed, restart) {
        (false, _) => "nothing changed".to_owned(),
        (true, false) => "the new configuration is in force".to_owned(),
        (true, true) => {
            format!("in force, but for {AT_START}, which need a restart of poold")
        }
    }))
}
