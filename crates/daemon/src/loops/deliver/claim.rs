//! A prompt that is being typed.

use pool::Agent;
use protocol::{Message, Token};
use tmux::PaneRef;

/// What is to be typed, where, with `typing` on disk.
pub(crate) struct Claim {
    pub(crate) token: Token,
    pub(crate) message: Message,
    pub(crate) body: Vec<u8>,
    pub(crate) pane: PaneRef,
    pub(crate) agent: Agent,
}
