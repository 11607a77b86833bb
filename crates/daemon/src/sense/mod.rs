//! Samples of the world, one source each: taken outside of the engine, and handed in.

pub(crate) mod bracketed_paste;
pub(crate) mod capacity;
pub(crate) mod conversation;
pub(crate) mod exit_reports;
pub(crate) mod exits;
pub(crate) mod glance;
pub(crate) mod hook_spool;
pub(crate) mod notification;
pub(crate) mod observe;
pub(crate) mod quiet;
pub(crate) mod rounds;
pub(crate) mod screen;
pub(crate) mod snapshot;
pub(crate) mod subject;
pub(crate) mod transcript;
pub(crate) mod usage;
