//! Brings a file to this build's schema: creates the tables of a new file, upgrades a file of an older schema
//! in one transaction (after a copy of the file was made), and refuses every other.
//!
//! [`SCHEMA`] 1 is the first released schema, so there is no migration yet. To write the first one: raise
//! `SCHEMA` to 2; give each table whose rows change its next name in `tables`; add a module `migrate::v1`
//! with the changed types as version 1 encoded them, and a function that rewrites the rows of the old tables;
//! list it in [`MIGRATIONS`]. `migrate/tests.rs` does so for a made-up version 0. The files in `tests/data`
//! stay, and a test opens each.

use std::fs;
use std::path::Path;

use redb::{Database, ReadableDatabase, WriteTransaction};

use crate::atomic_file::{Directory, create_or_replace, with_suffix};
use crate::database::{INTEGRITY_MAX, builder};
use crate::error::StoreError;
use crate::overlay::Overlay;
use crate::schema::{self, SCHEMA};
use crate::tables::{SCHEMA_KEY, Table};
use crate::transaction::Tables;

/// Rewrites, and then removes, the tables that one version had and the current one does not have. A table
/// that is not there counts as empty: after an import, all rows are in the current tables already.
type Migration = fn(&WriteTransaction, &mut Tables<'_>) -> Result<(), StoreError>;

/// The migrations, each with the version that it upgrades: ascending, without gaps, up to `SCHEMA - 1`.
const MIGRATIONS: &[(u32, Migration)] = &[
    #[cfg(test)]
    (0, tests::from_v0),
];

/// Returns the oldest version that this build can read.
pub(crate) fn oldest() -> u32 {
    MIGRATIONS.first().map_or(SCHEMA, |(version, _)| *version)
}

/// Creates the tables of an empty file; upgrades a file of an older version. `keep` makes a copy of the file,
/// and is called before an older file is changed.
pub(crate) fn prepare(
    db: &Database,
    keep: impl FnOnce(u32) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let version = schema::version(&db.begin_read()?)?;
    if version == Some(SCHEMA) {
        return Ok(());
    }
    if let Some(version) = version {
        check(version)?;
        keep(version)?;
    }
    let transaction = db.begin_write()?;
    let mut tables = Tables::new(&transaction);
    tables.create_all()?;
    upgrade(&transaction, &mut tables, version.unwrap_or(SCHEMA))?;
    drop(tables);
    Ok(transaction.commit()?)
}

/// Upgrades the tables from this version to [`SCHEMA`], within the caller's transaction.
pub(crate) fn upgrade(
    transaction: &WriteTransaction,
    tables: &mut Tables<'_>,
    version: u32,
) -> Result<(), StoreError> {
    for (_, migration) in MIGRATIONS.iter().filter(|(from, _)| *from >= version) {
        migration(transaction, tables)?;
    }
    tables.put(Table::Meta, SCHEMA_KEY, &schema::record(SCHEMA))
}

/// Fails if this build cannot read files of this version.
fn check(version: u32) -> Result<(), StoreError> {
    if version > SCHEMA {
        return Err(StoreError::Newer { found: version, known: SCHEMA });
    }
    if version < oldest() {
        return Err(StoreError::Obsolete(format!("schema {version}")));
    }
    Ok(())
}

/// Returns the version of a file without changing it: the file is opened in memory, or read-only if it is
/// large. Returns none if that does not tell the version. Fails if this build cannot read the file.
pub(crate) fn peek(path: &Path) -> Result<Option<u32>, StoreError> {
    match version_of(path) {
        Ok(Some(version)) => check(version).map(|()| Some(version)),
        Err(error @ StoreError::Obsolete(_)) => Err(error),
        // Any other error is reported when the database is opened.
        Ok(None) | Err(_) => Ok(None),
    }
}

fn version_of(path: &Path) -> Result<Option<u32>, StoreError> {
    if fs::metadata(path)?.len() >= INTEGRITY_MAX {
        return schema::version(&builder(false, |_| {}).open_read_only(path)?.begin_read()?);
    }
    schema::version(&builder(true, |_| {}).create_with_backend(Overlay::over(path)?)?.begin_read()?)
}

/// Makes a copy of a file of this version, `pool.redb.v1`; an existing copy is left alone.
pub(crate) fn keep_copy(directory: &dyn Directory, path: &Path, version: u32) -> Result<(), StoreError> {
    let copy = with_suffix(path, &format!(".v{version}"));
    // A file of another version, or none at all, by this name is no copy, and is replaced.
    if peek(&copy).is_ok_and(|found| found == Some(version)) {
        return Ok(());
    }
    create_or_replace(directory, &copy, |temporary| Ok(fs::copy(path, temporary).map(drop)?))
}

#[cfg(test)]
mod tests;
