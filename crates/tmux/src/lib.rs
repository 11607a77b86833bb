//! tmux as a typed device: the only crate that runs tmux. It knows nothing of pools.
//!
//! Every call of [`Device`] is one command line with a deadline and an output cap; [`Live`] is a lasting
//! connection. An answer counts only with its end mark. Panes are addressed by id under a known server
//! identity and guarded by their tag, which the server checks in the same queue pass as the effect.
//!
//! The modules, in the order in which a call travels. [`driver`] is the trait that callers use, and `fake`
//! its in-memory implementation for tests. [`create`], `adopt`, [`act`], [`typing`], `pane_snapshot` and
//! `log_pipe` build the effects, wrapped by `guard` and recorded by [`receipt`]; [`keys`], [`mod@format`] and
//! `command` hold their words. `execute` runs a command line: by `direct`, which speaks tmux's socket
//! protocol (`imsg`), or by a tmux client, and [`trust`] checks first that the server belongs to this user;
//! `binary` checks that the client is new enough.
//! For observation, `query` builds a read and proves its answer, [`listing`] is the answer for a whole
//! server, and [`live`] delivers notifications and reads over one connection.

pub mod act;
mod adopt;
pub mod attach;
mod binary;
mod command;
pub mod create;
mod device;
mod direct;
pub mod driver;
mod error;
mod execute;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod format;
mod guard;
mod imsg;
pub mod keys;
pub mod listing;
pub mod live;
mod log_pipe;
mod pane_snapshot;
#[cfg(any(test, feature = "testing"))]
pub mod parsers;
mod query;
pub mod receipt;
pub mod server_config;
pub mod trust;
pub mod typing;
pub mod version;

pub use adopt::Adopt;
pub use create::{Create, Created, Size};
pub use device::{DEADLINE, Device, Direct, OUTPUT_CAP, Supported};
pub use driver::{Call, Driver};
pub use error::TmuxError;
pub use guard::{Answer, PaneRef, ServerRef};
pub use keys::Key;
pub use listing::Listing;
pub use live::Live;
pub use log_pipe::LogOptions;
pub use pane_snapshot::PaneSnapshot;
pub use receipt::Receipt;
