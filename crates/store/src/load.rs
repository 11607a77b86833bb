//! From rows to a pool. What cannot be read is put aside with its bytes, and reported at every open
//! until somebody deals with it; it never keeps its neighbours from being read.

mod scan;

use std::collections::BTreeSet;

use pool::Pool;
use protocol::{Event, MessageId, MessageState, MessageStatus, Seq, SessionId, Stamped, Timestamp};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTableMetadata};

use crate::commit::{self, Batch, Tables};
use crate::error::{RecordError, StoreError};
use crate::journal::{floor, last};
use crate::quarantine::{self, Quarantined};
use crate::reader::open;
use crate::record::{damaged, unseal_event};
use crate::schema::meta_number;
use crate::tables::{
    CLOCK_KEY, COPIED_KEY, NEXT_SESSION_KEY, SEQ_KEY, SERVER_KEY, STARTED_KEY, TIMELINE_KEY, Table,
};

/// How many rows are read between two reports of progress.
const REPORT: u64 = 1 << 16;

/// What an open found.
#[derive(Debug)]
pub struct Loaded {
    /// The state, from the rows that could be read.
    pub pool: Pool,
    /// The records that could not, at this open and at earlier ones.
    pub quarantined: Vec<Quarantined>,
    /// Whose database it is.
    pub timeline: Timeline,
}

/// Whose database it is: a copy of it, gone on with elsewhere or later, is another pool's, though it says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeline {
    /// The random number that its pool was given; none where it is older than these numbers.
    pub id: Option<u64>,
    /// It was made as a copy ([`crate::care::backup`], [`crate::care::import`]), and is nobody's yet.
    pub copied: bool,
}

/// Builds the pool, and moves what cannot be read out of the way. `progress` hears from 0.0 to 1.0 how
/// far it is. Answers the journal's floor, too.
pub(crate) fn load(db: &Database, progress: &dyn Fn(f64)) -> Result<(Loaded, u64), StoreError> {
    let read = db.begin_read()?;
    let floor = floor(&read)?;
    let number = |key| meta_number(&read, key);
    let timeline = Timeline { id: number(TIMELINE_KEY)?, copied: number(COPIED_KEY)?.is_some() };
    let mut loading = Loading { pool: meta(&read)?, bad: Vec::new(), doubts: Vec::new() };
    loading.table(&read, Table::Sessions)?;
    loading.messages(&read, progress)?;
    let agents = [Table::Activities, Table::Notes, Table::Thoughts, Table::LostConversations];
    for table in [Table::Breakers, Table::Retired, Table::Operations].into_iter().chain(agents) {
        loading.table(&read, table)?;
    }
    drop(read);
    let pool = loading.put_aside(db, floor)?;
    progress(1.0);
    Ok((Loaded { pool, quarantined: quarantine::all(db)?, timeline }, floor))
}

/// What there is one of. Nothing else tells what it was, so damage here is fatal.
fn meta(read: &ReadTransaction) -> Result<Pool, StoreError> {
    let mut pool = Pool::default();
    let next = meta_number(read, NEXT_SESSION_KEY)?.unwrap_or(0);
    let seq = Seq(last(read)?);
    pool.apply(&Stamped { seq, at: Timestamp(0), event: Event::NextSession { next } });
    let table = open(read, Table::Meta)?;
    for key in [STARTED_KEY, SERVER_KEY, CLOCK_KEY] {
        if let Some(record) = table.get(key)? {
            let event = unseal_event(Table::Meta, key, record.value());
            let why = |why| StoreError::Damaged(damaged(Table::Meta, key, why).to_string());
            pool.apply(&event.map_err(why)?);
        }
    }
    Ok(pool)
}

/// A record that cannot be read, or not be used.
struct Bad {
    table: Table,
    key: Vec<u8>,
    why: RecordError,
}

impl Bad {
    fn put_aside(&self, tables: &mut Tables<'_>, floor: u64) -> Result<(), StoreError> {
        let Self { table, key, why } = self;
        let Some(record) = tables.take(*table, key)? else { return Ok(()) };
        if matches!((table, why), (Table::Messages, RecordError::NoSession(_))) {
            // A sound event all the same.
            commit::keep_event(tables, (key, &record), floor)?;
        }
        quarantine::put(tables, table.name(), key, (&record, &why.to_string()))
    }
}

/// What a row of a message comes to.
enum Found {
    Event(Stamped),
    Bad(Bad),
    /// Its state cannot be read.
    Doubt(MessageId, SessionId, Timestamp),
}

struct Loading {
    pool: Pool,
    bad: Vec<Bad>,
    doubts: Vec<(MessageId, SessionId, Timestamp)>,
}

impl Loading {
    fn table(&mut self, read: &ReadTransaction, table: Table) -> Result<(), StoreError> {
        for row in open(read, table)?.range::<&[u8]>(..)? {
            let (key, record) = row?;
            match unseal_event(table, key.value(), record.value()) {
                Ok(stamped) => self.pool.apply(&stamped),
                Err(why) => self.bad.push(Bad { table, key: key.value().to_vec(), why }),
            }
        }
        Ok(())
    }

    fn messages(&mut self, read: &ReadTransaction, progress: &dyn Fn(f64)) -> Result<(), StoreError> {
        let of = open(read, Table::Messages)?.len()?.max(1);
        let mut rows = 0_u64;
        let sessions: BTreeSet<SessionId> = self.pool.sessions().map(|session| session.id).collect();
        scan::messages(read, &sessions, |found| {
            self.take(found);
            rows += 1;
            if rows.is_multiple_of(REPORT) {
                // Not exact: only to be shown.
                progress((rows as f64 / of as f64).min(1.0));
            }
        })
    }

    fn take(&mut self, found: Found) {
        match found {
            Found::Event(stamped) => self.pool.apply(&stamped),
            Found::Bad(bad) => self.bad.push(bad),
            Found::Doubt(id, session, at) => self.doubts.push((id, session, at)),
        }
    }

    /// Moves bad records to the quarantine. A message whose state cannot be read may have been typed,
    /// so it is in doubt, and never typed again by itself.
    fn put_aside(self, db: &Database, floor: u64) -> Result<Pool, StoreError> {
        let Self { mut pool, bad, doubts } = self;
        if bad.is_empty() {
            return Ok(pool);
        }
        let transaction = db.begin_write()?;
        let mut tables = Tables::new(&transaction);
        bad.iter().try_for_each(|bad| bad.put_aside(&mut tables, floor))?;
        let events: Vec<Stamped> = doubts.into_iter().map(|doubt| in_doubt(&mut pool, doubt)).collect();
        commit::write(&mut tables, Batch { pool: &pool, events: &events, bodies: &[], floor })?;
        tables.number(SEQ_KEY, pool.seq().0)?;
        drop(tables);
        transaction.commit()?;
        Ok(pool)
    }
}

fn in_doubt(pool: &mut Pool, (id, session, at): (MessageId, SessionId, Timestamp)) -> Stamped {
    let status = MessageStatus {
        state: MessageState::InDoubt,
        changed_at: at,
        reason: Some("the record of its state was damaged".to_owned()),
        ..MessageStatus::default()
    };
    let seq = Seq(pool.seq().0.saturating_add(1));
    let stamped = Stamped { seq, at, event: Event::MessageChanged { id, session, status: Box::new(status) } };
    pool.apply(&stamped);
    stamped
}
