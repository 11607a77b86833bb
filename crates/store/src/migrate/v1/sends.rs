//! Operations that queued a message: in schema 1 they had a row with the reply, now the message has
//! their id, and a repeat is answered with it.

use std::collections::BTreeMap;

use protocol::frame::decode_record;
use protocol::{Event, Message, MessageId, MessageState, OpId, Refusal, Timestamp};
use redb::ReadableTable;
use serde::Deserialize;

use super::OldMessage;
use crate::commit::Tables;
use crate::error::StoreError;
use crate::record::unseal_event;
use crate::tables::{Table, op_key};

/// The operations that were answered with a message as it is queued, and when.
pub(super) struct Sends(BTreeMap<MessageId, Vec<(OpId, Timestamp)>>);

impl Sends {
    pub(super) fn read(tables: &mut Tables<'_>) -> Result<Self, StoreError> {
        let mut sends = BTreeMap::<_, Vec<_>>::new();
        for row in tables.get(Table::Operations)?.range::<&[u8]>(..)? {
            let (key, record) = row?;
            let Ok(stamped) = unseal_event(Table::Operations, key.value(), record.value()) else { continue };
            let Event::OperationDone { op, reply, at, .. } = stamped.event else { continue };
            if let Some(id) = queued(&reply) {
                sends.entry(id).or_default().push((op, at));
            }
        }
        Ok(Self(sends))
    }

    /// Gives a message the operation that queued it. Later ones came upon its key, which answers them.
    pub(super) fn give(&mut self, tables: &mut Tables<'_>, message: &mut Message) -> Result<(), StoreError> {
        for (op, at) in self.0.remove(&message.id).unwrap_or_default() {
            tables.remove(Table::Operations, &op_key(&op))?;
            if at == message.created_at {
                message.op = Some(op);
            }
        }
        Ok(())
    }
}

/// The message that a reply says is queued. Only a send was answered so: what was asked of a message
/// afterwards changed it.
fn queued(reply: &[u8]) -> Option<MessageId> {
    let Ok(Ok(OldResponse::Message(message))) = decode_record::<Result<OldResponse, Refusal>>(reply) else {
        return None;
    };
    let fresh = message.state == MessageState::Queued && message.changed_at == message.created_at;
    fresh.then_some(message.id)
}

/// Encoded by their numbers: the one of interest is the seventh.
#[derive(Deserialize)]
enum OldResponse {
    N0,
    N1,
    N2,
    N3,
    N4,
    N5,
    Message(Box<OldMessage>),
}
