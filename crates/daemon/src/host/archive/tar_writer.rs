//! Writes the entries of an archive into the compressed tar, and records each for the verification.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::stat::FileStat;
use protocol::Timestamp;
use tar::{Builder, EntryType, Header};

use crate::host::archive::contents::{ArchiveError, ZEROS_MAX};
use crate::host::archive::scratch_file::ScratchFile;
use crate::host::archive::verify::EntryRecord;
use crate::host::dir_tree::shown;

/// An archive being written.
pub(crate) struct TarWriter {
    tar: Builder<GzEncoder<File>>,
    /// The record of each entry.
    records: ScratchFile,
    /// The archive's final path, for errors.
    archive: PathBuf,
    /// Time of the archive, which generated files get.
    now: Timestamp,
}

/// The difference between a stored file and its announced size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizeChange {
    None,
    /// The number of missing bytes, stored as zeros.
    Shrank(u64),
    /// It has more bytes, which are left out.
    Grew,
}

impl TarWriter {
    pub(crate) fn new(file: File, records: ScratchFile, archive: &Path, now: Timestamp) -> Self {
        let tar = Builder::new(GzEncoder::new(file, Compression::default()));
        Self { tar, records, archive: archive.to_owned(), now }
    }

    /// Returns the error of a failed write.
    pub(crate) fn failed(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Write { path: self.archive.clone(), source }
    }

    /// Adds a generated file of `size` bytes.
    pub(crate) fn add_generated(
        &mut self,
        path: &Path,
        size: u64,
        from: impl Read,
    ) -> Result<(), ArchiveError> {
        let mut header = header(EntryType::Regular, size);
        header.set_mode(0o600);
        header.set_mtime(self.now.0 / 1000);
        self.entry(path, header, b"", from).map(|_| ())
    }

    /// Adds the contents of a scratch file.
    pub(crate) fn add_scratch(&mut self, path: &Path, scratch: ScratchFile) -> Result<(), ArchiveError> {
        let size = scratch.length;
        let from = scratch.read().map_err(|error| self.failed(error))?;
        self.add_generated(path, size, from)
    }

    /// Adds a file with its metadata.
    pub(crate) fn add_file(
        &mut self,
        path: &Path,
        meta: &Metadata,
        from: File,
    ) -> Result<SizeChange, ArchiveError> {
        let mut header = header(EntryType::Regular, meta.len());
        set_metadata(&mut header, meta);
        self.entry(path, header, b"", from)
    }

    /// Adds a directory without its entries.
    pub(crate) fn add_dir(&mut self, path: &Path, meta: &Metadata) -> Result<(), ArchiveError> {
        let mut header = header(EntryType::Directory, 0);
        set_metadata(&mut header, meta);
        self.entry(path, header, b"", io::empty()).map(|_| ())
    }

    /// Adds a symbolic link; its target is stored byte for byte.
    pub(crate) fn add_symlink(
        &mut self,
        path: &Path,
        stat: &FileStat,
        target: &[u8],
    ) -> Result<(), ArchiveError> {
        let mut header = header(EntryType::Symlink, 0);
        header.set_mode(0o777);
        set_owner(&mut header, stat.st_uid, stat.st_gid, stat.st_mtime);
        if header.set_link_name_literal(target).is_err() {
            self.long_link(target).map_err(|error| self.failed(error))?;
        }
        self.entry(path, header, target, io::empty()).map(|_| ())
    }

    /// Writes the target of the next entry, which is too long for its header: GNU's extension, ended by a
    /// zero byte.
    fn long_link(&mut self, target: &[u8]) -> io::Result<()> {
        let mut header = header(EntryType::GNULongLink, target.len() as u64 + 1);
        header.set_path("././@LongLink")?;
        header.set_mode(0o644);
        header.set_cksum();
        self.tar.append(&header, target.chain(&b"\0"[..]))
    }

