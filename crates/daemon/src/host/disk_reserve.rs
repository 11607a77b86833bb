//! Reserves disk blocks behind the end of the database, so that sessions can still be ended and removed on a full disk.
//! Deleting a spare file when the disk is full would not do: any other program could take the freed space first.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use store::{Store, StoreError};

/// Bytes reserved behind the end of the file: enough for some thousand commits, as freed pages are reused.
const RESERVE: u64 = 8 << 20;

/// Bytes of one of the blocks in which the space of a file is counted.
const BLOCK: u64 = 512;

/// Preallocates the database's whole length and [`RESERVE`] more, or half of what is free. This is best effort: not
/// every file system supports it, and copy-on-write file systems gain nothing by it.
pub(crate) fn preallocate(database: &Path) {
    let Some(free) = process::inspect::machine::free_disk(database) else { return };
    keep(database, RESERVE.min(free / 2));
}

/// Closes the database, and reserves anew what was reserved for it. The close cuts the file, which frees all space
/// behind its end, and the next start needs that on a disk that something else keeps full.
pub(crate) fn close(store: Store) -> Result<(), StoreError> {
    let path = store.path();
    let found = || path.as_deref().and_then(|path| fs::metadata(path).ok());
    let allocated = found().map_or(0, |found| found.blocks() * BLOCK);
    let closed = store.close();
    if let (Some(path), Some(found)) = (&path, found()) {
        keep(path, RESERVE.min(allocated.saturating_sub(found.len())));
    }
    closed
}

fn keep(database: &Path, reserve: u64) {
    if let Err(error) = allocate(database, reserve) {
        tracing::debug!(%error, "no room is kept for the database");
    }
}

#[cfg(target_os = "linux")]
fn allocate(database: &Path, reserve: u64) -> std::io::Result<()> {
    use nix::fcntl::{FallocateFlags, fallocate};
    let file = fs::OpenOptions::new().write(true).open(database)?;
    let length = i64::try_from(file.metadata()?.len() + reserve).map_err(std::io::Error::other)?;
    // Holes and the space behind the end are allocated; the length stays.
    Ok(fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length)?)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &Path, _: u64) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
