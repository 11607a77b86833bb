//! Hears every event of a pool as soon as it is published, and notes when.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use protocol::blocking::Connection;
use protocol::request::Subscribe;
use protocol::{Event, Frame, Hello, Request, Role};

/// What was not heard of for so long is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// An event, and when it arrived.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) event: Event,
}

/// A subscription that a thread of its own reads.
#[derive(Debug)]
pub(crate) struct Subscriber {
    events: Receiver<Result<Seen>>,
}

impl Subscriber {
    /// Subscribes: all that happens after this is heard.
    ///
    /// # Errors
    /// No daemon there, or it does not send its state.
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
                // Whoever does not listen any more does not want to know.
                drop(to.send(Err(error)));
            }
        });
        Ok(Self { events })
    }

    /// The next event that is `wanted`; those before it are passed over. `None` where it does not come
    /// within [`PATIENCE`].
    ///
    /// # Errors
    /// The subscription ended.
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

    /// Passes over events until none has come for so long.
    ///
    /// # Errors
    /// The subscription ended.
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
