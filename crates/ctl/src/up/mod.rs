//! The small supervisor that `poolctl up` is: it keeps the three daemons of a pool running where
//! no service manager does.

pub(crate) mod builds;
pub(crate) mod health;
pub(crate) mod kept;
pub(crate) mod lock;
pub(crate) mod orphans;
pub(crate) mod programs;
pub(crate) mod service;
pub(crate) mod supervisor;
mod watchdog;
