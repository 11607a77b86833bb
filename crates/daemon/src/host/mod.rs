//! The machine as the daemon uses it: files and directories, readings of the clocks, limits of blocking work.
//! Nothing here knows the configuration or the engine.

pub(crate) mod archive;
pub(crate) mod blocking_pool;
pub(crate) mod chunks;
pub(crate) mod clock;
pub(crate) mod configured;
pub(crate) mod dir_tree;
pub(crate) mod dir_watcher;
pub(crate) mod disk_reserve;
pub(crate) mod disk_usage;
pub(crate) mod display_cache;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod free_disk;
pub(crate) mod log_writer_end;
pub(crate) mod machine_sample;
pub(crate) mod outbox;
pub(crate) mod program_path;
pub(crate) mod random;
pub(crate) mod removals;
pub(crate) mod remove_tree;
pub(crate) mod short_tmp;
pub(crate) mod shutdown_progress;
pub(crate) mod theme;
pub(crate) mod timeline;
pub(crate) mod two_slot_file;
