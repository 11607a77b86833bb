//! Tests with a real tmux, each on a server of its own behind a socket in a temporary directory.

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

mod adopt;
mod client;
mod direct;
mod fake;
mod guard;
mod lifecycle;
mod live;
mod log;
mod support;
mod terminal;
mod typing;
