//! A disk in memory that records its changes, loses power, and fails on request.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

use super::rng::Rng;

/// Unit in which power cuts tear writes, in bytes.
const SECTOR: usize = 512;

/// A change of the disk.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

/// A failure on request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    /// The operation that fails, counted from 1, reads included.
    pub(crate) nth: u64,
    /// True if every later operation fails too.
    pub(crate) persistent: bool,
    pub(crate) kind: ErrorKind,
}

#[derive(Debug, Default)]
struct Inner {
    start: Vec<u8>,
    bytes: Vec<u8>,
    log: Vec<Op>,
    done: u64,
    fault: Option<Fault>,
    faults: u64,
}

/// The disk; clones share its content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<Inner>>);

impl Disk {
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        let start = bytes.clone();
        Self(Arc::new(Mutex::new(Inner { start, bytes, ..Inner::default() })))
    }

    pub(crate) fn failing(bytes: Vec<u8>, fault: Fault) -> Self {
        let disk = Self::holding(bytes);
        disk.inner().fault = Some(fault);
        disk
    }

    /// Lets every further operation fail.
    pub(crate) fn fail(&self) {
        let mut inner = self.inner();
        inner.fault = Some(Fault { nth: inner.done + 1, persistent: true, kind: ErrorKind::Other });
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.inner().bytes.clone()
    }

    /// Number of changes so far, including syncs.
    pub(crate) fn writes(&self) -> usize {
        self.inner().log.len()
    }

    /// Number of operations so far, including reads.
    pub(crate) fn done(&self) -> u64 {
        self.inner().done
    }

    /// Number of operations that failed on request.
    pub(crate) fn faults(&self) -> u64 {
        self.inner().faults
    }

    pub(crate) fn written_since(&self, from: usize, needle: &[u8]) -> bool {
        let inner = self.inner();
        inner.log[from..].iter().any(|op| match op {
            Op::Write(_, bytes) => bytes.windows(needle.len()).any(|window| window == needle),
            _ => false,
        })
    }

    /// Returns the content after a power cut behind the first `point` changes: everything before the last
    /// sync, and a random part of the rest, torn between sectors.
    pub(crate) fn image(&self, point: usize, rng: &mut Rng) -> Vec<u8> {
        let inner = self.inner();
        let log = &inner.log[..point];
        let synced = log.iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |last| last + 1);
        let mut bytes = inner.start.clone();
        for op in &log[..synced] {
            apply(&mut bytes, op);
        }
        let keep = rng.below(101);
        for op in &log[synced..] {
            match op {
                Op::Write(offset, data) if rng.below(4) == 0 => {
                    for (n, sector) in data.chunks(SECTOR).enumerate() {
                        if rng.below(100) < keep {
                            apply(&mut bytes, &Op::Write(offset + (n * SECTOR) as u64, sector.to_vec()));
                        }
                    }
                }
                op if rng.below(100) < keep => apply(&mut bytes, op),
                _ => {}
            }
        }
        bytes
    }

    /// Returns the contents after a power cut behind the first `point` changes in which, of the changes since
    /// the last sync, exactly one is lost or exactly one survives; both for each of them.
    pub(crate) fn single_images(&self, point: usize) -> Vec<Vec<u8>> {
        let inner = self.inner();
        let log = &inner.log[..point];
        let synced = log.iter().rposition(|op| matches!(op, Op::Sync)).map_or(0, |last| last + 1);
        let image = |kept: &dyn Fn(usize) -> bool| {
            let mut bytes = inner.start.clone();
            let ops = log.iter().enumerate().filter(|(n, _)| *n < synced || kept(*n));
            ops.for_each(|(_, op)| apply(&mut bytes, op));
            bytes
        };
        let each = |n: usize| [image(&|other| other != n), image(&|other| other == n)];
        (synced..point).flat_map(each).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Counts an operation, and fails if it is the requested one.
    fn turn(&self) -> Result<MutexGuard<'_, Inner>> {
        let mut inner = self.inner();
        inner.done += 1;
        let done = inner.done;
        match inner.fault {
            Some(fault) if done == fault.nth || (fault.persistent && done > fault.nth) => {
                inner.faults += 1;
                Err(Error::from(fault.kind))
            }
            _ => Ok(inner),
        }
    }
}

/// Applies a change. A write grows the content if the change of its length was lost.
fn apply(bytes: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write(offset, data) => {
            let start = usize::try_from(*offset).unwrap();
            if bytes.len() < start + data.len() {
                bytes.resize(start + data.len(), 0);
            }
            bytes[start..start + data.len()].copy_from_slice(data);
        }
        Op::SetLen(len) => bytes.resize(usize::try_from(*len).unwrap(), 0),
        Op::Sync => {}
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64> {
        Ok(self.turn()?.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let inner = self.turn()?;
        let start = usize::try_from(offset).unwrap();
        let bytes = inner.bytes.get(start..start + out.len()).ok_or(ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut inner = self.turn()?;
        apply(&mut inner.bytes, &Op::SetLen(len));
        inner.log.push(Op::SetLen(len));
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.turn()?.log.push(Op::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut inner = self.turn()?;
        let op = Op::Write(offset, data.to_vec());
        apply(&mut inner.bytes, &op);
        inner.log.push(op);
        Ok(())
    }
}
