//! tmux as a typed device: the only crate that runs tmux. It knows nothing of pools.
//!
//! Every call of [`Device`] is one short-lived tmux client with a deadline and an output cap; [`Live`]
//! is a connection that stays. Every answer is believed only with its end mark. Panes are addressed by
//! id under a known server identity and guarded by their tag, checked by the server in the same queue
//! pass as the effect.

pub mod act;
mod adopt;
pub mod attach;
mod command;
pub mod config;
pub mod create;
mod device;
mod direct;
pub mod driver;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod format;
mod guard;
mod imsg;
pub mod keys;
pub mod live;
mod log;
pub mod observe;
pub mod owner;
mod query;
pub mod receipt;
mod run;
mod terminal;
pub mod typing;
pub mod version;

pub use adopt::Adopt;
pub use create::{Create, Created, Size};
pub use device::{DEADLINE, Device, OUTPUT_CAP};
pub use direct::Direct;
pub use driver::{Call, Driver};
pub use error::TmuxError;
pub use guard::{Answer, PaneRef, ServerRef};
pub use keys::Key;
pub use live::Live;
pub use log::LogOptions;
pub use observe::Listing;
pub use receipt::Receipt;
pub use terminal::Glance;
