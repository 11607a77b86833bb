//! A session's whole life: its ends, its wait for a slot, its limits, its remains, and its return.

mod exits;
mod limits;
mod logs;
mod many;
mod over;
mod parking;
mod points;
mod reboot;
mod restarts;
mod secrets;
mod slots;
pub(crate) mod support;
