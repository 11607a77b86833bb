//! One operating-system process, identified safely: who it is, what belongs to it, how it is ended
//! and shown to be gone; the small init of a session and its log writer. The only crate that sends
//! signals. Synchronous.
//!
//! Three rules hold everywhere. A signal goes through a [`handle::Handle`], which holds the process
//! before its identity is checked, so that a reused number never gets one. Never signalled are pid
//! 0 and 1, the caller and its ancestors, processes of other users, and the group of anything but
//! an init's own program. And gone means proved: two empty looks in a row.

pub mod arenas;
pub mod census;
pub mod cgroup;
pub mod crash;
pub mod dependent;
pub mod detach;
pub mod env;
mod error;
pub mod exits;
pub mod file;
pub mod handle;
pub mod identity;
pub mod init;
pub mod kill;
pub mod ladder;
pub mod limits;
pub mod log_writer;
pub mod logfile;
mod look;
pub mod machine;
mod marks;
pub mod place;
pub mod proc;
pub mod serve;
pub mod spare;
#[cfg(test)]
mod testing;
pub mod tree;
pub mod unread;
pub mod usage;
pub mod vitals;

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(target_os = "macos", path = "macos.rs")]
mod platform;

pub use error::Error;
