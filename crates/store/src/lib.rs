//! Durable storage of a pool: one redb file, one writer thread, no policy.
//!
//! # Durability
//! When [`Store::commit`] returns `Ok`, all of its events survive a crash of the process, of the system and
//! of the power supply. Until then either all of them are stored or none. A commit that fails is in doubt:
//! the next open may find it. Every open finds the state after a prefix of the commits, and that prefix
//! contains every commit that returned `Ok`.
//!
//! The first failure of the storage latches the store: it neither reads nor writes any more, since continuing
//! after a failed write loses data. Opening the file again clears the latch.
//!
//! # Rows
//! The rows are authoritative. A row holds an event: the one that, applied to an empty pool, yields the row's
//! content. [`Store::open`] rebuilds the pool from rows alone; the journal only serves subscribers. A
//! message's row is the very event that queued it, at its place in the journal, together with its body.
//!
//! # Modules, in the order in which the data travels
//! - Opening: `open` creates the file (`atomic_file`) or opens it (`database` holds redb's settings);
//!   `schema` reads the version stamp, and `migrate` creates the tables or upgrades them. `overlay` lets an
//!   older or unknown file be examined without changing it.
//! - Loading: `load` applies every row to a [`pool::Pool`], messages by `load::scan`; records that cannot be
//!   read go to `quarantine`.
//! - Writing: `writer` ([`Store`]) hands each batch to `commit`, which maps events to rows. `transaction` has
//!   the tables of a redb transaction, `tables` their names and keys, `record` the encoding and the checksum
//!   of a row.
//! - Reading: [`Reader`] reads messages and `journal` events, from any thread, beside the writer.
//! - [`maintenance`]: backup, check, export, import, compaction.

mod atomic_file;
mod commit;
mod database;
mod error;
mod journal;
mod load;
pub mod maintenance;
mod migrate;
mod open;
mod overlay;
mod quarantine;
mod reader;
mod record;
mod schema;
mod tables;
mod transaction;
mod writer;

pub use error::{RecordError, StoreError};
pub use journal::TRIM_MAX;
pub use load::{Loaded, Timeline};
pub use quarantine::Quarantined;
pub use reader::Reader;
pub use schema::SCHEMA;
pub use tables::Table;
pub use writer::Store;
