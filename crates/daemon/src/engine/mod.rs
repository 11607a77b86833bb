//! The engine: the one thread that owns the pool and its store. In the order in which a piece of work
//! travels: an [`EngineHandle`](engine_handle::EngineHandle) sends it to the [`work_queue`], the [`thread`]
//! takes it in batches ([`batching`]), a [`Turn`] decides it, the commit is published ([`publish`]), and waiting
//! tasks ([`waiters`]) continue. [`daemon::Daemon`] is the state that all parts of the daemon share.

pub(crate) mod batching;
pub(crate) mod cgroups;
pub(crate) mod daemon;
pub(crate) mod engine_handle;
pub(crate) mod publish;
pub(crate) mod sample_requests;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod thread;
pub(crate) mod turn;
pub(crate) mod turn_counter;
pub(crate) mod waiters;
pub(crate) mod work_queue;

// The items that the rest of the daemon imports.
pub(crate) use crate::engine::cgroups::CgroupState;
pub(crate) use crate::engine::daemon::{BUILD, Daemon, LoadedConfig, pane_of, process_of, tmux_size};
pub(crate) use crate::engine::engine_handle::{EngineHandle, TurnOnDrop, WaitsFor, in_doubt};
pub(crate) use crate::engine::publish::{ObservedTmux, Publisher};
pub(crate) use crate::engine::sample_requests::SampleRequests;
pub(crate) use crate::engine::thread::{Engine, EngineEnd};
pub(crate) use crate::engine::turn::{Turn, Work};
pub(crate) use crate::engine::waiters::{LockWaiter, RunningOperation};
