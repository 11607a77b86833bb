//! Export: the whole database as lines of JSON.

use std::io::{BufWriter, Write};

use crc32fast::Hasher;
use redb::ReadTransaction;
use serde::Serialize;

use super::line::{End, Footer, Header, Line, StoredRow};
use crate::error::StoreError;
use crate::reader::Reader;
use crate::tables::{COPIED_KEY, TIMELINE_KEY, Table};

/// Writes a snapshot, including damaged and quarantined records: a header, one line per row (a message shares
/// a line with its state), and a footer by which an incomplete export is detected. [`super::import`] restores
/// the same database.
///
/// # Errors
/// [`StoreError::Stream`] if `out` fails; a failure of the storage, which latches.
pub fn export(reader: &Reader, out: &mut dyn Write) -> Result<(), StoreError> {
    let read = reader.snapshot()?;
    let mut lines = LineWriter { out: BufWriter::new(out), sum: Hasher::new(), count: 0 };
    lines.put(&Header::current())?;
    for table in Table::ALL {
        reader.each(&read, table, |key, record| {
            let row = StoredRow { table, key: key.to_vec(), record: record.to_vec() };
            match table {
                // The timeline is not exported: an import is another pool.
                Table::Meta if [TIMELINE_KEY, COPIED_KEY].contains(&key) => Ok(()),
                Table::Messages => message(&mut lines, (reader, &read), &row),
                Table::MessageStates => orphan(&mut lines, (reader, &read), &row),
                _ => lines.row(&Line::of(&row, None).unwrap_or_else(|| Line::raw(&row))),
            }
        })?;
    }
    let end = End { lines: lines.count, crc32: format!("{:08x}", lines.sum.clone().finalize()) };
    lines.put(&Footer { end })?;
    lines.out.flush().map_err(StoreError::Stream)
}

/// Writes a message and its state in one line; in two raw ones if one would not be exact.
fn message(
    lines: &mut LineWriter<'_>,
    (reader, read): (&Reader, &ReadTransaction),
    row: &StoredRow,
) -> Result<(), StoreError> {
    let table = Table::MessageStates;
    let state = reader.row(read, table, &row.key)?;
    let state = state.map(|record| StoredRow { table, key: row.key.clone(), record });
    if let Some(line) = Line::of(row, state.as_ref()) {
        return lines.row(&line);
    }
    lines.row(&Line::raw(row))?;
    state.map_or(Ok(()), |state| lines.row(&Line::raw(&state)))
}

/// Writes a state whose message is not stored; any other was written with its message.
fn orphan(
    lines: &mut LineWriter<'_>,
    (reader, read): (&Reader, &ReadTransaction),
    row: &StoredRow,
) -> Result<(), StoreError> {
    match reader.row(read, Table::Messages, &row.key)? {
        Some(_) => Ok(()),
        None => lines.row(&Line::raw(row)),
    }
}

struct LineWriter<'a> {
    out: BufWriter<&'a mut dyn Write>,
    sum: Hasher,
    count: u64,
}

impl LineWriter<'_> {
    fn row(&mut self, line: &Line) -> Result<(), StoreError> {
        self.count += 1;
        self.put(line)
    }

    fn put(&mut self, line: &impl Serialize) -> Result<(), StoreError> {
        let mut text = serde_json::to_vec(line).map_err(|error| StoreError::Stream(error.into()))?;
        text.push(b'\n');
        self.sum.update(&text);
        self.out.write_all(&text).map_err(StoreError::Stream)
    }
}
