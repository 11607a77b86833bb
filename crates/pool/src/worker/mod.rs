//! Workers: external processes that claim messages. A claim is a token and a lease; the decisions on both are
//! in [`crate::queue`], and the leases themselves are volatile.

pub(crate) mod state;

pub use state::{Registration, WaitingRequest, Worker, Workers};
