//! A storage backend that examines a database file without changing it: what redb writes while it opens the
//! file stays in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::error::StoreError;

/// Size of a block in bytes: a page of the database.
const BLOCK: usize = 4096;

#[derive(Debug)]
pub(crate) struct Overlay {
    file: File,
    writes: Mutex<Writes>,
}

/// The state of the file after the writes.
#[derive(Debug)]
struct Writes {
    len: u64,
    blocks: HashMap<u64, Vec<u8>>,
}

impl Overlay {
    /// Opens a file and locks it: fails with [`StoreError::Locked`] if a process has it open as a database,
    /// and none can open it before the overlay is dropped.
    pub(crate) fn over(path: &Path) -> std::result::Result<Self, StoreError> {
        let file = File::open(path)?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
            Ok(()) => {}
        }
        let writes = Mutex::new(Writes { len: file.metadata()?.len(), blocks: HashMap::new() });
        Ok(Self { file, writes })
    }

    fn writes(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the file itself; zeros behind its end.
    fn read_file(&self, mut offset: u64, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            match self.file.read_at(out, offset)? {
                0 => {
                    out.fill(0);
                    break;
                }
                n => {
                    offset += n as u64;
                    out = &mut out[n..];
                }
            }
        }
        Ok(())
    }
}

/// Splits a range at block boundaries: block number, offset in the block, offset in the range, length.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        // Below a block's size, so it fits.
        let within = usize::try_from(at % BLOCK as u64).unwrap_or(0);
        let part = (BLOCK - within).min(length - done);
        let found = (at / BLOCK as u64, within, done, part);
        done += part;
        (part > 0).then_some(found)
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> Result<u64> {
        Ok(self.writes().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let writes = self.writes();
        if offset.saturating_add(out.len() as u64) > writes.len {
            return Err(Error::from(ErrorKind::UnexpectedEof));
        }
        self.read_file(offset, out)?;
        for (block, within, at, part) in parts(offset, out.len()) {
            if let Some(bytes) = writes.blocks.get(&block) {
                out[at..at + part].copy_from_slice(&bytes[within..within + part]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.writes().len = len;
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut writes = self.writes();
        writes.len = writes.len.max(offset + data.len() as u64);
        for (block, within, at, part) in parts(offset, data.len()) {
            let bytes = match writes.blocks.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let mut bytes = vec![0; BLOCK];
                    self.read_file(block * BLOCK as u64, &mut bytes)?;
                    entry.insert(bytes)
                }
            };
            bytes[within..within + part].copy_from_slice(&data[at..at + part]);
        }
        Ok(())
    }
}
