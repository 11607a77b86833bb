//! All that is stored, as lines of JSON.

use std::io::{BufWriter, Write};

use crc32fast::Hasher;
use redb::ReadTransaction;
use serde::Serialize;

use super::line::{End, Footer, Header, Line, Row};
use crate::error::StoreError;
use crate::reader::Reader;
use crate::tables::{COPIED_KEY, TIMELINE_KEY, Table};

/// Writes everything, damaged and quarantined records included, as it is in one snapshot: a line that
/// says what it is, a line a row (a message together with its state), and a line that tells whether all
/// of it is there. [`super::import`] makes the same database of it.
///
/// # Errors
/// [`StoreError::Stream`] where it cannot be written; a failure of the storage, which latches.
pub fn export(reader: &Reader, out: &mut dyn Write) -> Result<(), StoreError> {
    let read = reader.snapshot()?;
    let mut lines = Lines { out: BufWriter::new(out), sum: Hasher::new(), count: 0 };
    lines.put(&Header::current())?;
    for table in Table::ALL {
        reader.each(&read, table, |key, record| {
            let row = Row { table, key: key.to_vec(), record: record.to_vec() };
            match table {
                // Whose it is does not go along: what is made of an export is another pool.
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

/// A message in one line with its state; in two where that is not exact.
fn message(
    lines: &mut Lines<'_>,
    (reader, read): (&Reader, &ReadTransaction),
    row: &Row,
) -> Result<(), StoreError> {
    let table = Table::MessageStates;
    let state = reader.row(read, table, &row.key)?;
    let state = state.map(|record| Row { table, key: row.key.clone(), record });
    if let Some(line) = Line::of(row, state.as_ref()) {
        return lines.row(&line);
    }
    lines.row(&Line::raw(row))?;
    state.map_or(Ok(()), |state| lines.row(&Line::raw(&state)))
}

/// A state goes with its message, unless that is not there.
fn orphan(
    lines: &mut Lines<'_>,
    (reader, read): (&Reader, &ReadTransaction),
    row: &Row,
) -> Result<(), StoreError> {
    match reader.row(read, Table::Messages, &row.key)? {
        Some(_) => Ok(()),
        None => lines.row(&Line::raw(row)),
    }
}

struct Lines<'a> {
    out: BufWriter<&'a mut dyn Write>,
    sum: Hasher,
    count: u64,
}

impl Lines<'_> {
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
