//! Scratch files, for data whose size is known only at the end.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::path::Path;

use crate::host::archive::part_file;

/// An unlinked temporary file: written once, then read once.
pub(crate) struct ScratchFile {
    file: BufWriter<File>,
    /// Bytes written.
    pub(crate) length: u64,
}

impl ScratchFile {
    /// Creates a scratch file; `purpose` distinguishes it from others of the same archive.
    pub(crate) fn new(archives: &Path, name: &str, purpose: &str) -> io::Result<Self> {
        let (path, file) = part_file::create(archives, &format!("{name}.{purpose}"))?;
        fs::remove_file(path)?;
        Ok(Self { file: BufWriter::new(file), length: 0 })
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Writes everything to the file, so that a full disk is noticed here.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Returns a reader from the beginning.
    pub(crate) fn read(self) -> io::Result<BufReader<File>> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(BufReader::new(file))
    }
}
