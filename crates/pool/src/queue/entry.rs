//! A pending message in 16 bytes: a million of them take 16 MB.

use protocol::{MessageId, Timestamp};

/// Bits of a body's size: 0 to 256 KiB inclusive.
const SIZE_BITS: u32 = 19;

/// Bits of the state.
const STATE_BITS: u32 = 2;

/// The part of a pending message that is always in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueEntry {
    id: u64,
    /// From the highest bit: time of queueing (43 bits of milliseconds, to the year 2248), size, state.
    packed: u64,
}

/// The state of an entry in its [`KindQueue`](crate::queue::kind_queue::KindQueue).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryState {
    Waiting,
    InFlight,
    /// No longer in the queue; the entry is dropped at the next compaction.
    Removed,
}

impl QueueEntry {
    pub(crate) fn new(id: MessageId, size: u32, created_at: Timestamp) -> Self {
        let size = u64::from(size).min((1 << SIZE_BITS) - 1);
        Self { id: id.0, packed: created_at.0 << (SIZE_BITS + STATE_BITS) | size << STATE_BITS }
    }

    pub(crate) fn id(self) -> MessageId {
        MessageId(self.id)
    }

    pub(crate) fn size(self) -> u32 {
        u32::try_from(self.packed >> STATE_BITS & ((1 << SIZE_BITS) - 1)).unwrap_or(u32::MAX)
    }

    pub(crate) fn created_at(self) -> Timestamp {
        Timestamp(self.packed >> (SIZE_BITS + STATE_BITS))
    }

    pub(crate) fn state(self) -> EntryState {
        match self.packed & ((1 << STATE_BITS) - 1) {
            0 => EntryState::Waiting,
            1 => EntryState::InFlight,
            _ => EntryState::Removed,
        }
    }

    pub(crate) fn with_state(self, state: EntryState) -> Self {
        let bits = match state {
            EntryState::Waiting => 0,
            EntryState::InFlight => 1,
            EntryState::Removed => 2,
        };
        Self { packed: self.packed & !((1 << STATE_BITS) - 1) | bits, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_in_sixteen_bytes() {
        assert_eq!(size_of::<QueueEntry>(), 16);
        for (id, size, at) in [(0, 0, 0), (7, 262_144, 1_795_000_000_000), (u64::MAX, 1, (1 << 43) - 1)] {
            for state in [EntryState::Waiting, EntryState::InFlight, EntryState::Removed] {
                let entry = QueueEntry::new(MessageId(id), size, Timestamp(at));
                let entry = entry.with_state(EntryState::InFlight).with_state(state);
                assert_eq!(
                    (entry.id(), entry.size(), entry.created_at()),
                    (MessageId(id), size, Timestamp(at))
                );
                assert_eq!(entry.state(), state);
            }
        }
    }
}
