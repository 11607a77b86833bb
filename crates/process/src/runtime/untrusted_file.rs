//! Access to files that another program may have replaced.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// Returns device and inode, which identify a file independently of its path.
pub fn id(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Opens a regular file. Anything else is an error, and a FIFO does not block the call; with `O_NOFOLLOW` in
/// `flags` a symbolic link is an error as well.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_regular(options: &mut OpenOptions, flags: OFlag, path: &Path) -> io::Result<(File, Metadata)> {
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = options.custom_flags(flags.bits()).open(path)?;
    let found = file.metadata()?;
    if found.is_file() {
        Ok((file, found))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a file", path.display())))
    }
}
