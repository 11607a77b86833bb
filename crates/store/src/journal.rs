//! The journal: what subscribers that were away are served from. Nothing else depends on it.

use protocol::{Seq, Stamped};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use crate::error::StoreError;
use crate::record::{damaged, unseal_event};
use crate::tables::{Table, key_number, number_key};
use crate::{Store, commit};

/// The most events that one call of [`Store::trim_journal`] removes, so that no turn is held up for
/// long.
const TRIM_MAX: u64 = 4096;

impl Store {
    /// Up to `limit` events after this place, in order. A gap between `since` and
    /// [`Store::oldest_seq`] was trimmed away.
    ///
    /// # Errors
    /// [`StoreError::Record`] where the next event is damaged: the journal ends there for who comes
    /// from before it, and only the state itself helps. That does not latch.
    pub fn events_since(&self, since: Seq, limit: usize) -> Result<Vec<Stamped>, StoreError> {
        self.guarded(|db| {
            let journal = db.begin_read()?.open_table(Table::Journal.definition())?;
            let from = number_key(since.0.saturating_add(1));
            let mut events = Vec::new();
            for row in journal.range(from.as_slice()..)?.take(limit) {
                let (key, record) = row?;
                match unseal_event(Table::Journal, key.value(), record.value()) {
                    Ok(event) => events.push(event),
                    Err(why) if events.is_empty() => {
                        return Err(damaged(Table::Journal, key.value(), why));
                    }
                    Err(_) => break,
                }
            }
            Ok(events)
        })
    }

    /// The first place that the journal still holds.
    ///
    /// # Errors
    /// A failure of the storage.
    pub fn oldest_seq(&self) -> Result<Option<Seq>, StoreError> {
        self.guarded(|db| {
            let journal = db.begin_read()?.open_table(Table::Journal.definition())?;
            let first = journal.first()?;
            Ok(first.and_then(|(key, _)| key_number(key.value())).map(Seq))
        })
    }

    /// Removes the oldest events until `keep` are left, up to 4,096 at a time. Answers how many went.
    ///
    /// # Errors
    /// A failure of the storage; it latches.
    pub fn trim_journal(&mut self, keep: u64) -> Result<u64, StoreError> {
        self.guarded(|db| {
            let old = oldest(db, keep)?;
            let removed = u64::try_from(old.len()).unwrap_or(u64::MAX);
            if removed > 0 {
                let rows = old.into_iter().map(|key| (key, None)).collect();
                commit::write(db, commit::Changes::from([(Table::Journal, rows)]))?;
            }
            Ok(removed)
        })
    }
}

/// Keys of the events that are too many.
fn oldest(db: &Database, keep: u64) -> Result<Vec<Vec<u8>>, StoreError> {
    let journal = db.begin_read()?.open_table(Table::Journal.definition())?;
    let excess = journal.len()?.saturating_sub(keep).min(TRIM_MAX);
    let rows = journal.range::<&[u8]>(..)?.take(usize::try_from(excess).unwrap_or(0));
    rows.map(|row| Ok(row?.0.value().to_vec())).collect()
}
