//! Agents: what they are told, what they do, what is seen of it.

mod activity;
mod approve;
mod conversation;
mod delivery;
mod doubt;
mod fakes;
mod gates;
mod inbox;
mod kept;
mod limits;
mod live;
mod plain;
mod reports;
mod seen;
mod spool;
mod texts;
mod thoughts;
mod wiring;
