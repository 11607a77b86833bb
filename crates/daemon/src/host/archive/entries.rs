//! The entries of an archive as they go into the compressed tar, each noted for the comparison.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crc32fast::Hasher;
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::stat::FileStat;
use tar::{Builder, EntryType, Header};

use crate::host::archive::contents::ArchiveError;
use crate::host::archive::spool::Spool;
use crate::host::archive::tree::shown;
use crate::host::archive::verify::Record;

/// The archive as it is written.
pub(crate) struct Entries {
    tar: Builder<GzEncoder<File>>,
    /// What should be in it.
    records: Spool,
    /// The name that it will have, for errors.
    archive: PathBuf,
}

/// How what was stored differs from what was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// So many bytes were missing, and are zeros now.
    Shrank(u64),
    /// There was more, which is left out.
    Grew,
}

impl Entries {
    pub(crate) fn new(file: File, records: Spool, archive: &Path) -> Self {
        let tar = Builder::new(GzEncoder::new(file, Compression::default()));
        Self { tar, records, archive: archive.to_owned() }
    }

    /// An error of writing.
    pub(crate) fn failed(&self, source: io::Error) -> ArchiveError {
        ArchiveError::Write { path: self.archive.clone(), source }
    }

    /// A file of our own, of `size` bytes.
    pub(crate) fn made(&mut self, path: &Path, size: u64, from: impl Read) -> Result<(), ArchiveError> {
        let mut header = header(EntryType::Regular, size);
        header.set_mode(0o600);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        header.set_mtime(now.as_secs());
        self.entry(path, header, b"", from).map(|_| ())
    }

    /// What was gathered for it.
    pub(crate) fn spooled(&mut self, path: &Path, spool: Spool) -> Result<(), ArchiveError> {
        let size = spool.length;
        let from = spool.read().map_err(|error| self.failed(error))?;
        self.made(path, size, from)
    }

    /// A file as it is.
    pub(crate) fn file(&mut self, path: &Path, meta: &Metadata, from: File) -> Result<Change, ArchiveError> {
        let mut header = header(EntryType::Regular, meta.len());
        dress(&mut header, meta);
        self.entry(path, header, b"", from)
    }

    /// A directory, without what is in it.
    pub(crate) fn folder(&mut self, path: &Path, meta: &Metadata) -> Result<(), ArchiveError> {
        let mut header = header(EntryType::Directory, 0);
        dress(&mut header, meta);
        self.entry(path, header, b"", io::empty()).map(|_| ())
    }

    /// A symbolic link, wherever it points: its target is kept to the byte.
    pub(crate) fn link(&mut self, path: &Path, stat: &FileStat, target: &[u8]) -> Result<(), ArchiveError> {
        let mut header = header(EntryType::Symlink, 0);
        header.set_mode(0o777);
        owned(&mut header, stat.st_uid, stat.st_gid, stat.st_mtime);
        if header.set_link_name_literal(target).is_err() {
            self.long_link(target).map_err(|error| self.failed(error))?;
        }
        self.entry(path, header, target, io::empty()).map(|_| ())
    }

    /// The target of the next entry, which is too long for its header: GNU's way, ended by a zero byte.
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
    ) -> Result<Change, ArchiveError> {
        let size = header.entry_size().map_err(|error| self.failed(error))?;
        let mut data = Exact::new(from, size, target);
        let put = self.tar.append_data(&mut header, path, &mut data);
        if let Some(source) = data.error.take() {
            return Err(ArchiveError::Read { path: shown(path), source });
        }
        let (kind, change, digest) = (header.entry_type(), data.change(), data.hash.finalize());
        let record = Record { path: path.as_os_str().as_bytes(), kind, size, digest };
        put.and_then(|()| self.records.add(&record.bytes())).map_err(|error| self.failed(error))?;
        Ok(change)
    }

    /// Ends it; gives back the file, which is not on disk yet, and what should be in it.
    pub(crate) fn finish(self) -> Result<(File, Spool), ArchiveError> {
        let Self { tar, mut records, archive: path } = self;
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

fn dress(header: &mut Header, meta: &Metadata) {
    header.set_mode(meta.mode() & 0o7777);
    owned(header, meta.uid(), meta.gid(), meta.mtime());
}

fn owned(header: &mut Header, uid: u32, gid: u32, mtime: i64) {
    header.set_uid(uid.into());
    header.set_gid(gid.into());
    header.set_mtime(mtime.try_into().unwrap_or(0));
}

/// Exactly so many bytes, whatever becomes of their source meanwhile.
struct Exact<R> {
    from: R,
    left: u64,
    /// Zeros in place of what was missing.
    padded: u64,
    hash: Hasher,
    /// Why the source could not be read.
    error: Option<io::Error>,
}

impl<R: Read> Exact<R> {
    /// The digest begins with `before`.
    fn new(from: R, left: u64, before: &[u8]) -> Self {
        let mut hash = Hasher::new();
        hash.update(before);
        Self { from, left, padded: 0, hash, error: None }
    }

    fn change(&mut self) -> Change {
        match self.padded {
            0 if matches!(self.from.read(&mut [0]), Ok(1)) => Change::Grew,
            0 => Change::None,
            padded => Change::Shrank(padded),
        }
    }
}

impl<R: Read> Read for Exact<R> {
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

    fn exact(from: &[u8], size: u64) -> (Vec<u8>, Change) {
        let mut exact = Exact::new(from, size, b"");
        let mut got = Vec::new();
        exact.read_to_end(&mut got).unwrap();
        (got, exact.change())
    }

    #[test]
    fn what_grows_is_cut_and_what_shrinks_is_padded() {
        assert_eq!(exact(b"abc", 3), (b"abc".to_vec(), Change::None));
        assert_eq!(exact(b"abc", 2), (b"ab".to_vec(), Change::Grew));
        assert_eq!(exact(b"abc", 5), (b"abc\0\0".to_vec(), Change::Shrank(2)));
        assert_eq!(exact(b"", 0), (vec![], Change::None));
    }
}
