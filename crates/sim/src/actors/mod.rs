//! Actors on the pool: clients and people, workers, the reaper, the watcher, a subscriber.

pub(crate) mod approver;
pub(crate) mod client;
pub(crate) mod doctor;
pub(crate) mod errands;
pub(crate) mod person;
pub(crate) mod reaper;
pub(crate) mod subscriber;
pub(crate) mod watcher;
pub(crate) mod worker;
