//! The laws of queues: by table, and against a reference under random commands.

pub(crate) mod command;
mod machine;
mod model;
mod named;
mod reference;

use pool::queue::{Body, EarlierMessages, SendInputs};
use pool::{QueueRules, queue};
use protocol::request::Send;
use protocol::{ErrorCode, Event, MessageId, OpId, PROMPT, Seq, SessionId, SessionRef, Timestamp};

use crate::world::World;

/// A message as a user sends it.
pub(crate) fn asked(session: SessionId, kind: &str) -> Send {
    Send {
        session: SessionRef(session.to_string()),
        body: "text".into(),
        kind: kind.to_owned(),
        origin: "test".into(),
        enter: true,
        ..Send::default()
    }
}

/// Sends as a daemon does: earlier messages are looked up on disk.
pub(crate) fn send(
    world: &mut World,
    rules: &QueueRules,
    send: &Send,
    op: &OpId,
) -> Result<MessageId, ErrorCode> {
    let session = world.pool.session(send.session.0.parse().unwrap()).unwrap().clone();
    let row = |id: MessageId| world.disk.messages.get(&id).map(|(message, _)| message);
    let digest = send.body.0.iter().map(|byte| u64::from(*byte) + 1).sum();
    let body = Body { bytes: send.body.0.clone(), digest };
    if let Some(first) =
        world.pool.message_by_operation(op).and_then(row).filter(|first| first.op.as_ref() == Some(op))
    {
        return if first.digest == digest { Ok(first.id) } else { Err(ErrorCode::Conflict) };
    }
    let keyed = send.key.as_ref().and_then(|key| world.pool.message_by_key(session.id, key)).and_then(row);
    let earlier = EarlierMessages { keyed, cause: send.cause.and_then(row) };
    let sending = SendInputs { session: &session, send, body: &body, op };
    let place = (Seq(world.pool.seq().0 + 1), Timestamp(world.now));
    match queue::send(&world.pool, rules, sending, earlier, place).map_err(|refusal| refusal.code)? {
        queue::SendOutcome::Existing(id) => Ok(id),
        queue::SendOutcome::Queued(message) => {
            let id = message.id;
            let stamped = world.emit(Event::MessageQueued(message));
            assert_eq!(stamped.seq.0, id.0, "a message's number is the place of its event");
            Ok(id)
        }
    }
}

/// Sends a prompt with an operation id of its own.
pub(crate) fn send_prompt(world: &mut World, session: SessionId) -> Result<MessageId, ErrorCode> {
    let op = OpId::Named(format!("op{}", world.pool.seq()));
    send(world, &QueueRules::default(), &asked(session, PROMPT), &op)
}
