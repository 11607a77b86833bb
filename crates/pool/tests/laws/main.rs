//! The laws of the core, as property, model and table tests.
#![expect(clippy::unwrap_used, reason = "what a test needs is there, or the test fails")]

mod activity;
mod adopt;
mod clock;
mod create;
mod dismiss;
mod doubt;
mod hook_event;
mod inbox;
mod lifecycle;
mod lock;
mod orphans;
mod prompt_gates;
mod queue;
mod queue_health;
mod random;
mod reconcile;
mod restart_budget;
mod rules;
mod sessions;
mod shell_progress;
mod slots;
mod stage;
mod thought;
mod transcript;
mod turn;
mod update;
mod world;
