//! Builds the pool from the rows. Records that cannot be read go to the quarantine, and are reported at every
//! open while they are there; they never keep other records from being read.

mod scan;

use std::collections::BTreeSet;

use pool::Pool;
use protocol::{Event, MessageReason, MessageState, MessageStatus, Seq, SessionId, Stamped, Timestamp};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTableMetadata};

use crate::commit::{self, Batch};
use crate::error::{RecordError, StoreError};
use crate::journal::{floor, last};
use crate::quarantine::{self, Quarantined};
use crate::record::{record_error, unseal_event};
use crate::tables::{
    CLOCK_KEY, COPIED_KEY, FROM_EXPORT, NEXT_SESSION_KEY, SEQ_KEY, SERVER_KEY, STARTED_KEY, TIMELINE_KEY,
    Table,
};
use crate::transaction::{Tables, meta_number, open};
use scan::{BadRecord, Found, UnknownState};

/// Number of rows between two reports of progress.
const REPORT: u64 = 1 << 16;

/// The result of an open.
#[derive(Debug)]
pub struct Loaded {
    /// The state, from all readable rows.
    pub pool: Pool,
    /// The unreadable records of this open and of earlier ones.
    pub quarantined: Vec<Quarantined>,
    /// The timeline that the database belongs to.
    pub timeline: Timeline,
}

/// Identity of the pool that a database belongs to. A copy that is used elsewhere or later belongs to another
/// pool, though its rows are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeline {
    /// The random id that its pool was given; none before the pool's first start.
    pub id: Option<u64>,
    /// True if the file was made as a copy ([`crate::maintenance::backup`], [`crate::maintenance::import`])
    /// that no pool has adopted yet.
    pub copied: bool,
    /// True if that copy was made from an export.
    pub imported: bool,
}

/// Builds the pool and quarantines unreadable records; returns the journal's floor, too. `progress` is called
/// with 0.0 to 1.0.
pub(crate) fn load(db: &Database, progress: &dyn Fn(f64)) -> Result<(Loaded, u64), StoreError> {
    let read = db.begin_read()?;
    let floor = floor(&read)?;
    let number = |key| meta_number(&read, key);
    let copied = number(COPIED_KEY)?;
    let (id, imported) = (number(TIMELINE_KEY)?, copied == Some(FROM_EXPORT));
    let timeline = Timeline { id, copied: copied.is_some(), imported };
    let mut loader = Loader { pool: meta(&read)?, bad: Vec::new(), unknown: Vec::new() };
    loader.table(&read, Table::Sessions)?;
    loader.messages(&read, progress)?;
    let agents = [Table::Activities, Table::Notes, Table::Thoughts, Table::LostConversations];
    for table in [Table::Breakers, Table::Retired, Table::Operations].into_iter().chain(agents) {
        loader.table(&read, table)?;
    }
    drop(read);
    let pool = loader.quarantine(db, floor)?;
    progress(1.0);
    let quarantined = quarantine::all(&db.begin_read()?)?;
    Ok((Loaded { pool, quarantined, timeline }, floor))
}

/// Returns a pool with the singletons. Damage in them is fatal, since nothing else tells their values.
fn meta(read: &ReadTransaction) -> Result<Pool, StoreError> {
    let mut pool = Pool::default();
    let next = meta_number(read, NEXT_SESSION_KEY)?.unwrap_or(0);
    let seq = Seq(last(read)?);
    pool.apply(&Stamped { seq, at: Timestamp(0), event: Event::NextSession { next } });
    let table = open(read, Table::Meta)?;
    for key in [STARTED_KEY, SERVER_KEY, CLOCK_KEY] {
        if let Some(record) = table.get(key)? {
            let event = unseal_event(Table::Meta, key, record.value());
            let why = |why| StoreError::Damaged(record_error(Table::Meta, key, why).to_string());
            pool.apply(&event.map_err(why)?);
        }
    }
    Ok(pool)
}

struct Loader {
    pool: Pool,
    bad: Vec<BadRecord>,
    unknown: Vec<UnknownState>,
}

impl Loader {
    fn table(&mut self, read: &ReadTransaction, table: Table) -> Result<(), StoreError> {
        for row in open(read, table)?.range::<&[u8]>(..)? {
            let (key, record) = row?;
            match unseal_event(table, key.value(), record.value()) {
                Ok(stamped) => self.pool.apply(&stamped),
                Err(why) => self.bad.push(BadRecord { table, key: key.value().to_vec(), why }),
            }
        }
        Ok(())
    }

    fn messages(&mut self, read: &ReadTransaction, progress: &dyn Fn(f64)) -> Result<(), StoreError> {
        let total = open(read, Table::Messages)?.len()?.max(1);
        let mut rows = 0_u64;
        let sessions: BTreeSet<SessionId> = self.pool.sessions().map(|session| session.id).collect();
        scan::messages(read, &sessions, |found| {
            self.take(found);
            rows += 1;
            if rows.is_multiple_of(REPORT) {
                // Approximate: states are counted as well.
                progress((rows as f64 / total as f64).min(1.0));
            }
        })
    }

    fn take(&mut self, found: Found) {
        match found {
            Found::Event(stamped) => self.pool.apply(&stamped),
            Found::Bad(bad) => self.bad.push(bad),
            Found::UnknownState(message) => self.unknown.push(message),
        }
    }

    /// Moves bad records to the quarantine, and returns the pool. A message of unknown state may have been
    /// typed: it becomes `InDoubt`, so that it is never typed again without a decision by the user.
    fn quarantine(self, db: &Database, floor: u64) -> Result<Pool, StoreError> {
        let Self { mut pool, bad, unknown } = self;
        if bad.is_empty() {
            return Ok(pool);
        }
        let transaction = db.begin_write()?;
        let mut tables = Tables::new(&transaction);
        bad.iter().try_for_each(|bad| quarantine_record(&mut tables, bad, floor))?;
        let events: Vec<Stamped> = unknown.iter().map(|message| put_in_doubt(&mut pool, message)).collect();
        commit::write(&mut tables, Batch { pool: &pool, events: &events, bodies: &[], floor })?;
        tables.put_number(SEQ_KEY, pool.seq().0)?;
        drop(tables);
        transaction.commit()?;
        Ok(pool)
    }
}

fn quarantine_record(tables: &mut Tables<'_>, bad: &BadRecord, floor: u64) -> Result<(), StoreError> {
    let BadRecord { table, key, why } = bad;
    let Some(record) = tables.take(*table, key)? else { return Ok(()) };
    if matches!((table, why), (Table::Messages, RecordError::NoSession(_))) {
        // The event itself is sound, and the journal must not have a gap.
        commit::keep_event(tables, (key, &record), floor)?;
    }
    quarantine::put(tables, table.name(), key, (&record, &why.to_string()))
}

fn put_in_doubt(pool: &mut Pool, message: &UnknownState) -> Stamped {
    let UnknownState { id, session, created_at } = *message;
    // The journal is in the order of time, and trimming relies on the time of its rows.
    let at = created_at.max(pool.clock().read_at);
    let status = MessageStatus {
        state: MessageState::InDoubt,
        changed_at: at,
        reason: Some(MessageReason::Damaged),
        ..MessageStatus::default()
    };
    let seq = Seq(pool.seq().0.saturating_add(1));
    let stamped = Stamped { seq, at, event: Event::MessageChanged { id, session, status: Box::new(status) } };
    pool.apply(&stamped);
    stamped
}
