//! The store against random histories, power cuts, failing disks, flipped bits, and files of other versions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backend;
mod crash;
mod damage;
mod faults;
mod files;
mod history;
mod maintenance;
mod rng;
mod rows;
mod size;
mod speed;
