//! A session's whole life: how it ends, what it waits for, what bounds it, what is left of it, and how it
//! comes back.

mod exits;
mod limits;
mod logs;
mod over;
mod parking;
mod points;
mod reboot;
mod restarts;
mod secrets;
mod slots;
mod support;
