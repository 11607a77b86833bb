//! The conversations of agents, as these have them on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The conversations that agents have on disk, each with the texts of the turns that outages cut short. Clones share
/// them.
#[derive(Clone, Default)]
pub(crate) struct Conversations(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>);

impl Conversations {
    /// Creates the conversation unless it exists. Returns the texts of its turns that outages cut short.
    pub(crate) fn begin_turn(&self, id: &str) -> BTreeSet<String> {
        self.all().entry(id.to_owned()).or_default().clone()
    }

    /// Notes that an outage cut short the turn on this text.
    pub(crate) fn cut_short(&self, id: &str, text: String) {
        self.all().entry(id.to_owned()).or_default().insert(text);
    }

    /// Notes that a turn on these texts has ended.
    pub(crate) fn end_turn(&self, id: &str, texts: &BTreeSet<String>) {
        if let Some(cut_short) = self.all().get_mut(id) {
            cut_short.retain(|text| !texts.contains(text));
        }
    }

    /// True if the conversation can be resumed.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.all().contains_key(id)
    }

    /// Removes a conversation, as an agent that cleans up does. True if it was there.
    pub(crate) fn lose(&self, id: &str) -> bool {
        self.all().remove(id).is_some()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
