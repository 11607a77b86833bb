//! One waiting or held message in sixteen bytes: a million of them are sixteen megabytes.

use protocol::{MessageId, Timestamp};

/// Bits of a body's size: 0 to 256 KiB, both included.
const SIZE_BITS: u32 = 19;
/// Bits of the place.
const PLACE_BITS: u32 = 2;

/// What every message that is not over costs in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    id: u64,
    /// From the top: when it was queued (43 bits of milliseconds, to the year 2248), size, place.
    packed: u64,
}

/// Where a slot is in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Waiting,
    InFlight,
    /// Not in the lane any more; dropped when that is cheap.
    Gone,
}

impl Slot {
    pub(crate) fn new(id: MessageId, size: u32, created_at: Timestamp) -> Self {
        let size = u64::from(size).min((1 << SIZE_BITS) - 1);
        Self { id: id.0, packed: created_at.0 << (SIZE_BITS + PLACE_BITS) | size << PLACE_BITS }
    }

    pub(crate) fn id(self) -> MessageId {
        MessageId(self.id)
    }

    pub(crate) fn size(self) -> u32 {
        u32::try_from(self.packed >> PLACE_BITS & ((1 << SIZE_BITS) - 1)).unwrap_or(u32::MAX)
    }

    pub(crate) fn created_at(self) -> Timestamp {
        Timestamp(self.packed >> (SIZE_BITS + PLACE_BITS))
    }

    pub(crate) fn place(self) -> Place {
        match self.packed & ((1 << PLACE_BITS) - 1) {
            0 => Place::Waiting,
            1 => Place::InFlight,
            _ => Place::Gone,
        }
    }

    pub(crate) fn at(self, place: Place) -> Self {
        let bits = match place {
            Place::Waiting => 0,
            Place::InFlight => 1,
            Place::Gone => 2,
        };
        Self { packed: self.packed & !((1 << PLACE_BITS) - 1) | bits, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_in_sixteen_bytes() {
        assert_eq!(size_of::<Slot>(), 16);
        for (id, size, at) in [(0, 0, 0), (7, 262_144, 1_795_000_000_000), (u64::MAX, 1, (1 << 43) - 1)] {
            for place in [Place::Waiting, Place::InFlight, Place::Gone] {
                let slot = Slot::new(MessageId(id), size, Timestamp(at)).at(Place::InFlight).at(place);
                assert_eq!((slot.id(), slot.size(), slot.created_at()), (MessageId(id), size, Timestamp(at)));
                assert_eq!(slot.place(), place);
            }
        }
    }
}
