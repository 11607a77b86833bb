//! The laws of the core.
#![expect(clippy::unwrap_used, reason = "what a test needs is there, or the test fails")]

mod adopt;
mod budget;
mod creation;
mod lives;
mod parking;
mod queue;
mod random;
mod reconcile;
mod sessions;
mod world;
