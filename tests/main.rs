//! The system tests: the real programs, each test with a pool, a tmux server and directories of its own.

#![expect(clippy::unwrap_used, reason = "a panic is the failure of a test")]

mod agents;
// Arbitrary values of any wire type, built by a chosen rule; shared with the protocol's tests.
#[expect(dead_code, reason = "the rest is used by the tests of the protocol")]
#[path = "../crates/protocol/tests/any.rs"]
mod any;
mod behaviour;
mod faults;
mod harness;
mod layers;
mod life;
mod manual;
mod queue;
mod reaping;
mod tidy;
mod watching;
