//! The store against random histories, power cuts, failing disks, flipped bits and old files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backend;
mod care;
mod crash;
mod damage;
mod faults;
mod files;
mod migrate;
mod rows;
mod speed;
mod world;
