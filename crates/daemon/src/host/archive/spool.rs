//! A file without a name, for what is only known as it goes by.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::path::Path;

/// Written once, then read once.
pub(crate) struct Spool {
    file: BufWriter<File>,
    pub(crate) length: u64,
}

impl Spool {
    /// `what` tells it from others of the same archive.
    pub(crate) fn new(archives: &Path, name: &str, what: &str) -> io::Result<Self> {
        let (path, file) = crate::host::archive::beside(archives, &format!("{name}.{what}"))?;
        fs::remove_file(path)?;
        Ok(Self { file: BufWriter::new(file), length: 0 })
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Gives all of it to the file, where a full disk shows.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// From its beginning.
    pub(crate) fn read(self) -> io::Result<BufReader<File>> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(BufReader::new(file))
    }
}
