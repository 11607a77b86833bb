//! Connections: who may connect, the hello, and what each role may do.

pub(crate) mod connection;
pub(crate) mod listen;
pub(crate) mod role;
