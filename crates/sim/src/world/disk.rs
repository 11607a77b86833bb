//! The disk of the database. Written data survive the process, but only synced data survive a power cut. Any write or
//! sync may be the last one before the end of the process.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::rng::Rng;
use crate::world::life::Life;

/// Unit in which power cuts tear writes, in bytes.
const SECTOR: usize = 512;

/// The medium, which survives processes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Medium(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// The replaced content of all changes since the last sync, which a power cut undoes.
    undo: Vec<Undo>,
}

#[derive(Debug)]
enum Undo {
    /// Bytes at an offset.
    Bytes(usize, Vec<u8>),
    Length(usize, Vec<u8>),
}

impl Medium {
    /// Returns a medium with this content.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Content { bytes, ..Content::default() })))
    }

    /// Replaces the content, which is synced.
    pub(crate) fn replace(&self, bytes: Vec<u8>) {
        *self.content() = Content { bytes, ..Content::default() };
    }

    /// Returns the content.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.content().bytes.clone()
    }

    /// Cuts the power: each change since the last sync is kept or lost, writes sector by sector.
    pub(crate) fn cut_power(&self, rng: &mut Rng) {
        let mut content = self.content();
        let keep = rng.below(1001);
        for change in std::mem::take(&mut content.undo).into_iter().rev() {
            match change {
                Undo::Length(length, tail) => {
                    if !rng.per_mille(keep) {
                        content.bytes.resize(length, 0);
                        let from = length - tail.len().min(length);
                        let end = from + tail.len();
                        content.bytes[from..end].copy_from_slice(&tail);
                    }
                }
                Undo::Bytes(offset, old) => {
                    for (n, sector) in old.chunks(SECTOR).enumerate() {
                        let from = offset + n * SECTOR;
                        if !rng.per_mille(keep) && from + sector.len() <= content.bytes.len() {
                            content.bytes[from..from + sector.len()].copy_from_slice(sector);
                        }
                    }
                }
            }
        }
    }

    /// Opens the medium for a process.
    pub(crate) fn open(&self, life: Life) -> Disk {
        Disk { medium: self.clone(), life, faults: Faults::default() }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk as a process sees it.
#[derive(Clone)]
pub(crate) struct Disk {
    medium: Medium,
    life: Life,
    faults: Faults,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

/// Faults of a disk; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Planned>>);

/// The fault that is planned.
#[derive(Default)]
struct Planned {
    fault: Option<Fault>,
    has_come: bool,
}

/// A fault that comes with the write or sync of this number from now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) after: u64,
    pub(crate) kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The process ends.
    Death,
    /// This operation and all later ones fail.
    Failure,
}

impl Disk {
    /// Returns the faults of this disk.
    pub(crate) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Counts a change.
    fn change(&self) -> Result<()> {
        if self.life.is_dead() {
            return Err(Error::from(ErrorKind::BrokenPipe));
        }
        let mut planned = self.faults.planned();
        let Some(fault) = planned.fault.as_mut() else { return Ok(()) };
        if fault.after > 0 {
            fault.after -= 1;
            return Ok(());
        }
        if fault.kind == FaultKind::Death {
            self.life.die();
        }
        planned.has_come = true;
        Err(Error::other("input/output error"))
    }
}

impl Faults {
    /// True if a fault was planned, or has come.
    pub(crate) fn is_planned(&self) -> bool {
        self.planned().fault.is_some()
    }

    /// Withdraws a planned fault that has not come.
    pub(crate) fn withdraw(&self) {
        let mut planned = self.planned();
        if !planned.has_come {
            planned.fault = None;
        }
    }

    pub(crate) fn plan(&self, fault: Fault) {
        self.planned().fault = Some(fault);
    }

    fn planned(&self) -> MutexGuard<'_, Planned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64> {
        Ok(self.medium.content().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let content = self.medium.content();
        let from = usize::try_from(offset).map_err(Error::other)?;
        let found = content.bytes.get(from..from + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.change()?;
        let length = usize::try_from(length).map_err(Error::other)?;
        let mut content = self.medium.content();
        let before = content.bytes.len();
        let tail = content.bytes.get(length..).unwrap_or_default().to_vec();
        content.undo.push(Undo::Length(before, tail));
        content.bytes.resize(length, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.change()?;
        let mut content = self.medium.content();
        content.undo.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.change()?;
        let from = usize::try_from(offset).map_err(Error::other)?;
        let mut content = self.medium.content();
        let end = from + data.len();
        if content.bytes.len() < end {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let old = content.bytes[from..end].to_vec();
        content.undo.push(Undo::Bytes(from, old));
        content.bytes[from..end].copy_from_slice(data);
        Ok(())
    }
}
