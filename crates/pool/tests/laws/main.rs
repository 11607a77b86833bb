//! The laws of the core.
#![expect(clippy::unwrap_used, reason = "what a test needs is there, or the test fails")]

mod adopt;
mod budget;
mod creation;
mod lives;
mod locks;
mod parking;
mod queue;
mod random;
mod reconcile;
mod rules;
mod sessions;
mod strays;
mod update;
mod world;
