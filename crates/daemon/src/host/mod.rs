//! The machine, as the daemon uses it: files, directories, clocks, threads for blocking work. Nothing here knows the pool.

pub(crate) mod archive;
pub(crate) mod blocking;
pub(crate) mod capacity;
pub(crate) mod chunks;
pub(crate) mod clock;
pub(crate) mod digest;
pub(crate) mod dir_watcher;
pub(crate) mod disk_reserve;
pub(crate) mod disk_room;
pub(crate) mod disk_usage;
pub(crate) mod fatal;
pub(crate) mod files;
pub(crate) mod identity;
pub(crate) mod outbox;
pub(crate) mod programs;
pub(crate) mod remove_tree;
pub(crate) mod short_tmp;
pub(crate) mod timeline;
