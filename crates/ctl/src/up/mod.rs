//! The supervisor that `poolctl up` runs: it keeps the three daemons of a pool running on a machine without a
//! service manager.

pub(crate) mod builds;
pub(crate) mod health;
pub(crate) mod orphans;
pub(crate) mod programs;
pub(crate) mod service;
pub(crate) mod started;
pub(crate) mod stop;
pub(crate) mod supervisor;
mod watchdog;
