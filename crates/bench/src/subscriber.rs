//! Subscription to a pool's events, with the time of each arrival.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use protocol::blocking::Connection;
use protocol::request::Subscribe;
use protocol::{Event, Frame, Hello, Request, Role};

/// Time after which an event counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// An event with its time of arrival.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) event: Event,
}

/// A subscription, read by a thread of its own.
#[derive(Debug)]
pub(crate) struct Subscriber {
    events: Receiver<Result<Seen>>,
}

impl Subscriber {
    /// Subscribes; returns once all later events will be received.
    pub(crate) fn connect(socket: &Path, pool: &str) -> Result<Self> {
        let hello = Hello::new(Role::Subscriber, pool, "bench");
        let (mut connection, _welcome) = Connection::connect(socket, &hello)?;
        connection.send(Request::Subscribe(Subscribe { since: None }))?;
        loop {
            match connection.next_frame()? {
                Frame::Synced { .. } => break,
                Frame::Reply { reply: Err(refusal), .. } => bail!("{refusal}"),
                _ => {}
            }
        }
        connection.set_timeout(None);
        let (to, events) = mpsc::channel();
        thread::spawn(move || {
            if let Err(error) = follow(connection, &to) {
                // The receiver may be gone.
                drop(to.send(Err(error)));
            }
        });
        Ok(Self { events })
    }

    /// Returns the next event that is `wanted`, skipping others. `None` if none arrives within
    /// [`PATIENCE`].
    pub(crate) fn wait(&self, mut wanted: impl FnMut(&Event) -> bool) -> Result<Option<Seen>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.next(deadline.saturating_duration_since(Instant::now()))? {
                Some(seen) if wanted(&seen.event) => return Ok(Some(seen)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// Skips events until none has arrived for this time.
    pub(crate) fn quiet(&self, time: Duration) -> Result<()> {
        while self.next(time)?.is_some() {}
        Ok(())
    }

    fn next(&self, within: Duration) -> Result<Option<Seen>> {
        match self.events.recv_timeout(within) {
            Ok(seen) => seen.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the subscription ended"),
        }
    }
}

fn follow(mut connection: Connection, to: &Sender<Result<Seen>>) -> Result<()> {
    loop {
        match connection.next_frame()? {
            Frame::Event { stamped, .. } => {
                let seen = Seen { at: Instant::now(), event: stamped.event };
                if to.send(Ok(seen)).is_err() {
                    return Ok(());
                }
            }
            Frame::Lagged { from, to } => bail!("the subscriber was too slow: {from} to {to}"),
            Frame::Reply { reply: Err(refusal), .. } => bail!("{refusal}"),
            _ => {}
        }
    }
}
