//! Connections, in the order in which one is made: the socket ([`listen`]), [`accept`] with its limits, the
//! [`handshake`], and what each [`role`] may request.

pub(crate) mod accept;
mod answer;
mod connection;
mod handshake;
pub(crate) mod listen;
mod registration;
mod role;