    fn entry(
        &mut self,
        path: &Path,
        mut header: Header,
        target: &[u8],
        from: impl Read,
    ) -> Result<SizeChange, ArchiveError> {
        let size = header.entry_size().map_err(|error| self.failed(error))?;
        let mut data = ExactReader::new(from, size, target);
        let put = self.tar.append_data(&mut header, path, &mut data);
        if let Some(source) = data.error.take() {
            return Err(ArchiveError::Read { path: shown(path), source });
        }
        let (kind, change, digest) = (header.entry_type(), data.change(), data.hash.finalize());
        let record = EntryRecord { path: path.as_os_str().as_bytes(), kind, size, digest };
        put.and_then(|()| self.records.add(&record.bytes())).map_err(|error| self.failed(error))?;
        Ok(change)
    }

    /// Ends the archive. Returns the file, not yet synced, and the records of its entries.
    pub(crate) fn finish(self) -> Result<(File, ScratchFile), ArchiveError> {
        let Self { tar, mut records, archive: path, .. } = self;
        let file = records.flush().and_then(|()| tar.into_inner()).and_then(GzEncoder::finish);
        Ok((file.map_err(|source| ArchiveError::Write { path, source })?, records))
    }
}

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header
}

fn set_metadata(header: &mut Header, meta: &Metadata) {
    header.set_mode(meta.mode() & 0o7777);
    set_owner(header, meta.uid(), meta.gid(), meta.mtime());
}

fn set_owner(header: &mut Header, uid: u32, gid: u32, mtime: i64) {
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    header.set_mtime(mtime.try_into().unwrap_or(0));
}

/// A reader of exactly `left` bytes, whatever happens to their source meanwhile.
struct ExactReader<R> {
    from: R,
    left: u64,
    /// Zero bytes in place of missing ones.
    padded: u64,
    hash: Hasher,
    /// The error of the source.
    error: Option<io::Error>,
}

impl<R: Read> ExactReader<R> {
    /// Creates a reader; its digest begins with that of `before`.
    fn new(from: R, left: u64, before: &[u8]) -> Self {
        let mut hash = Hasher::new();
        hash.update(before);
        Self { from, left, padded: 0, hash, error: None }
    }

    fn change(&mut self) -> SizeChange {
        match self.padded {
            0 if matches!(self.from.read(&mut [0]), Ok(1)) => SizeChange::Grew,
            0 => SizeChange::None,
            padded => SizeChange::Shrank(padded),
        }
    }
}

impl<R: Read> Read for ExactReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..most];
        let mut read = 0;
        if self.padded == 0 {
            read = self.from.read(buffer).map_err(|error| match error.kind() {
                ErrorKind::Interrupted => error,
                kind => {
                    self.error = Some(error);
                    kind.into()
                }
            })?;
        }
        if read == 0 {
            if self.left > ZEROS_MAX {
                self.error = Some(io::Error::other("it shrank while it was read; try again"));
                return Err(ErrorKind::UnexpectedEof.into());
            }
            buffer.fill(0);
            self.padded += most as u64;
            read = most;
        }
        self.hash.update(&buffer[..read]);
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(from: &[u8], size: u64) -> (Vec<u8>, SizeChange) {
        let mut exact = ExactReader::new(from, size, b"");
        let mut got = Vec::new();
        exact.read_to_end(&mut got).unwrap();
        (got, exact.change())
    }

    #[test]
    fn what_grows_is_cut_and_what_shrinks_is_padded() {
        assert_eq!(exact(b"abc", 3), (b"abc".to_vec(), SizeChange::None));
        assert_eq!(exact(b"abc", 2), (b"ab".to_vec(), SizeChange::Grew));
        assert_eq!(exact(b"abc", 5), (b"abc\0\0".to_vec(), SizeChange::Shrank(2)));
        assert_eq!(exact(b"", 0), (vec![], SizeChange::None));
        let mut shrunk = ExactReader::new(&b"abc"[..], ZEROS_MAX + 4, b"");
        shrunk.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(shrunk.error.is_some(), "it would be padded for minutes");
    }
}
