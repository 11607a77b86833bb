//! Processes of the operating system: identification, inspection, signalling, and proof that they have ended;
//! also the init and the log writer that run inside a pane. The only crate that sends signals. Synchronous.
//!
//! Three rules hold everywhere. A signal is sent through a [`handle::Handle`], which is opened before the
//! identity of the process is checked, so that a reused pid never receives one. Pid 0 and 1, the caller and
//! its ancestors, processes of other users, and process groups (except that of an init's own program) are
//! never signalled. A process tree counts as gone after two consecutive empty scans.
//!
//! The modules in the order in which data travels:
//!
//! - Reads: [`bounded_reads`] keeps a process that does not answer from delaying the others.
//! - Identity and handles: `platform` reads the operating system (`/proc`, libproc) into the records of
//!   `info`; [`identity`] names a process by pid and start time; [`handle`] holds one to signal it and to
//!   wait for it; [`exits`] reports the exits of many through one descriptor.
//! - Control groups: [`cgroup`] creates, lists, kills and removes them.
//! - Trees and scans: [`tree`] takes a snapshot of all processes and finds the members of a session
//!   incarnation; [`tree::marker_scan`] finds all processes with a tmux-pool environment marker,
//!   [`tree::listeners`] those that listen on a Unix socket, [`tree::Table`] the descendants to display.
//! - Signals: [`kill`] ends a tree by the TERM/KILL ladder, except the daemons that are spared.
//! - Inspection: [`inspect`] reads the foreground program, resource use, unread terminal input and the free
//!   capacity of the machine.
//! - Inside a pane: [`init`] (`reaper exec`) runs the program of a session, [`log_writer`] (`reaper log`)
//!   records its output.
//! - The pool's own programs: [`runtime`] has their crash points, log files, limits, and ways to start
//!   children.

mod error;
mod info;
mod platform;

pub mod bounded_reads;
pub mod cgroup;
pub mod exits;
pub mod handle;
pub mod identity;
pub mod init;
pub mod inspect;
pub mod kill;
pub mod log_writer;
pub mod runtime;
pub mod tree;

#[cfg(test)]
mod testing;

pub use error::Error;
pub use platform::proc;
