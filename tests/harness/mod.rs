//! Basis of every system test: a hermetic pool, waiting for conditions, processes, counted skips.

mod chance;
mod daemons;
mod mount;
mod outer;
mod output;
mod pool;
mod procs;
mod talk;
mod wait;

pub(crate) use chance::Chance;
pub(crate) use daemons::Program;
pub(crate) use mount::Mount;
pub(crate) use outer::Outer;
pub(crate) use output::{Output, clock_ms};
pub(crate) use pool::{Pool, skipped};
pub(crate) use procs::{
    alive, children, descendants, environ, gone, is_stopped, log_writers, parent, pids, send_signal, words,
};
pub(crate) use talk::Talk;
pub(crate) use wait::{PATIENCE, eventually, number, pause, wait_until};
