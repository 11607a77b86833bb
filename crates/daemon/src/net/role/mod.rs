//! What a connection is for: one file a role.

pub(crate) mod client;
pub(crate) mod output;
pub(crate) mod reaper;
pub(crate) mod subscriber;
pub(crate) mod watcher;

use std::sync::Arc;

use protocol::{Event, Hello, ProcId, Refusal, Role};

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::engine::handle::Handle;
use crate::net::connection::{Connection, role_word};

/// That a peer is taken in: however its connection ends, even before its welcome, it is forgotten.
pub(crate) struct Registration {
    engine: Handle,
    id: u64,
    why: String,
}

impl Registration {
    pub(crate) fn new(daemon: &Daemon, id: u64) -> Self {
        Self { engine: daemon.engine.clone(), id, why: "it went away".to_owned() }
    }

    /// Why its connection ends.
    pub(crate) fn ends(&mut self, why: String) {
        self.why = why;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let (id, why) = (self.id, std::mem::take(&mut self.why));
        self.engine.post(move |turn| {
            left(turn, id);
            watcher::forget(turn, id, why);
            reaper::forget(turn, id);
        });
    }
}

/// A connection that may have claimed messages has ended.
fn left(turn: &mut Turn<'_>, id: u64) {
    let mono = turn.mono();
    if let Some(registered) =
        turn.volatile.workers.connection_ended(id, mono).and_then(|worker| worker.registration)
    {
        let (id, session) = (registered.id, registered.session);
        turn.emit(Event::GeneratorEnded { id, session, reason: "its connection ended".to_owned() });
    }
}

/// Takes a peer in under its role, before it is welcomed.
///
/// # Errors
/// A second watcher.
pub(crate) async fn admit(
    daemon: &Arc<Daemon>,
    id: u64,
    hello: &Hello,
    (pid, process): (Option<u32>, Option<ProcId>),
) -> Result<(), Refusal> {
    match hello.role {
        Role::Watcher | Role::NextWatcher => watcher::admit(daemon, id, hello, pid).await,
        Role::Reaper => reaper::admit(daemon, id, hello, pid).await,
        Role::Client | Role::Generator => client::admit(daemon, id, process).await,
        Role::Subscriber => Ok(()),
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(daemon: &Arc<Daemon>, connection: Connection) {
    let (id, role) = (connection.id, connection.hello.role);
    tracing::debug!(
        id,
        role = role_word(role),
        pid = connection.pid,
        build = connection.hello.build,
        "connected"
    );
    match role {
        Role::Watcher | Role::NextWatcher => watcher::serve(daemon, connection).await,
        Role::Reaper => reaper::serve(daemon, connection).await,
        Role::Subscriber => subscriber::serve(daemon, connection).await,
        Role::Client | Role::Generator => client::serve(daemon, connection).await,
    }
    tracing::debug!(id, role = role_word(role), "disconnected");
}
