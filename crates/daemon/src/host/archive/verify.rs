//! What an archive should hold, noted as it is written, and whether it does, read again from disk.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek};

use crc32fast::Hasher;
use flate2::bufread::GzDecoder;
use tar::{Archive, Entry, EntryType};

use crate::host::archive::spool::Spool;

/// One entry of an archive.
pub(crate) struct Record<'a> {
    /// Its path in the archive.
    pub(crate) path: &'a [u8],
    pub(crate) kind: EntryType,
    /// Bytes of what it holds.
    pub(crate) size: u64,
    /// CRC-32 of what it holds, or of where a link points.
    pub(crate) digest: u32,
}

impl Record<'_> {
    /// As it is noted: fields of fixed size, then the path, each led by its length.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = (self.path.len() as u64).to_le_bytes().to_vec();
        bytes.push(self.kind.as_byte());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.digest.to_le_bytes());
        bytes.extend(self.path);
        bytes
    }
}

/// Compares the file with what was noted of each entry, to its last byte. What is wrong comes in words.
pub(crate) fn verify(mut file: File, records: Spool) -> Result<(), String> {
    forget_pages(&file);
    let said = |error: io::Error| error.to_string();
    file.rewind().map_err(said)?;
    let mut records = records.read().map_err(said)?;
    let mut tar = Archive::new(GzDecoder::new(BufReader::new(file)));
    for entry in tar.entries().map_err(said)? {
        check(&mut entry.map_err(said)?, &mut records)?;
    }
    if !records.fill_buf().map_err(said)?.is_empty() {
        return Err("it ends too soon".to_owned());
    }
    // The checksum of all comes at the very end.
    let mut rest = tar.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(said)?;
    match rest.into_inner().fill_buf().map_err(said)? {
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
    let found = Record { path: &path, kind, size, digest: hash.finalize() }.bytes();
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

/// So that it is read from the disk, not from memory.
#[cfg(target_os = "linux")]
fn forget_pages(file: &File) {
    use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
    // A file system that cannot is read from memory; the comparison still holds.
    _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

#[cfg(not(target_os = "linux"))]
fn forget_pages(_: &File) {}
