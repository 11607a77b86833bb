//! Control groups of version 2 (Linux), used through the file system: `find` locates the group of a process,
//! `subtree` is the part of the hierarchy in which the pool creates its own, `group` has the operations on
//! one group. On a system without control groups no [`Subtree`] can be opened, and every group is empty.

mod find;
mod group;
mod subtree;

pub(crate) use group::{contains, flat_keyed_value};
pub use group::{is_populated, kill, oom_kills, processes, remove};
pub use subtree::{Group, Subtree};

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
