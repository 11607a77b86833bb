//! Room on the disk that belongs to the database, however full the disk is: ending what fills it, and freeing what it took,
//! can still be written down. A file of its own to be removed in need would not do: what is freed is taken by whoever
//! writes fastest.

use std::path::Path;

/// How much, in bytes, behind the end of the file: some thousand commits, as freed pages are used again.
const RESERVE: u64 = 8 << 20;

/// Has the file system keep room for all of the database as long as it is, and some more. Best effort: not every file
/// system can (nor, where it writes to another place each time, does it help there), and on a disk that is nearly full
/// already nothing is taken.
pub(crate) fn keep(database: &Path) {
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
    // Holes are filled and room behind the end is taken; its length stays.
    Ok(fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length)?)
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}
