//! The earlier parts of a log, as listed from its directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use protocol::logs::{self, part_name};

use super::access::{is_shortage, open_file};

/// Minimum size of a gzip file: a header of ten bytes, two of an empty block, a trailer of eight.
const GZIP_MIN: u64 = 20;

/// An earlier part of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first byte in the log.
    pub offset: u64,
    /// Number of bytes of the log in it; 0 if it only marks its offset, or is damaged.
    pub length: u64,
    /// Size on disk, in bytes.
    pub size: u64,
    pub compressed: bool,
}

impl Part {
    /// The offset after its last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Its file name.
    pub fn name(&self) -> String {
        part_name(self.offset, self.compressed)
    }
}

/// The earlier parts of a log, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts(pub Vec<Part>);

impl Parts {
    /// Lists the parts of a log that may be changing: repeats until two listings are equal.
    pub fn list_stable(dir: &Path) -> io::Result<Self> {
        let mut parts = Self::list(dir)?;
        loop {
            let again = Self::list(dir)?;
            if again == parts {
                return Ok(parts);
            }
            parts = again;
        }
    }

    /// Lists the parts of a log that does not change meanwhile; none if the directory does not exist.
    pub(super) fn list(dir: &Path) -> io::Result<Self> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            entries => entries?,
        };
        let mut parts = BTreeMap::<u64, Part>::new();
        for entry in entries {
            let entry = entry?;
            let Some((offset, compressed)) = entry.file_name().to_str().and_then(logs::parse_part) else {
                continue;
            };
            let size = match entry.metadata() {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                found => found?.len(),
            };
            let length = if compressed { uncompressed_length(&entry.path(), size)? } else { Some(size) };
            let Some(length) = length else { continue };
            let part = Part { offset, length, size, compressed };
            let plain = |one: Part, other: Part| if one.compressed { other } else { one };
            let both = |known: Part| Part { size: known.size + size, ..plain(known, part) };
            let part = parts.get(&offset).map_or(part, |known| both(*known));
            parts.insert(offset, part);
        }
        let mut parts: Vec<Part> = parts.into_values().collect();
        // A damaged part can claim any length.
        for at in 1..parts.len() {
            let room = parts[at].offset - parts[at - 1].offset;
            parts[at - 1].length = parts[at - 1].length.min(room);
        }
        Ok(Self(parts))
    }

    /// The offset of the first byte that is kept.
    pub fn start(&self) -> u64 {
        self.0.first().map_or(0, |part| part.offset)
    }

    /// The offset at which `output.log` begins.
    pub fn end(&self) -> u64 {
        self.0.last().map_or(0, Part::end)
    }

    /// Total size on disk, in bytes.
    pub fn size(&self) -> u64 {
        self.0.iter().map(|part| part.size).sum()
    }
}

/// Reads the uncompressed length from the trailer of a gzip file; 0 if it is not one, `None` if it is gone.
fn uncompressed_length(path: &Path, size: u64) -> io::Result<Option<u64>> {
    let read = || {
        let mut file = open_file(path)?;
        file.seek(SeekFrom::End(-4))?;
        let mut length = [0; 4];
        file.read_exact(&mut length).map(|()| u32::from_le_bytes(length))
    };
    if size < GZIP_MIN {
        return Ok(Some(0));
    }
    match read() {
        Ok(length) => Ok(Some(length.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if is_shortage(&error) => Err(error),
        Err(_) => Ok(Some(0)),
    }
}
