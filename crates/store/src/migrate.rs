//! Bringing a file of an older schema up to date: one file for each step, and before the first one a
//! copy of the file as it was.

mod v1;
mod v2;
mod v3;
mod v4;

use std::fs;
use std::path::Path;

use protocol::frame::encode_record;
use protocol::reply::Response;
use protocol::{Event, Reply, Stamped};
use redb::{Database, ReadableTable, TableDefinition, WriteTransaction};

use crate::commit::Tables;
use crate::error::{RecordError, StoreError};
use crate::names::{Names, place, with_ending};
use crate::quarantine;
use crate::record::{damaged, seal_event, unseal, unseal_event};
use crate::schema;
use crate::tables::{Definition, FLOOR_KEY, SCHEMA_KEY, SEQ_KEY, Table, key_number};

/// Brings a file of this older version to this build's in one transaction: until all of it is, none is.
/// Each step writes what it changes as it is now, so a later step has nothing of it to do.
pub(crate) fn file(db: &Database, version: u32) -> Result<(), StoreError> {
    let transaction = db.begin_write()?;
    let mut tables = Tables::new(&transaction);
    for table in Table::ALL {
        tables.get(table)?;
    }
    if version < 2 {
        v1::migrate(&transaction, &mut tables)?;
    }
    if version < 3 {
        v2::migrate(&transaction, &mut tables)?;
    }
    if version == 3 {
        v3::migrate(&transaction, &mut tables)?;
    }
    if version == 4 {
        v4::answers(&mut tables)?;
    }
    tables.put(Table::Meta, SCHEMA_KEY, &schema::row(schema::SCHEMA))?;
    drop(tables);
    Ok(transaction.commit()?)
}

/// The same for tables that were filled from an export of this older version: in its lines, unlike in
/// records, what came later is only missing.
pub(crate) fn imported(tables: &mut Tables<'_>, version: u32) -> Result<(), StoreError> {
    match version {
        ..3 => v2::answers(tables)?,
        3 => v3::answers(tables)?,
        4 => v4::answers(tables)?,
        _ => {}
    }
    tables.put(Table::Meta, SCHEMA_KEY, &schema::row(schema::SCHEMA))
}

/// Keeps a copy of a file of this version, `pool.redb.v1`; one that is there already is left alone.
pub(crate) fn keep(names: &dyn Names, path: &Path, version: u32) -> Result<(), StoreError> {
    let kept = with_ending(path, &format!(".v{version}"));
    // It has its name only if it is whole; what else has that name is not a copy.
    if schema::look(&kept).is_ok_and(|found| found == Some(version)) {
        return Ok(());
    }
    place(names, &kept, |unfinished| Ok(fs::copy(path, unfinished).map(drop)?))
}

/// A table of an older schema.
const fn definition(name: &'static str) -> Definition {
    TableDefinition::new(name)
}

/// Rewrites the sessions of an old table; `now` is what a record's payload is now.
fn sessions(
    transaction: &WriteTransaction,
    tables: &mut Tables<'_>,
    old: &'static str,
    now: impl Fn(&[u8]) -> Result<Stamped, RecordError>,
) -> Result<(), StoreError> {
    for row in transaction.open_table(definition(old))?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        let (key, record) = (key.value(), record.value());
        match unseal(old, key, record).and_then(&now) {
            Ok(session) => tables.put(Table::Sessions, key, &seal_event(Table::Sessions, key, &session)?)?,
            Err(why) => quarantine::put(tables, old, key, (record, &why.to_string()))?,
        }
    }
    transaction.delete_table(definition(old))?;
    Ok(())
}

/// Rewrites what is remembered of operations, where `now` says what it is now.
fn operations(tables: &mut Tables<'_>, now: impl Fn(&Event) -> Option<Event>) -> Result<(), StoreError> {
    let mut changed = Vec::new();
    for row in tables.get(Table::Operations)?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        let Ok(stamped) = unseal_event(Table::Operations, key.value(), record.value()) else { continue };
        if let Some(event) = now(&stamped.event) {
            changed.push((key.value().to_vec(), Stamped { event, ..stamped }));
        }
    }
    for (key, stamped) in changed {
        tables.put(Table::Operations, &key, &seal_event(Table::Operations, &key, &stamped)?)?;
    }
    Ok(())
}

/// Rewrites remembered answers; `now` is what an answer is now, where it is one of those that changed.
fn answers(tables: &mut Tables<'_>, now: impl Fn(&[u8]) -> Option<Response>) -> Result<(), StoreError> {
    operations(tables, |event| {
        let Event::OperationDone { op, digest, reply, at } = event else { return None };
        let reply = encode_record(&Reply::Ok(now(reply)?)).ok()?;
        Some(Event::OperationDone { op: op.clone(), digest: *digest, reply, at: *at })
    })
}

/// Begins the journal anew, in place of the old one: what was given out so far is behind its floor, the
/// queueing of the messages, too.
fn new_journal(
    transaction: &WriteTransaction,
    tables: &mut Tables<'_>,
    old: &'static str,
) -> Result<(), StoreError> {
    let mut last = 0;
    if let Some(row) = tables.get(Table::Meta)?.get(SEQ_KEY)? {
        let payload = unseal(Table::Meta.name(), SEQ_KEY, row.value());
        let why = |why| StoreError::Damaged(damaged(Table::Meta, SEQ_KEY, why).to_string());
        last = key_number(payload.map_err(why)?).unwrap_or(0);
    }
    let in_messages = tables.get(Table::Messages)?.last()?.and_then(|(key, _)| key_number(key.value()));
    let in_journal =
        transaction.open_table(definition(old))?.last()?.and_then(|(key, _)| key_number(key.value()));
    let last = last.max(in_messages.unwrap_or(0)).max(in_journal.unwrap_or(0));
    transaction.delete_table(definition(old))?;
    tables.number(FLOOR_KEY, last)?;
    tables.number(SEQ_KEY, last)
}
