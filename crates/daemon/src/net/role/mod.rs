//! The roles of connections, one file each.

mod client;
mod output;
mod reaper;
mod reaper_leases;
mod reaper_silence;
mod subscriber;
mod watcher;

use std::sync::Arc;

use protocol::{Hello, ProcId, Refusal, Role};

use crate::engine::Daemon;
use crate::net::connection::{Connection, role_name};

/// Registers a peer under its role, before its welcome.
///
/// # Errors
/// Conflict: a second watcher that does not take over.
pub(super) async fn register(
    daemon: &Arc<Daemon>,
    id: u64,
    hello: &Hello,
    (pid, process): (Option<u32>, Option<ProcId>),
) -> Result<(), Refusal> {
    match hello.role {
        Role::Watcher | Role::NextWatcher => watcher::register(daemon, id, hello, pid).await,
        Role::Reaper => reaper::register(daemon, id, hello, pid).await,
        Role::Client | Role::Generator => client::register(daemon, id, process).await,
        Role::Subscriber => Ok(()),
    }
}

/// Serves a connection until it ends.
pub(super) async fn serve(daemon: &Arc<Daemon>, connection: Connection) {
    let (id, role) = (connection.id, connection.hello.role);
    let (name, build) = (role_name(role), &connection.hello.build);
    tracing::debug!(id, role = name, pid = connection.pid, build, "connected");
    match role {
        Role::Watcher | Role::NextWatcher => watcher::serve(daemon, connection).await,
        Role::Reaper => reaper::serve(daemon, connection).await,
        Role::Subscriber => subscriber::serve(daemon, connection).await,
        Role::Client | Role::Generator => client::serve(daemon, connection).await,
    }
    tracing::debug!(id, role = name, "disconnected");
}
