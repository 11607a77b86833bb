//! The queue on the real programs: what is acknowledged is there, worked by one holder at a time, and
//! ends in a final state that is told.

mod support;

mod breaker;
mod care;
mod crowd;
mod events;
mod keys;
mod leases;
mod life;
mod limits;
mod loops;
mod promises;
mod waits;
