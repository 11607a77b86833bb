//! Agents: their prompts, their reports, and what the pool sees of them.

mod activity;
mod approve;
mod builtins;
mod conversation;
mod delivery;
mod dismiss;
mod doubt;
mod fakes;
mod gates;
mod inbox;
mod kept;
mod limits;
mod live;
mod person;
mod plain;
mod reports;
mod seen;
mod snapshot;
mod spool;
mod texts;
mod thoughts;
mod unfinished;
mod wiring;
