//! The laws of queues: by name, and against a reference under random commands.

mod command;
mod machine;
mod model;
mod named;
mod reference;

use pool::admit::{self, Body, Earlier, Sending};
use pool::queue::Rules;
use protocol::message::PROMPT;
use protocol::request::Send;
use protocol::{ErrorCode, Event, MessageId, OpId, Seq, SessionId, SessionRef, Timestamp};

use crate::world::World;

/// A prompt as a user sends it.
pub(crate) fn asked(session: SessionId, kind: &str) -> Send {
    Send {
        session: SessionRef(session.to_string()),
        body: "text".into(),
        kind: kind.to_owned(),
        key: None,
        origin: "test".into(),
        ttl_ms: None,
        enter: true,
        raw: false,
        priority: 0,
        cause: None,
        wake: false,
    }
}

/// What a daemon does with `send`: what was sent before is looked up on the disk.
pub(crate) fn send(world: &mut World, rules: &Rules, send: &Send, op: &OpId) -> Result<MessageId, ErrorCode> {
    let session = world.pool.session(send.session.0.parse().unwrap()).unwrap().clone();
    let row = |id: MessageId| world.disk.messages.get(&id).map(|(message, _)| message);
    let digest = send.body.0.iter().map(|byte| u64::from(*byte) + 1).sum();
    let body = Body { bytes: send.body.0.clone(), digest };
    if let Some(first) = world.pool.sent_by(op).and_then(row).filter(|first| first.op.as_ref() == Some(op)) {
        return if first.digest == digest { Ok(first.id) } else { Err(ErrorCode::Conflict) };
    }
    let keyed = send.key.as_ref().and_then(|key| world.pool.keyed(session.id, key)).and_then(row);
    let earlier = Earlier { keyed, cause: send.cause.and_then(row) };
    let sending = Sending { session: &session, send, body: &body, op };
    let place = (Seq(world.pool.seq().0 + 1), Timestamp(world.now));
    match admit::send(&world.pool, rules, sending, earlier, place).map_err(|refusal| refusal.code)? {
        admit::Sent::Existing(id) => Ok(id),
        admit::Sent::Queued(message) => {
            let id = message.id;
            let stamped = world.emit(Event::MessageQueued(message));
            assert_eq!(stamped.seq.0, id.0, "a message's number is the place of its event");
            Ok(id)
        }
    }
}

/// A prompt with an operation id of its own.
pub(crate) fn send_prompt(world: &mut World, session: SessionId) -> Result<MessageId, ErrorCode> {
    let op = OpId::Named(format!("op{}", world.pool.seq()));
    send(world, &Rules::default(), &asked(session, PROMPT), &op)
}
