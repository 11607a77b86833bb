//! Keeps the lock by a sign of life every third of its lease, on a connection of its own that survives the
//! daemon's restart.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use protocol::reply::Locked;

use super::{Event, is_gone, is_lost, renewal};
use crate::client::Client;

/// So many signs of life fit a lease.
const BEATS: u32 = 3;
/// Time between two tries where one came to nothing.
const PAUSE: Duration = Duration::from_millis(200);

/// Begins, with a sign of life at once: the lock may have been given while this was stopped. Ends when what is
/// returned is dropped.
pub(super) fn start(mut client: Client, locked: Locked, events: Sender<Event>) -> Sender<()> {
    let every = (Duration::from_millis(locked.lease_ms) / BEATS).max(Duration::from_millis(1));
    let (running, stopped) = mpsc::channel::<()>();
    thread::spawn(move || {
        let mut pause = Duration::ZERO;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let asked = Instant::now();
            // Whoever listened may be gone, and this soon will be.
            pause = match client.ask_once(renewal(&locked), every) {
                Ok(_) => {
                    drop(events.send(Event::Kept(asked)));
                    every
                }
                Err(error) if is_gone(&error) => {
                    drop(events.send(Event::Gone));
                    return;
                }
                Err(error) if is_lost(&error) => {
                    drop(events.send(Event::Lost(error.to_string())));
                    return;
                }
                Err(_) => every.min(PAUSE),
            };
        }
    });
    running
}
