//! What is wrong with a database, down to the last record.

use std::collections::BTreeSet;
use std::path::Path;

use protocol::reply::Checked;
use protocol::{Event, SessionId};
use redb::{Database, ReadTransaction, ReadableDatabase};

use crate::error::{RecordError, StoreError};
use crate::open::{builder, opening};
use crate::overlay::Overlay;
use crate::quarantine;
use crate::reader::Reader;
use crate::record::{fault, unseal_message, unseal_state};
use crate::schema;
use crate::tables::{Table, key_number, number_key};

/// The most problems that are told one by one.
const PROBLEMS_MAX: usize = 1000;

/// Reads every record of an open database, on one snapshot: checksums, encodings, messages without
/// their session, states without their message.
///
/// # Errors
/// A failure of the storage; it latches.
pub fn check(reader: &Reader) -> Result<Checked, StoreError> {
    let read = reader.snapshot()?;
    let mut checking =
        Checking { reader, read: &read, sessions: BTreeSet::new(), more: 0, checked: Checked::default() };
    for table in [Table::Meta, Table::Sessions, Table::Messages, Table::MessageStates, Table::Breakers] {
        checking.table(table)?;
    }
    for table in [Table::Activities, Table::Notes, Table::Thoughts, Table::LostConversations] {
        checking.table(table)?;
    }
    for table in [Table::Retired, Table::Operations, Table::Journal, Table::Quarantine] {
        checking.table(table)?;
    }
    let Checking { mut checked, more, .. } = checking;
    if more > 0 {
        checked.problems.push(format!("and {more} more"));
    }
    let aside = reader.latch_on(quarantine::in_snapshot(&read))?;
    let told = aside.iter().take(PROBLEMS_MAX);
    checked.quarantined = told.map(|q| format!("{} {}: {}", q.table, shown(&q.key), q.why)).collect();
    Ok(checked)
}

/// The same for a file that is not open, and of every page's checksum; the file is not changed. Answers
/// its schema version, too. One of an older schema is checked as it would be brought up to date.
///
/// # Errors
/// [`StoreError::Locked`], [`StoreError::Newer`]; [`StoreError::Damaged`] where it is no sound database
/// as a whole.
pub fn check_file(path: &Path) -> Result<(u32, Checked), StoreError> {
    let db = builder(true, |_| {}).create_with_backend(Overlay::over(path)?).map_err(opening)?;
    let version = found(&db)?;
    schema::prepare(&db, |_| Ok(()))?;
    Ok((version, check(&Reader::new(db, None))?))
}

fn found(db: &Database) -> Result<u32, StoreError> {
    let read = db.begin_read()?;
    if read.list_tables()?.next().is_none() {
        return Err(StoreError::Damaged("it has no tables".to_owned()));
    }
    schema::version(&read)
}

struct Checking<'a> {
    reader: &'a Reader,
    read: &'a ReadTransaction,
    sessions: BTreeSet<SessionId>,
    checked: Checked,
    /// Problems that are only counted.
    more: u64,
}

impl Checking<'_> {
    fn table(&mut self, table: Table) -> Result<(), StoreError> {
        let (reader, read) = (self.reader, self.read);
        reader.each(read, table, |key, record| {
            self.checked.records += 1;
            self.checked.bytes += (key.len() + record.len()) as u64;
            let wrong = match fault(table, key, record) {
                Some(why) => Some(why.to_string()),
                None => self.place(table, key, record)?,
            };
            if let Some(why) = wrong {
                self.problem(format!("{} {}: {why}", table.word(), key_shown(table, key)));
            }
            Ok(())
        })
    }

    /// What is wrong with a sound record where it is.
    fn place(&mut self, table: Table, key: &[u8], record: &[u8]) -> Result<Option<String>, StoreError> {
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
            return Some("it is another message's".to_owned());
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
        Ok((number_key(id.0) != key).then(|| "it is another message's".to_owned()))
    }

    fn problem(&mut self, sentence: String) {
        if self.checked.problems.len() < PROBLEMS_MAX {
            self.checked.problems.push(sentence);
        } else {
            self.more += 1;
        }
    }
}

/// A key for people.
fn key_shown(table: Table, key: &[u8]) -> String {
    match key_number(key) {
        Some(number) if table.is_numbered() => number.to_string(),
        _ => shown(key),
    }
}

fn shown(key: &[u8]) -> String {
    match key_number(key) {
        Some(number) => number.to_string(),
        None => key.escape_ascii().to_string(),
    }
}
