//! `generators`: workers, the agents of sessions, and clients that hold claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use pool::queue;
use pool::worker::{Worker, takes_kind};
use protocol::reply::{ClaimView, GeneratorView};
use protocol::request::ClaimRef;
use protocol::worker::ClaimScope;
use protocol::{GeneratorId, Lifecycle, PROMPT, Reply, Response, Session, SessionId, Timestamp};

use crate::decide::queue::deadline_at;
use crate::engine::{Daemon, Turn, process_of};
use crate::sense::quiet;

pub(super) async fn generators(daemon: &Arc<Daemon>) -> Reply {
    quiet::refresh(daemon).await?;
    let read = move |turn: &mut Turn<'_>| {
        Ok(Response::Generators(list(turn, turn.volatile.scheduler.quiet_since())))
    };
    daemon.engine.turn(read).await?
}

/// Lists all generators. `last_output_at` is the time of each program's last output.
fn list(turn: &Turn<'_>, last_output_at: &BTreeMap<SessionId, Timestamp>) -> Vec<GeneratorView> {
    let live = turn.pool().user_sessions().filter(|session| session.lifecycle == Lifecycle::Live);
    let agents = live.map(|session| agent(turn, session, last_output_at));
    let workers = turn.volatile.workers.iter();
    agents.chain(workers.filter_map(|(connection, peer)| worker(turn, connection, peer))).collect()
}

/// Returns the view of the agent of a session.
fn agent(
    turn: &Turn<'_>,
    session: &Session,
    last_output_at: &BTreeMap<SessionId, Timestamp>,
) -> GeneratorView {
    let run = session.incarnation.as_ref();
    let output_at = last_output_at.get(&session.id).copied();
    let active = std::iter::once(session.last_activity_at).chain(output_at);
    GeneratorView {
        id: None,
        generation: u64::from(session.incarnations),
        session: Some(session.id),
        name: Some(session.name.clone()),
        sessions: session.name.to_string(),
        role: "agent".to_owned(),
        kinds: vec![PROMPT.to_owned()],
        process: run.and_then(process_of),
        since: session.changed_at,
        last_activity_at: turn.pool().latest_shown(turn.now(), active).unwrap_or_default(),
        holds: claims(turn, |open| open.session == session.id && open.kind == PROMPT),
    }
}

/// Returns the view of a connection that is registered, or holds claims.
fn worker(turn: &Turn<'_>, connection: u64, worker: &Worker) -> Option<GeneratorView> {
    let registered = worker.registration();
    // A generator may renew its claims over another connection than the one that it registered on.
    let host = registered.and_then(|registered| match &registered.scope {
        ClaimScope::Host(tag) => Some(*tag),
        ClaimScope::Sessions(_) => None,
    });
    // A host that has registered again after a restart of the daemon keeps its claims by its incarnation.
    let is_its_own = |open: &queue::PendingMessage<'_>| {
        host.is_some_and(|host| open.holder.and_then(|holder| holder.host) == Some(host))
            || match (registered, open.holder.and_then(|holder| holder.generator)) {
                (Some(registered), generator) if generator == Some(registered.id) => true,
                // A worker that has registered again keeps the claims of its earlier registration.
                (Some(registered), Some(former)) => {
                    let is_same = open.holder.and_then(|holder| holder.process) == worker.process();
                    is_same
                        && worker.process().is_some()
                        && is_former(turn, former)
                        && takes_kind(&registered.kinds, open.kind)
                }
                (Some(_), None) => false,
                (None, Some(_)) => false,
                (None, None) => turn.volatile.workers.connection_of(open.id) == Some(connection),
            }
    };
    let held = || turn.pool().held_messages().filter(|open| is_its_own(open)).map(|open| open.session);
    let session = match registered {
        Some(registered) => registered.session,
        None => Some(held().next()?),
    };
    let name = session.and_then(|session| Some(turn.pool().session(session)?.name.clone()));
    let sessions = registered.map(|registered| pool::worker::scope_text(turn.pool(), &registered.scope));
    Some(GeneratorView {
        id: registered.map(|r| r.id),
        generation: registered.map_or(connection, |r| r.id.0),
        session,
        sessions: sessions.or_else(|| Some(name.as_ref()?.to_string())).unwrap_or_default(),
        name,
        role: if registered.is_some() { "worker" } else { "client" }.to_owned(),
        kinds: registered.map(|r| r.kinds.clone()).unwrap_or_default(),
        process: worker.process(),
        since: worker.connected_at(),
        last_activity_at: worker.last_seen_at(),
        holds: claims(turn, is_its_own),
    })
}

/// True if no connection has this registration any more.
fn is_former(turn: &Turn<'_>, id: GeneratorId) -> bool {
    !turn.volatile.workers.iter().any(|(_, worker)| worker.registration().is_some_and(|found| found.id == id))
}

/// Returns the claims on messages that `filter` selects.
fn claims(turn: &Turn<'_>, filter: impl Fn(&queue::PendingMessage<'_>) -> bool) -> Vec<ClaimView> {
    let held = turn.pool().held_messages().filter(filter);
    let view = |open: queue::PendingMessage<'_>| {
        Some(ClaimView {
            held: ClaimRef { id: open.id, token: open.token? },
            session: open.session,
            kind: open.kind.to_owned(),
            deadline_at: deadline_at(turn, open.id),
        })
    };
    held.filter_map(view).collect()
}
