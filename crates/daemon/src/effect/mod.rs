//! Effects on the world, one each: performed under the session's lock, after the decision is on disk.

pub(crate) mod cgroup;
pub(crate) mod dialog;
pub(crate) mod keep_screen;
pub(crate) mod launch;
pub(crate) mod leftover;
pub(crate) mod park;
pub(crate) mod rules;
pub(crate) mod slot;
