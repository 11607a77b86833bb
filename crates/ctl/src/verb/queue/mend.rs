//! What changes a queue.

use std::time::Duration;

use protocol::request::{Messages, Purge, Resolution, ResolveMessage};
use protocol::{MessageId, MessageState, Request, Response};
use serde_json::json;

use super::{As, Which, find, messages, session_id};
use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::json::{MessageJson, word};
use crate::show::{out, time};
use crate::verb::{expect_message, for_each, only_one};

/// Makes the same request of each of these messages, or of all in a state where a flag asks for those.
pub(super) fn each(
    context: &Context,
    session: &str,
    (which, (many, state, flag), repeat): (Which, (bool, MessageState, &str), &Repeat),
    request: impl Fn(MessageId) -> Request,
) -> Result<(), Error> {
    if many != which.ids.is_empty() || (!many && !which.kind.is_empty()) {
        return Err(Error::usage(format!(
            "say which messages: either ids or {flag}, the latter with --kind"
        )));
    }
    let mut client = context.client();
    let of = session_id(context, &mut client, session)?;
    let ids = if many {
        let which = Messages { session: of.into(), kinds: which.kind, states: vec![state], limit: u32::MAX };
        let mut ids = Vec::new();
        messages(&mut client, which, |message| {
            ids.push(message.id);
            Ok(())
        })?;
        ids
    } else {
        which.ids
    };
    // All of none is none, and done.
    only_one(repeat, ids.len().max(1))?;
    for_each(context, &ids, |id| {
        if !many {
            find(&mut client, of, *id)?;
        }
        change(context, &mut client, repeat, request(*id))
    })
}

/// Makes the request and prints what the message is now.
fn change(context: &Context, client: &mut Client, repeat: &Repeat, request: Request) -> Result<(), Error> {
    let message = expect_message(client.change(repeat, request)?)?;
    if context.style.json {
        out::json(&MessageJson::new(&message))
    } else {
        context.say(&format!("{}  {}", message.id, word(&message.status.state)))
    }
}

/// `queue resolve`.
pub(super) fn resolve(
    context: &Context,
    session: &str,
    ids: Vec<MessageId>,
    (resolution, repeat): (As, &Repeat),
) -> Result<(), Error> {
    let resolution = match resolution {
        As::Done => Resolution::Done,
        As::Retry => Resolution::Retry,
        As::Dead => Resolution::Dead,
    };
    let which = Which { ids, kind: Vec::new() };
    let none = (false, MessageState::InDoubt, "");
    let request = |id| Request::ResolveMessage(ResolveMessage { id, resolution });
    each(context, session, (which, none, repeat), request)
}

/// `queue purge`.
pub(super) fn purge(
    context: &Context,
    session: &str,
    (ids, states, older_than): (Vec<MessageId>, Vec<MessageState>, Option<Duration>),
    repeat: &Repeat,
) -> Result<(), Error> {
    let session = context.session(session)?;
    let states = if ids.is_empty() && states.is_empty() { vec![MessageState::Dead] } else { states };
    let older_ms = older_than.map_or(0, time::millis);
    let purge = Purge { session, ids, states, older_ms };
    match context.client().change(repeat, Request::Purge(purge))? {
        Response::Purged { messages } if context.style.json => out::json(&json!({"purged": messages})),
        Response::Purged { messages } => context.say(&format!("{messages} forgotten")),
        other => Err(Error::unexpected(&other)),
    }
}
