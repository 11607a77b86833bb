//! What is measured: whoever takes messages and keeps them.

use std::time::Duration;

use anyhow::Result;

use super::drive::{self, Client, Done, Until};

/// Bytes of each message.
pub(super) const BODY: [u8; 256] = [b'x'; 256];

/// What a client does, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Hands a message over; answered when it is on disk.
    Enqueue,
    /// Hands one over to a queue of its own, takes it from there, and settles it.
    Cycle,
}

/// What all clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) work: Work,
    pub(super) clients: usize,
}

/// Whoever takes messages.
pub(super) trait Subject {
    /// For the table.
    fn name(&self) -> &'static str;

    /// Whether it can do that.
    fn can(&self, load: Load) -> bool;

    /// Does it for so long.
    ///
    /// # Errors
    /// It fails.
    fn run(&mut self, load: Load, time: Duration) -> Result<Done>;
}

/// A [`Subject`] that listens.
pub(super) trait Server {
    /// For the table.
    fn name(&self) -> &'static str;

    /// Whether it can do that.
    fn can(&self, load: Load) -> bool;

    /// The client with this number.
    ///
    /// # Errors
    /// It is not connected.
    fn client(&self, work: Work, number: usize) -> Result<Client>;
}

impl<S: Server> Subject for S {
    fn name(&self) -> &'static str {
        Server::name(self)
    }

    fn can(&self, load: Load) -> bool {
        Server::can(self, load)
    }

    fn run(&mut self, load: Load, time: Duration) -> Result<Done> {
        let clients = (0..load.clients).map(|number| self.client(load.work, number));
        let mut clients = clients.collect::<Result<Vec<_>>>()?;
        // What only the first operations cost is not measured.
        drive::drive(&mut clients, 1, Until::Count(load.clients))?;
        drive::drive(&mut clients, 1, Until::Time(time))
    }
}
