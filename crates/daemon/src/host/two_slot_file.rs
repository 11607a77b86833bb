//! A small file that is overwritten in place, so that writing it needs no free space on its disk, and that keeps its
//! last contents if a crash cuts a write off: it has two slots, and the older one is overwritten.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::host::files;

/// Size of a slot in bytes: a block of the disk.
const SLOT: usize = 4096;

/// Fills a slot behind its record.
const PADDING: u8 = b'\n';

/// The contents of a slot.
struct Record {
    slot: usize,
    /// Number of the write.
    generation: u64,
    bytes: Vec<u8>,
}

/// Reads the contents; `None` if there is no file.
///
/// # Errors
/// It cannot be read, or both slots are damaged.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    Ok(current(path)?.map(|record| record.bytes))
}

/// Writes the contents, which are on disk when it returns.
///
/// # Errors
/// It cannot be written, or both slots are damaged.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let last = current(path)?;
    let generation = last.as_ref().map_or(1, |record| record.generation + 1);
    let slot = encode(generation, bytes)?;
    match last {
        Some(last) if last.generation > 0 => {
            let flags = OFlag::O_NOFOLLOW.bits();
            let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
            file.write_all_at(&slot, ((1 - last.slot) * SLOT) as u64)?;
            file.sync_all()
        }
        _ => create(path, &slot),
    }
}

/// Creates the file, or replaces one without slots.
fn create(path: &Path, slot: &[u8]) -> io::Result<()> {
    let mut both = slot.to_vec();
    both.resize(2 * SLOT, PADDING);
    files::write_atomic_synced(path, &both)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Reads the newer record. A file without slots, as builds before this one wrote it, is its contents.
fn current(path: &Path) -> io::Result<Option<Record>> {
    let bytes = match files::read_bounded(path, 2 * SLOT as u64) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if bytes.first() == Some(&b'{') {
        return Ok(Some(Record { slot: 0, generation: 0, bytes }));
    }
    let records = bytes.chunks(SLOT).enumerate().filter_map(|(slot, bytes)| decode(slot, bytes));
    let damaged = || io::Error::new(ErrorKind::InvalidData, "both copies in this file are damaged");
    records.max_by_key(|record| record.generation).map(Some).ok_or_else(damaged)
}

/// Returns a slot: the checksum of what follows, the number of the write, and the contents.
fn encode(generation: u64, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut record = format!("{generation} ").into_bytes();
    record.extend_from_slice(bytes);
    let mut slot = format!("{:08x} ", crc32fast::hash(&record)).into_bytes();
    slot.extend_from_slice(&record);
    if slot.len() >= SLOT {
        return Err(ErrorKind::FileTooLarge.into());
    }
    slot.resize(SLOT, PADDING);
    Ok(slot)
}

/// Returns the record of a slot; `None` if it was never written, or is damaged.
fn decode(slot: usize, bytes: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches(char::from(PADDING));
    let (checksum, record) = text.split_once(' ')?;
    let (generation, contents) = record.split_once(' ')?;
    let is_whole = u32::from_str_radix(checksum, 16).ok()? == crc32fast::hash(record.as_bytes());
    let record = Record { slot, generation: generation.parse().ok()?, bytes: contents.into() };
    is_whole.then_some(record)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_whole_write_is_read_whatever_a_crash_left_of_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(read(&path).unwrap(), None);
        for number in 1..6 {
            let text = format!("{{\"number\":{number}}}");
            let before = fs::read(&path).unwrap_or_default();
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap(), Some(text.clone().into_bytes()));
            let after = fs::read(&path).unwrap();
            assert_eq!(after.len(), 2 * SLOT);
            let Some(slot) = (0..2)
                .find(|slot| number > 1 && before[slot * SLOT..][..SLOT] != after[slot * SLOT..][..SLOT])
            else {
                continue;
            };
            let last = Some(format!("{{\"number\":{}}}", number - 1).into_bytes());
            for cut in 1..text.len() {
                let mut torn = before.clone();
                torn[slot * SLOT..][..cut].copy_from_slice(&after[slot * SLOT..][..cut]);
                fs::write(&path, torn).unwrap();
                assert_eq!(read(&path).unwrap(), last, "{cut} bytes were written");
            }
            fs::write(&path, after).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_a_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for damaged in [Vec::new(), vec![0; 2 * SLOT], b"x".repeat(2 * SLOT), b"x".repeat(3 * SLOT)] {
            fs::write(&path, damaged).unwrap();
            assert!(read(&path).is_err());
            assert!(write(&path, b"new").is_err(), "it is kept for a person");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(read(&path).is_err());
        fs::remove_file(&path).unwrap();
        assert!(write(&path, &b"x".repeat(SLOT)).is_err(), "it does not fit");
        assert_eq!(read(&path).unwrap(), None);
    }
}
