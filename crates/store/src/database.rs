//! redb databases as the store opens and creates them.

use std::io;
use std::path::Path;

use redb::{Builder, Database, DatabaseError, StorageError};

use crate::error::StoreError;

/// Memory for pages, in bytes.
const CACHE: usize = 16 << 20;
/// Size up to which each open verifies every page's checksum, in bytes (2 to 4 ms per MiB). Without the
/// verification, a file with one flipped bit serves wrong data every other time.
pub(crate) const INTEGRITY_MAX: u64 = 64 << 20;

/// Returns redb's builder with the store's settings. `integrity`: verify all pages at open. `progress` is
/// called with 0.0 to 1.0 during a repair.
pub(crate) fn builder(integrity: bool, progress: impl Fn(f64) + 'static) -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE);
    builder.set_check_integrity_on_open(integrity);
    builder.set_repair_callback(move |repair| progress(repair.progress()));
    builder
}

/// Creates a database without tables in an empty file.
pub(crate) fn create(path: &Path) -> Result<Database, StoreError> {
    Ok(builder(false, |_| {}).create(path)?)
}

/// Converts an error of an open: there, unreadable bytes mean damage, whatever redb calls them.
pub(crate) fn open_error(error: DatabaseError) -> StoreError {
    match error {
        DatabaseError::Storage(StorageError::Io(error))
            if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            StoreError::Damaged(error.to_string())
        }
        other => other.into(),
    }
}
