//! The system tests: the real programs, each test with a pool, a tmux server and directories of its own.

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing")]

mod agents;
// Values of any wire type by chosen rules, as in the tests of the protocol.
#[expect(dead_code, reason = "the tests of the protocol use the rest")]
#[path = "../crates/protocol/tests/any.rs"]
mod any;
mod behaviour;
mod faults;
mod harness;
mod life;
mod queue;
mod reaping;
mod tidy;
mod traps;
mod watching;
