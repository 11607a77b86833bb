//! A disk in memory that remembers what was done to it, loses power, and fails on request.

use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

use crate::world::Rng;

/// Power cuts tear writes at this many bytes.
const SECTOR: usize = 512;

/// One change of the disk.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

/// When to fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    /// Which operation, counted from 1, reads included.
    pub(crate) nth: u64,
    /// Whether every later one fails too.
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

/// The disk; clones are the same disk.
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

    /// Fails from now on.
    pub(crate) fn fail(&self) {
        let mut inner = self.inner();
        inner.fault = Some(Fault { nth: inner.done + 1, persistent: true, kind: ErrorKind::Other });
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.inner().bytes.clone()
    }

    /// How many changes there were, syncs among them.
    pub(crate) fn writes(&self) -> usize {
        self.inner().log.len()
    }

    /// How many operations there were, reads among them.
    pub(crate) fn done(&self) -> u64 {
        self.inner().done
    }

    /// How many operations failed on request.
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

    /// What a power cut after the first `point` changes leaves: everything before the last sync, and
    /// of the rest any part, torn between sectors.
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

    /// What a power cut after the first `point` changes leaves where of those since the last sync exactly
    /// one is lost, and where exactly one is there, for each of them.
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

    /// Counts an operation, and lets it fail when its turn has come.
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

/// A write whose growth of the file was lost grows it itself.
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
