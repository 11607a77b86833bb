//! The laws of the core.
#![expect(clippy::unwrap_used, reason = "what a test needs is there, or the test fails")]

mod activity;
mod adopt;
mod budget;
mod clock;
mod creation;
mod delivery;
mod heard;
mod inbox;
mod lives;
mod locks;
mod parking;
mod queue;
mod random;
mod reconcile;
mod rules;
mod sessions;
mod stage;
mod strays;
mod thought;
mod update;
mod world;
