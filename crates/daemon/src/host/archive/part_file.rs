//! Temporary files of an archive, beside it in its directory.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// File name suffix of unfinished archives.
pub(crate) const SUFFIX: &str = ".part";

/// An archive without its final name; removed when dropped.
pub(crate) struct PartFile(pub(crate) PathBuf);

impl PartFile {
    /// Creates the file for the archive of this name.
    pub(crate) fn new(archives: &Path, name: &str) -> io::Result<(Self, File)> {
        let (path, file) = create(archives, name)?;
        Ok((Self(path), file))
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        // An archive that was finished has another name by now; this removes what is left of one that failed.
        drop(fs::remove_file(&self.0));
    }
}

/// Creates a hidden file, with mode 0600, beside the archive of this name.
pub(crate) fn create(archives: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    let path = archives.join(format!(".{name}{SUFFIX}"));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}
