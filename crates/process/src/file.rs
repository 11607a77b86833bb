//! Files that somebody else may have put in place of the one that is meant.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// Device and inode: which file it is, whatever it is called.
#[must_use]
pub fn id(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Opens a regular file and nothing else, without waiting for the other end of a pipe; with `O_NOFOLLOW` among the flags
/// no symbolic link either.
///
/// # Errors
/// It cannot be opened, or is no regular file.
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
