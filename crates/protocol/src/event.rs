//! Events: the single type for facts. The core returns events, the store commits them, and every reader folds
//! them into its state. An event carries new values, never differences, so applying one twice has the same
//! effect as once.

mod agent;
mod fact;
mod lane;
mod properties;
mod stamped;

pub use crate::event_kind::EventKind;
pub use agent::AgentEvent;
pub use fact::Event;
pub use lane::LaneEvent;
pub use stamped::Stamped;
