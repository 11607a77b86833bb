//! Import: a new database from an export.

use std::io::{BufRead, Read};
use std::path::Path;

use crc32fast::Hasher;
use redb::{Database, ReadableTable};
use serde::de::DeserializeOwned;

use super::line::{End, Footer, Header, Line};
use crate::atomic_file::{Directory, OsDirectory, create_new};
use crate::error::StoreError;
use crate::tables::{COPIED_KEY, FROM_EXPORT, SCHEMA_KEY, Table};
use crate::transaction::Tables;
use crate::{database, migrate, schema};

/// Maximum length of a line in bytes: several times the longest message, however much of it is escaped.
const LINE_MAX: u64 = 16 << 20;

/// Message about a file whose first line is not the header of an export.
const NO_HEADER: &str = "it is not the first line of an export: `poolctl import` reads what `poolctl export` wrote; \
                         a backup is put in the place of `pool.redb`";

/// Creates a database file from an export of this schema or of one that this build can upgrade. The file gets
/// its name only when it is complete and on disk. Returns the number of lines without header and footer.
///
/// # Errors
/// [`StoreError::Exists`]; [`StoreError::Export`] if the export is incomplete, was modified, or has another
/// version; [`StoreError::Stream`] if `input` fails; a failure of the new file.
pub fn import(path: &Path, input: &mut dyn BufRead) -> Result<u64, StoreError> {
    import_with(&OsDirectory, path, input)
}

pub(crate) fn import_with(
    directory: &dyn Directory,
    path: &Path,
    input: &mut dyn BufRead,
) -> Result<u64, StoreError> {
    create_new(directory, path, |temporary| {
        let db = database::create(temporary)?;
        let count = fill(&db, &mut LineReader { input, sum: Hasher::new(), number: 0 })?;
        db.close()?;
        Ok(count)
    })
}

fn fill(db: &Database, lines: &mut LineReader<'_>) -> Result<u64, StoreError> {
    let transaction = db.begin_write()?;
    let mut tables = Tables::new(&transaction);
    tables.create_all()?;
    let text = lines.next()?;
    let header: Header = lines.parse(&text).map_err(|_| lines.error(NO_HEADER.to_owned()))?;
    let version = header.version_of_rows().map_err(|why| lines.error(why))?;
    let mut count = 0;
    loop {
        let sum = lines.sum.clone().finalize();
        let text = lines.next()?;
        if text.starts_with(b"{\"end\":") {
            let Footer { end } = lines.parse(&text)?;
            let found = End { lines: count, crc32: format!("{sum:08x}") };
            if end != found {
                return Err(lines.error(format!("it was modified: found {found:?}, expected {end:?}")));
            }
            break;
        }
        let line: Line = lines.parse(&text)?;
        for row in line.rows().map_err(|why| lines.error(why))? {
            tables.put(row.table, &row.key, &row.record)?;
        }
        count += 1;
    }
    if !lines.input.fill_buf().map_err(StoreError::Stream)?.is_empty() {
        return Err(lines.error("there are lines after its end".to_owned()));
    }
    let stamp = tables.get(Table::Meta)?.get(SCHEMA_KEY)?.map(|row| row.value().to_vec());
    if stamp != Some(schema::record(header.schema)) {
        return Err(lines.error("it has no schema version, or another than its header says".to_owned()));
    }
    migrate::upgrade(&transaction, &mut tables, version)?;
    tables.put_number(COPIED_KEY, FROM_EXPORT)?;
    drop(tables);
    transaction.commit()?;
    Ok(count)
}

struct LineReader<'a> {
    input: &'a mut dyn BufRead,
    sum: Hasher,
    number: u64,
}

impl LineReader<'_> {
    /// Returns the next line with its line break; fails if it has none.
    fn next(&mut self) -> Result<Vec<u8>, StoreError> {
        self.number += 1;
        let mut line = Vec::new();
        (&mut *self.input).take(LINE_MAX).read_until(b'\n', &mut line).map_err(StoreError::Stream)?;
        if line.last() != Some(&b'\n') {
            return Err(self.error("it is incomplete".to_owned()));
        }
        self.sum.update(&line);
        Ok(line)
    }

    fn parse<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, StoreError> {
        serde_json::from_slice(line).map_err(|error| self.error(error.to_string()))
    }

    /// Returns an error about the current line.
    fn error(&self, why: String) -> StoreError {
        StoreError::Export { line: self.number, why }
    }
}
