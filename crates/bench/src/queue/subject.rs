//! Measured subjects: queues that store messages durably.

use std::time::Duration;

use anyhow::Result;

use super::drive::{self, Client, Done, Until};

/// Body of each message.
pub(super) const BODY: [u8; 256] = [b'x'; 256];

/// Operation that a client repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Enqueues a message; complete when it is on disk.
    Enqueue,
    /// Enqueues a message to a queue of its own, claims it, and acks it.
    Cycle,
}

/// Operation and number of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) work: Work,
    pub(super) clients: usize,
}

/// A measured queue.
pub(super) trait Subject {
    /// Name in the table.
    fn name(&self) -> &'static str;

    /// True if it supports this load.
    fn can(&self, load: Load) -> bool;

    fn run(&mut self, load: Load, time: Duration) -> Result<Done>;
}

/// A [`Subject`] with a socket.
pub(super) trait Server {
    /// Name in the table.
    fn name(&self) -> &'static str;

    /// True if it supports this load.
    fn can(&self, _load: Load) -> bool {
        true
    }

    /// Connects the client with this number.
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
        // The extra cost of the first operations is not measured.
        drive::drive(&mut clients, 1, Until::Count(load.clients))?;
        drive::drive(&mut clients, 1, Until::Time(time))
    }
}
