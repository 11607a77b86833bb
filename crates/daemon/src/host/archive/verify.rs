//! Verifies an archive against the records of its entries, as read again from disk.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek};

use crc32fast::Hasher;
use flate2::bufread::GzDecoder;
use tar::{Archive, Entry, EntryType};

use crate::host::archive::scratch_file::ScratchFile;

/// The record of an archive's entry.
pub(crate) struct EntryRecord<'a> {
    /// Path in the archive.
    pub(crate) path: &'a [u8],
    pub(crate) kind: EntryType,
    /// Size of its contents in bytes.
    pub(crate) size: u64,
    /// CRC-32 of its contents, or of a link's target.
    pub(crate) digest: u32,
}

impl EntryRecord<'_> {
    /// Encodes the record: the length of the path, fields of fixed size, the path.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = (self.path.len() as u64).to_le_bytes().to_vec();
        bytes.push(self.kind.as_byte());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.digest.to_le_bytes());
        bytes.extend(self.path);
        bytes
    }
}

/// Compares the file with the records, to its last byte. The error describes the difference.
pub(crate) fn verify(mut file: File, records: ScratchFile) -> Result<(), String> {
    forget_pages(&file);
    let to_text = |error: io::Error| error.to_string();
    file.rewind().map_err(to_text)?;
    let mut records = records.read().map_err(to_text)?;
    let mut tar = Archive::new(GzDecoder::new(BufReader::new(file)));
    for entry in tar.entries().map_err(to_text)? {
        check(&mut entry.map_err(to_text)?, &mut records)?;
    }
    if !records.fill_buf().map_err(to_text)?.is_empty() {
        return Err("it ends too soon".to_owned());
    }
    // gzip's checksum comes at the very end.
    let mut rest = tar.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(to_text)?;
    match rest.into_inner().fill_buf().map_err(to_text)? {
        [] => Ok(()),
        _ => Err("it goes on after its end".to_owned()),
    }
}

fn check(entry: &mut Entry<'_, impl Read>, records: &mut impl Read) -> Result<(), String> {
    let path = entry.path_bytes().into_owned();
    let differs = |_| format!("{} is not what was put in", path.escape_ascii());
    let mut hash = Hasher::new();
    if let Some(target) = entry.link_name_bytes() {
        hash.update(&target);
    }
    let kind = entry.header().entry_type();
    let size = digest(entry, &mut hash).map_err(differs)?;
    let found = EntryRecord { path: &path, kind, size, digest: hash.finalize() }.bytes();
    let mut noted = vec![0; found.len()];
    records.read_exact(&mut noted).map_err(differs)?;
    if noted == found { Ok(()) } else { Err(differs(ErrorKind::InvalidData.into())) }
}

fn digest(from: &mut impl Read, hash: &mut Hasher) -> io::Result<u64> {
    let mut buffer = [0; 8192];
    let mut size = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(size),
            Ok(read) => {
                hash.update(&buffer[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Drops the file from the page cache, so that it is read from disk.
#[cfg(target_os = "linux")]
fn forget_pages(file: &File) {
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    // If this fails, the file is read from memory rather than from the disk; the comparison holds all the same.
    _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

#[cfg(not(target_os = "linux"))]
fn forget_pages(_: &File) {}
