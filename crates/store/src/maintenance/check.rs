//! Check: finds all damage of a database, down to single records.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::reply::Checked;
use protocol::{Event, SessionId};
use redb::{ReadTransaction, ReadableDatabase};

use crate::database::{builder, open_error};
use crate::error::{RecordError, StoreError};
use crate::overlay::Overlay;
use crate::reader::Reader;
use crate::record::{damage, unseal_message, unseal_state};
use crate::tables::{Table, key_number, number_key};
use crate::{migrate, quarantine, schema};

/// Maximum number of problems that are listed; the others are counted.
const PROBLEMS_MAX: usize = 1000;

/// Reads every record of an open database, on one snapshot. Finds wrong checksums and encodings, messages
/// without their session, and states without their message.
///
/// # Errors
/// A failure of the storage; it latches.
pub fn check(reader: &Reader) -> Result<Checked, StoreError> {
    let read = reader.snapshot()?;
    let mut checker =
        Checker { reader, read: &read, sessions: BTreeSet::new(), unlisted: 0, checked: Checked::default() };
    // Sessions come before messages: a message is checked against them.
    Table::ALL.into_iter().try_for_each(|table| checker.table(table))?;
    let Checker { mut checked, unlisted, .. } = checker;
    if unlisted > 0 {
        checked.problems.push(format!("and {unlisted} more"));
    }
    let quarantined = reader.latch_on(quarantine::all(&read))?;
    let listed = quarantined.iter().take(PROBLEMS_MAX);
    checked.quarantined = listed.map(|q| format!("{} {}: {}", q.table, shown_key(&q.key), q.why)).collect();
    Ok(checked)
}

/// Checks a file that is not open, including every page's checksum, without changing it. Returns its schema
/// version, too. A file of an older schema is checked as it would be after the upgrade.
///
/// # Errors
/// [`StoreError::Locked`], [`StoreError::Newer`], [`StoreError::Obsolete`]; [`StoreError::Damaged`] if the
/// file as a whole is no sound database.
pub fn check_file(path: &Path) -> Result<(u32, Checked), StoreError> {
    let db = builder(true, |_| {}).create_with_backend(Overlay::over(path)?).map_err(open_error)?;
    let version = schema::version(&db.begin_read()?)?;
    let version = version.ok_or_else(|| StoreError::Damaged("it has no tables".to_owned()))?;
    migrate::prepare(&db, |_| Ok(()))?;
    Ok((version, check(&Reader::new(db, None))?))
}

struct Checker<'a> {
    reader: &'a Reader,
    read: &'a ReadTransaction,
    sessions: BTreeSet<SessionId>,
    checked: Checked,
    /// Number of problems beyond [`PROBLEMS_MAX`].
    unlisted: u64,
}

impl Checker<'_> {
    fn table(&mut self, table: Table) -> Result<(), StoreError> {
        let (reader, read) = (self.reader, self.read);
        reader.each(read, table, |key, record| {
            self.checked.records += 1;
            self.checked.bytes += (key.len() + record.len()) as u64;
            let problem = match damage(table, key, record) {
                Some(why) => Some(why.to_string()),
                None => self.relations(table, key, record)?,
            };
            if let Some(why) = problem {
                self.problem(format!("{} {}: {why}", table.as_str(), shown_key_of(table, key)));
            }
            Ok(())
        })
    }

    /// Returns the first conflict between a record that is sound by itself and its key or other records.
    fn relations(&mut self, table: Table, key: &[u8], record: &[u8]) -> Result<Option<String>, StoreError> {
        match table {
            Table::Sessions => {
                self.sessions.extend(key_number(key).map(SessionId));
                Ok(None)
            }
            Table::Messages => Ok(self.message(key, record)),
            Table::MessageStates => self.state(key, record),
            _ => Ok(None),
        }
    }

    fn message(&self, key: &[u8], record: &[u8]) -> Option<String> {
        let (stamped, body) = unseal_message(key, record).ok()?;
        let Event::MessageQueued(message) = &stamped.event else { return None };
        if number_key(message.id.0) != key || message.id.0 != stamped.seq.0 {
            return Some("it belongs to another message".to_owned());
        }
        if u64::from(message.size) != body.len() as u64 {
            return Some(format!("its body has {} bytes, not {}", body.len(), message.size));
        }
        let session = message.session;
        (!self.sessions.contains(&session)).then(|| RecordError::NoSession(session).to_string())
    }

    fn state(&self, key: &[u8], record: &[u8]) -> Result<Option<String>, StoreError> {
        if self.reader.row(self.read, Table::Messages, key)?.is_none() {
            return Ok(Some(RecordError::Orphan.to_string()));
        }
        let Ok((stamped, _)) = unseal_state(key, record) else { return Ok(None) };
        let Event::MessageChanged { id, .. } = stamped.event else { return Ok(None) };
        Ok((number_key(id.0) != key).then(|| "it belongs to another message".to_owned()))
    }

    fn problem(&mut self, problem: String) {
        if self.checked.problems.len() < PROBLEMS_MAX {
            self.checked.problems.push(problem);
        } else {
            self.unlisted += 1;
        }
    }
}

/// Returns a key of this table in readable form.
fn shown_key_of(table: Table, key: &[u8]) -> String {
    match key_number(key) {
        Some(number) if table.is_numbered() => number.to_string(),
        _ => shown_key(key),
    }
}

/// Returns a key of an unknown table in readable form: 8 bytes as a number.
fn shown_key(key: &[u8]) -> String {
    match key_number(key) {
        Some(number) => number.to_string(),
        None => key.escape_ascii().to_string(),
    }
}
