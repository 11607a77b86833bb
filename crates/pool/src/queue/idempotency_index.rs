//! Recognition of repeated requests by hashes of idempotency keys and operation ids. A hash only names a
//! candidate message; the message itself tells whether the request is the same.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use protocol::{MessageId, OpId, SessionId, digest};

/// Random operation ids per generation. One to two generations are remembered, unless their time is over
/// earlier.
const GENERATION: usize = 200_000;

type ByHash = HashMap<u64, MessageId, BuildHasherDefault<PrehashedHasher>>;

/// The identity as a hash function: the keys are hashes already. Saves a tenth of the time to open a large
/// database.
#[derive(Debug, Clone, Copy, Default)]
struct PrehashedHasher(u64);

impl Hasher for PrehashedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Hashes that are remembered as long as their message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdempotencyIndex {
    by_hash: ByHash,
    by_id: BTreeSet<(MessageId, u64)>,
}

impl IdempotencyIndex {
    pub(crate) fn put(&mut self, hash: u64, id: MessageId) {
        if let Some(before) = self.by_hash.insert(hash, id) {
            self.by_id.remove(&(before, hash));
        }
        self.by_id.insert((id, hash));
    }

    pub(crate) fn get(&self, hash: u64) -> Option<MessageId> {
        self.by_hash.get(&hash).copied()
    }

    /// True if a message has a key or a chosen operation id, which must not be forgotten early.
    pub(crate) fn names(&self, id: MessageId) -> bool {
        self.by_id.range((id, 0)..=(id, u64::MAX)).next().is_some()
    }

    pub(crate) fn forget(&mut self, id: MessageId) {
        let hashes: Vec<_> = self.by_id.range((id, 0)..=(id, u64::MAX)).copied().collect();
        for (id, hash) in hashes {
            self.by_id.remove(&(id, hash));
            self.by_hash.remove(&hash);
        }
    }
}

/// Random operation ids of the last minutes, and the newest message. Not part of the state: a forgotten
/// operation counts as new.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecentOperations {
    newest: MessageId,
    young: ByHash,
    old: ByHash,
}

impl RecentOperations {
    /// Returns true the first time for a message that is newer than all before it.
    pub(crate) fn is_new(&mut self, id: MessageId) -> bool {
        let is_new = id > self.newest;
        self.newest = self.newest.max(id);
        is_new
    }

    pub(crate) fn put(&mut self, hash: u64, id: MessageId) {
        if self.young.len() >= GENERATION {
            self.age();
        }
        self.young.insert(hash, id);
    }

    pub(crate) fn get(&self, hash: u64) -> Option<MessageId> {
        self.young.get(&hash).or_else(|| self.old.get(&hash)).copied()
    }

    /// Forgets the older generation; the younger one becomes the older.
    pub(crate) fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }
}

impl PartialEq for RecentOperations {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RecentOperations {}

pub(crate) fn key_hash(session: SessionId, key: &str) -> u64 {
    hash(&[b"k", &session.0.to_le_bytes(), key.as_bytes()])
}

pub(crate) fn op_hash(op: &OpId) -> u64 {
    match op {
        OpId::Random(bytes) => hash(&[b"r", bytes]),
        OpId::Named(name) => hash(&[b"n", name.as_bytes()]),
    }
}

/// The digest of the parts one after the other.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    digest(parts.iter().copied().flatten())
}
