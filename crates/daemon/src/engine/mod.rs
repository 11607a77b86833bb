//! The engine, and the ways into it. In the order in which a piece of work travels: a [`Handle`](handle::Handle) sends it, the
//! [`thread`] takes it in batches ([`pace`]), a [`Turn`] decides on it, the commit is published ([`publish`]), and those who wait for
//! something ([`waiting`]) go on. [`context::Daemon`] is what all parts of the daemon share.

pub(crate) mod cgroups;
pub(crate) mod context;
pub(crate) mod handle;
pub(crate) mod pace;
pub(crate) mod publish;
pub(crate) mod thread;
pub(crate) mod turn;
pub(crate) mod waiting;

pub(crate) use crate::engine::publish::Sighting;
pub(crate) use crate::engine::turn::Turn;
