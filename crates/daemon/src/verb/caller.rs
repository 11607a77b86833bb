//! The connection of a client's request.

use protocol::{ProcId, Refusal};

use crate::host::outbox::Outbox;
use crate::verb::answer_parts::Parts;

/// The client connection that a request came from: claims and registrations end with it.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) connection: u64,
    /// The client's process, as identified when it connected.
    pub(crate) process: Option<ProcId>,
    /// True for the role `generator`, which may register.
    pub(crate) is_generator: bool,
    /// Receives the parts of long answers.
    pub(crate) outbox: Outbox,
}

impl Caller {
    /// Returns the sender of the parts of a call's answer.
    pub(super) fn parts(&self, call: u64) -> Parts<'_> {
        Parts { outbox: &self.outbox, call }
    }
}

/// Returns the refusal of a request that the role of its connection does not allow.
pub(super) fn other_role() -> Refusal {
    Refusal::usage("that request belongs to another role")
}
