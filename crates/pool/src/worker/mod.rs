//! Workers: processes outside of the panes that work messages.

pub(crate) mod state;

pub use state::{Registration, Worker, Workers};
