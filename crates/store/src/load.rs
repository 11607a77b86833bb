//! From rows to a pool. What cannot be read is put aside with its bytes, and reported at every open
//! until somebody deals with it; it never keeps its neighbours from being read.

use pool::Pool;
use protocol::{Event, MessageId, MessageState, Seq, Stamped, Timestamp};
use redb::{Database, ReadTransaction, ReadableDatabase};

use crate::Owners;
use crate::commit::{self, Changes, state_of};
use crate::error::{RecordError, StoreError};
use crate::record::{damaged, seal, unseal, unseal_event, unseal_message};
use crate::schema::meta_number;
use crate::tables::{NEXT_SESSION_KEY, SEQ_KEY, SERVER_KEY, STARTED_KEY, Table, key_number};

/// What an open found.
#[derive(Debug)]
pub struct Loaded {
    /// The state, from the rows that could be read.
    pub pool: Pool,
    /// The records that could not, at this open and at earlier ones.
    pub quarantined: Vec<Quarantined>,
}

/// A record that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// The table it was in.
    pub table: String,
    /// Its key.
    pub key: Vec<u8>,
    /// All of its bytes.
    pub bytes: Vec<u8>,
    /// What was wrong with it.
    pub why: String,
}

/// Builds the pool, and moves what cannot be read out of the way.
pub(crate) fn load(db: &Database) -> Result<(Loaded, Owners), StoreError> {
    let read = db.begin_read()?;
    let mut loading = Loading { pool: meta(&read)?, owners: Owners::new(), bad: Vec::new() };
    for table in [Table::Sessions, Table::Messages, Table::MessageStates, Table::Retired, Table::Operations] {
        each(&read, table, |key, record| loading.row(table, key, record))?;
    }
    drop(read);
    let Loading { mut pool, mut owners, bad } = loading;
    if !bad.is_empty() {
        commit::write(db, put_aside(&mut pool, &mut owners, &bad)?)?;
    }
    let mut quarantined = Vec::new();
    each(&db.begin_read()?, Table::Quarantine, |key, record| quarantined.push(reported(key, record)))?;
    Ok((Loaded { pool, quarantined }, owners))
}

/// What there is one of. Nothing else tells what it was, so damage here is fatal.
fn meta(read: &ReadTransaction) -> Result<Pool, StoreError> {
    let mut pool = Pool::default();
    let next = meta_number(read, NEXT_SESSION_KEY)?.unwrap_or(0);
    let seq = Seq(meta_number(read, SEQ_KEY)?.unwrap_or(0));
    pool.apply(&Stamped { seq, at: Timestamp(0), event: Event::NextSession { next } });
    let table = read.open_table(Table::Meta.definition())?;
    for key in [STARTED_KEY, SERVER_KEY] {
        if let Some(record) = table.get(key)? {
            let event = unseal_event(Table::Meta, key, record.value());
            let why = |why| StoreError::Damaged(damaged(Table::Meta, key, why).to_string());
            pool.apply(&event.map_err(why)?);
        }
    }
    Ok(pool)
}

fn each(read: &ReadTransaction, table: Table, mut f: impl FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
    for row in read.open_table(table.definition())?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        f(key.value(), record.value());
    }
    Ok(())
}

struct Loading {
    pool: Pool,
    owners: Owners,
    bad: Vec<(Table, Quarantined)>,
}

impl Loading {
    fn row(&mut self, table: Table, key: &[u8], record: &[u8]) {
        match self.event(table, key, record) {
            Ok(stamped) => {
                if let Event::MessageQueued(message) = &stamped.event {
                    self.owners.insert(message.id, message.session);
                }
                self.pool.apply(&stamped);
            }
            Err(why) => {
                let (key, bytes) = (key.to_vec(), record.to_vec());
                let quarantined =
                    Quarantined { table: table.name().to_owned(), key, bytes, why: why.to_string() };
                self.bad.push((table, quarantined));
            }
        }
    }

    fn event(&self, table: Table, key: &[u8], record: &[u8]) -> Result<Stamped, RecordError> {
        if table == Table::Messages {
            return Ok(unseal_message(key, record)?.0);
        }
        let stamped = unseal_event(table, key, record)?;
        match &stamped.event {
            Event::MessageChanged { id, .. } if self.pool.message(*id).is_none() => Err(RecordError::Orphan),
            _ => Ok(stamped),
        }
    }
}

/// Moves bad records to the quarantine. A message whose state cannot be read may have been typed,
/// so it is in doubt, and never typed again by itself.
fn put_aside(
    pool: &mut Pool,
    owners: &mut Owners,
    bad: &[(Table, Quarantined)],
) -> Result<Changes, StoreError> {
    let mut doubts = Vec::new();
    for (table, record) in bad {
        let id = key_number(&record.key).filter(|_| *table == Table::MessageStates).map(MessageId);
        if let Some(doubt) = id.and_then(|id| in_doubt(pool, id)) {
            pool.apply(&doubt);
            doubts.push(doubt);
        }
    }
    let mut changes = commit::changes(pool, &doubts, &[], owners)?;
    for (table, record) in bad {
        changes.entry(*table).or_default().entry(record.key.clone()).or_insert(None);
        let (key, value) = quarantine_row(record);
        changes.entry(Table::Quarantine).or_default().insert(key, Some(value));
    }
    Ok(changes)
}

fn in_doubt(pool: &Pool, id: MessageId) -> Option<Stamped> {
    let mut message = pool.message(id)?.clone();
    message.state = MessageState::InDoubt;
    message.reason = Some("the record of its state was damaged".to_owned());
    let seq = Seq(pool.seq().0.saturating_add(1));
    Some(Stamped { seq, at: message.changed_at, event: state_of(&message) })
}

fn quarantine_row(record: &Quarantined) -> (Vec<u8>, Vec<u8>) {
    let key = [record.table.as_bytes(), &[0], &record.key].concat();
    let why = record.why.as_bytes();
    let length = u16::try_from(why.len()).unwrap_or(0);
    let payload = [length.to_le_bytes().as_slice(), &why[..usize::from(length)], &record.bytes].concat();
    let value = seal(Table::Quarantine, &key, &payload);
    (key, value)
}

/// A row of the quarantine; one that is damaged itself is reported as it is.
fn reported(key: &[u8], record: &[u8]) -> Quarantined {
    let (table, rest) = key.split_at(key.iter().position(|b| *b == 0).unwrap_or(key.len()));
    let split = unseal(Table::Quarantine, key, record).ok().and_then(|payload| {
        let (length, rest) = payload.split_first_chunk::<2>()?;
        rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))
    });
    let (why, bytes) = split.unwrap_or((b"damaged in the quarantine", record));
    Quarantined {
        table: String::from_utf8_lossy(table).into_owned(),
        key: rest.get(1..).unwrap_or_default().to_vec(),
        bytes: bytes.to_vec(),
        why: String::from_utf8_lossy(why).into_owned(),
    }
}
