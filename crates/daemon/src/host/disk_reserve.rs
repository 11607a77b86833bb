//! Reserves disk blocks for the database behind its end, so that on a full disk sessions can still be ended
//! and removed. A separate file that is deleted in need would not do: whoever writes fastest takes the space.

use std::path::Path;

/// Bytes reserved behind the end of the file: enough for some thousand commits, as freed pages are reused.
const RESERVE: u64 = 8 << 20;

/// Preallocates the database's whole length and [`RESERVE`] more. Best effort: not every file system supports
/// it, on copy-on-write file systems it does not help, and on a nearly full disk nothing is reserved.
pub(crate) fn preallocate(database: &Path) {
    if process::inspect::machine::free_disk(database).is_none_or(|free| free < 4 * RESERVE) {
        return;
    }
    if let Err(error) = allocate(database) {
        tracing::debug!(%error, "no room is kept for the database");
    }
}

#[cfg(target_os = "linux")]
fn allocate(database: &Path) -> std::io::Result<()> {
    use nix::fcntl::{FallocateFlags, fallocate};
    let file = std::fs::OpenOptions::new().write(true).open(database)?;
    let length = i64::try_from(file.metadata()?.len() + RESERVE).map_err(std::io::Error::other)?;
    // Holes and the space behind the end are allocated; the length stays.
    Ok(fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length)?)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
