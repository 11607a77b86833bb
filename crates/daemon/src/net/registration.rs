//! The end of a connection: what the engine knows of its peer is forgotten.

use protocol::Event;

use crate::engine::{Daemon, EngineHandle, Turn};

/// The registration of a connection's peer under its role. Forgotten when it is dropped, however the
/// connection ends, even before its welcome.
pub(crate) struct Registration {
    engine: EngineHandle,
    id: u64,
    /// Reason for the end of the connection.
    reason: String,
}

impl Registration {
    pub(super) fn new(daemon: &Daemon, id: u64) -> Self {
        Self { engine: daemon.engine.clone(), id, reason: "it disconnected".to_owned() }
    }

    /// Sets why the connection ended.
    pub(super) fn set_reason(&mut self, reason: String) {
        self.reason = reason;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let (id, reason) = (self.id, std::mem::take(&mut self.reason));
        self.engine.post(move |turn| {
            forget_worker(turn, id);
            forget_watcher(turn, id, reason);
            forget_reaper(turn, id);
            if turn.volatile.scheduler.connection_ended(id) {
                turn.wake();
            }
        });
    }
}

/// Ends the claims and the registration of the worker at a connection, if there is one.
fn forget_worker(turn: &mut Turn<'_>, id: u64) {
    let mono = turn.mono();
    let worker = turn.volatile.workers.connection_ended(id, mono);
    if let Some(registered) = worker.as_ref().and_then(|worker| worker.registration()) {
        let (id, session) = (registered.id, registered.session);
        turn.emit(Event::GeneratorEnded { id, session, reason: "its connection ended".to_owned() });
    }
}

/// Forgets the watcher, if the connection was its.
fn forget_watcher(turn: &mut Turn<'_>, id: u64, reason: String) {
    let now = turn.now();
    if turn.volatile.observed.connection_ended(id, now) {
        turn.emit(Event::WatcherLost { reason });
    }
}

/// Forgets the reaper at a connection and its leases, if there is one.
fn forget_reaper(turn: &mut Turn<'_>, id: u64) {
    let now = turn.now();
    if turn.volatile.reaping.connection_ended(id, now) {
        turn.wake();
    }
}
