//! The schema version of a file, a number in [`Table::Meta`]. A file of an unsupported version is refused
//! before anything is written to it.

use redb::{ReadTransaction, TableHandle};

use crate::error::StoreError;
use crate::record::seal;
use crate::tables::{SCHEMA_KEY, Table, number_key};
use crate::transaction::meta_number;

/// The schema version that this build writes. Version 1 is that of tmux-pool 0.1.
pub const SCHEMA: u32 = 1;

/// The table that held the version in development builds before 0.1, whose schemas were numbered 1 to 5.
const UNRELEASED_META: &str = "meta-1";

/// Returns the record of the schema version.
pub(crate) fn record(version: u32) -> Vec<u8> {
    seal(Table::Meta.name(), SCHEMA_KEY, &[&number_key(u64::from(version))])
}

/// Returns the version of a file; none if the file has no tables yet.
pub(crate) fn version(read: &ReadTransaction) -> Result<Option<u32>, StoreError> {
    let tables: Vec<String> = read.list_tables()?.map(|table| table.name().to_owned()).collect();
    let has = |name: &str| tables.iter().any(|table| table == name);
    if tables.is_empty() {
        return Ok(None);
    }
    if !has(Table::Meta.name()) && has(UNRELEASED_META) {
        return Err(StoreError::Obsolete("the schema of a development build before 0.1".to_owned()));
    }
    let version = meta_number(read, SCHEMA_KEY)?;
    let version = version.ok_or_else(|| StoreError::Damaged("it has no schema version".to_owned()))?;
    let version =
        u32::try_from(version).map_err(|_| StoreError::Damaged(format!("schema version {version}")))?;
    Ok(Some(version))
}
