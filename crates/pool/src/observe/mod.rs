//! Observation of tmux: the state as last seen ([`Observed`]), and what follows from it ([`take_in`]).

pub(crate) mod state;
pub(crate) mod take_in;

pub use state::{Observed, Peer, Sight, Update};
pub use take_in::{Findings, IN_TRANSIT, Outcome, Suspects, accounted, in_front, observe, suspects, take_in};
