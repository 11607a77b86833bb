//! Answers that are sent in parts, as fast as the client reads.

use protocol::{Frame, Refusal, Response};

use crate::engine::in_doubt;
use crate::host::chunks;
use crate::host::outbox::Outbox;

/// The parts of the answer to one call.
pub(super) struct Parts<'a> {
    pub(super) outbox: &'a Outbox,
    pub(super) call: u64,
}

impl Parts<'_> {
    /// Sends a part, in as many frames as it takes. Waits while the client is slow.
    pub(super) async fn send(&self, part: Response) -> Result<(), Refusal> {
        let (parts, last) = chunks::split(part);
        for part in parts.into_iter().chain(last) {
            self.outbox.send(Frame::Part { id: self.call, part }).await.map_err(|_| in_doubt())?;
        }
        Ok(())
    }
}
