//! A new database of what was exported.

use std::io::{BufRead, Read};
use std::path::Path;

use crc32fast::Hasher;
use redb::{Database, ReadableTable};
use serde::de::DeserializeOwned;

use super::line::{End, Footer, Header, Line};
use crate::commit::Tables;
use crate::error::StoreError;
use crate::names::{Names, Os, place_new};
use crate::open::empty;
use crate::tables::{COPIED_KEY, SCHEMA_KEY, Table};
use crate::{migrate, schema};

/// The longest line, in bytes: the longest message many times over, whatever is escaped in it.
const LINE_MAX: u64 = 16 << 20;

/// Makes a new database file of an export, by this build or by an earlier one. It has its name only when all of it is there and on disk.
/// Answers how many lines there were, the first and the last not counted.
///
/// # Errors
/// [`StoreError::Exists`]; [`StoreError::Export`] where the export is not whole, was changed, or is of
/// another version; [`StoreError::Stream`] where it cannot be read; a failure of the new file.
pub fn import(path: &Path, input: &mut dyn BufRead) -> Result<u64, StoreError> {
    import_with(&Os, path, input)
}

pub(crate) fn import_with(
    names: &dyn Names,
    path: &Path,
    input: &mut dyn BufRead,
) -> Result<u64, StoreError> {
    place_new(names, path, |unfinished| {
        let db = empty(unfinished)?;
        let mut lines = Lines { input, sum: Hasher::new(), number: 0 };
        let count = fill(&db, &mut lines)?;
        db.close()?;
        Ok(count)
    })
}

fn fill(db: &Database, lines: &mut Lines<'_>) -> Result<u64, StoreError> {
    let transaction = db.begin_write()?;
    let mut tables = Tables::new(&transaction);
    for table in Table::ALL {
        tables.get(table)?;
    }
    let text = lines.next()?;
    let header: Header = lines.parsed(&text)?;
    if !header.is_readable() {
        return Err(lines.wrong(format!("this build reads {:?}, not {header:?}", Header::current())));
    }
    let mut count = 0;
    let end = loop {
        let before = lines.sum.clone().finalize();
        let text = lines.next()?;
        if text.starts_with(b"{\"end\":") {
            let Footer { end } = lines.parsed(&text)?;
            break (end, End { lines: count, crc32: format!("{before:08x}") });
        }
        let line: Line = lines.parsed(&text)?;
        for row in line.rows().map_err(|why| lines.wrong(why))? {
            tables.put(row.table, &row.key, &row.record)?;
        }
        count += 1;
    };
    if end.0 != end.1 {
        return Err(lines.wrong(format!("it was changed: {:?}, not {:?}", end.1, end.0)));
    }
    if !lines.input.fill_buf().map_err(StoreError::Stream)?.is_empty() {
        return Err(lines.wrong("something follows its end".to_owned()));
    }
    let version = tables.get(Table::Meta)?.get(SCHEMA_KEY)?.map(|row| row.value().to_vec());
    if version != Some(schema::row(header.schema)) {
        return Err(lines.wrong("it has no schema version".to_owned()));
    }
    migrate::imported(&mut tables, header.schema)?;
    tables.number(COPIED_KEY, 1)?;
    drop(tables);
    transaction.commit()?;
    Ok(count)
}

struct Lines<'a> {
    input: &'a mut dyn BufRead,
    sum: Hasher,
    number: u64,
}

impl Lines<'_> {
    /// A line with its end; what ends without one is not whole.
    fn next(&mut self) -> Result<Vec<u8>, StoreError> {
        self.number += 1;
        let mut line = Vec::new();
        (&mut *self.input).take(LINE_MAX).read_until(b'\n', &mut line).map_err(StoreError::Stream)?;
        if line.last() != Some(&b'\n') {
            return Err(self.wrong("it is cut off".to_owned()));
        }
        self.sum.update(&line);
        Ok(line)
    }

    fn parsed<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(line).map_err(|error| self.wrong(error.to_string()))
    }

    fn wrong(&self, why: String) -> StoreError {
        StoreError::Export { line: self.number, why }
    }
}
