//! What makes a second request the first one again: idempotency keys and operation ids, as hashes. A
//! hash only says which message to look at; whether it is the same is decided by the message itself.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use protocol::{MessageId, OpId, SessionId};

/// Random operation ids of one generation; the newest one to two generations are remembered, unless
/// they go out of their time before.
const GENERATION: usize = 200_000;

type ByHash = HashMap<u64, MessageId, BuildHasherDefault<Same>>;

/// What is a hash already is not hashed again: that is a tenth of the time to open a large database.
#[derive(Debug, Clone, Copy, Default)]
struct Same(u64);

impl Hasher for Same {
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

/// Hashes that are remembered as long as their message is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    by_hash: ByHash,
    by_id: BTreeSet<(MessageId, u64)>,
}

impl Known {
    pub(crate) fn put(&mut self, hash: u64, id: MessageId) {
        if let Some(before) = self.by_hash.insert(hash, id) {
            self.by_id.remove(&(before, hash));
        }
        self.by_id.insert((id, hash));
    }

    pub(crate) fn get(&self, hash: u64) -> Option<MessageId> {
        self.by_hash.get(&hash).copied()
    }

    /// Whether a message is known by something that must not be forgotten early.
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

/// Random operation ids of the last minutes, and the last message. No part of the state: what it has
/// forgotten is new again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent {
    newest: MessageId,
    young: ByHash,
    old: ByHash,
}

impl Recent {
    /// Whether a message is certainly new; from now on it is not.
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

    /// What was young is old now, and what was old is forgotten.
    pub(crate) fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }
}

impl PartialEq for Recent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Recent {}

pub(crate) fn key_hash(session: SessionId, key: &str) -> u64 {
    hash(&[b"k", &session.0.to_le_bytes(), key.as_bytes()])
}

pub(crate) fn op_hash(op: &OpId) -> u64 {
    match op {
        OpId::Random(bytes) => hash(&[b"r", bytes]),
        OpId::Named(name) => hash(&[b"n", name.as_bytes()]),
    }
}

/// FNV-1a, 64 bit: the same for ever. Not against an adversary, who would be the same user.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
