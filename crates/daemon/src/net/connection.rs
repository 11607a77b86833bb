//! A connection after its handshake.

use protocol::aio::FrameReader;
use protocol::{Hello, ProcId, Role};
use world::transport::Receiver;

use crate::host::outbox::Outbox;
use crate::net::registration::Registration;

/// A connection after its handshake.
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) hello: Hello,
    pub(crate) pid: Option<u32>,
    /// The peer's process, as identified when it connected.
    pub(crate) process: Option<ProcId>,
    pub(crate) reader: FrameReader<Receiver>,
    pub(crate) outbox: Outbox,
    pub(crate) registration: Registration,
}

/// Returns the name of a role in the log.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Watcher | Role::NextWatcher => "watcher",
        Role::Reaper => "reaper",
        Role::Generator => "generator",
        Role::Subscriber => "subscriber",
    }
}
