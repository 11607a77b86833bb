//! Renews the lease every third of its length, on a connection of its own that survives the daemon's restart.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use protocol::reply::Locked;

use super::event::LockEvent;
use super::lease::{is_lost, is_removed, renew};
use crate::{Client, Error, threads};

/// Renewals per lease.
const RENEWALS: u32 = 3;
/// The longest pause after a failed renewal.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Starts the thread, which renews the lease at once: this process may have been stopped since the lock was
/// granted. The thread ends when the returned sender is dropped.
pub(super) fn start(
    mut client: Client,
    locked: Locked,
    events: Sender<LockEvent>,
) -> Result<Sender<()>, Error> {
    let every = (Duration::from_millis(locked.lease_ms) / RENEWALS).max(Duration::from_millis(1));
    let (running, stopped) = mpsc::channel::<()>();
    let renew_all = move || {
        let mut pause = Duration::ZERO;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let asked = Instant::now();
            // Without a receiver this thread is about to end.
            pause = match client.ask_once(renew(&locked), every) {
                Ok(_) => {
                    drop(events.send(LockEvent::Renewed(asked)));
                    every
                }
                Err(error) if is_removed(&error) => {
                    drop(events.send(LockEvent::SessionRemoved));
                    return;
                }
                Err(error) if is_lost(&error) => {
                    drop(events.send(LockEvent::Lost(error.to_string())));
                    return;
                }
                Err(_) => every.min(RETRY_PAUSE),
            };
        }
    };
    threads::require(renew_all).map(|_| running)
}
