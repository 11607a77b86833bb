//! The queue on the real programs: an acknowledged message is stored, has one holder at a time, and ends in a
//! reported final state.

pub(crate) mod support;

mod breaker;
mod care;
mod crowd;
mod events;
mod fleet;
mod health;
mod keys;
mod leases;
mod life;
mod limits;
mod loops;
mod promises;
mod waits;
mod workers;
