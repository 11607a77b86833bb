//! The commands that change a queue.

use std::time::Duration;

use protocol::request::{Messages, Purge, Resolution, ResolveMessage};
use protocol::{ErrorCode, MessageId, MessageState, Request, Response};
use serde_json::json;

use super::messages::{self, find, session_id};
use super::selection::Selection;
use crate::show::json::{MessageJson, json_name};
use crate::show::{out, time};
use crate::targets::{for_each, only_one};
use crate::{Client, Context, Error, Repeat, expect_message};

/// The alternative to ids: all messages in a state, by a flag; or waiting messages of a kind.
pub(super) struct Many {
    /// True if the flag is given.
    pub asked: bool,
    /// The state that the flag selects.
    pub state: MessageState,
    /// The flag, for messages to the user.
    pub flag: &'static str,
}

/// Makes a request for each selected message.
pub(super) fn each(
    context: &Context,
    session: &str,
    (which, many, repeat): (Selection, Many, &Repeat),
    request: impl Fn(MessageId) -> Request,
) -> Result<(), Error> {
    let selected = many.asked || !which.kind.is_empty();
    if selected != which.ids.is_empty() {
        let flag = many.flag;
        return Err(Error::usage(format!("name the messages: either ids, or {flag}, or --kind")));
    }
    let mut client = context.client();
    let of = session_id(context, &mut client, session)?;
    let ids = if selected {
        let state = if many.asked { many.state } else { MessageState::Queued };
        let list = Messages { session: of.into(), kinds: which.kind, states: vec![state], limit: u32::MAX };
        let mut ids = Vec::new();
        messages::for_each(&mut context.unlimited_client(), list, |message| {
            ids.push(message.id);
            Ok(())
        })?;
        ids
    } else {
        which.ids
    };
    // A repeated command may select other messages, so a selection takes no operation id.
    only_one(repeat, if selected { 0 } else { ids.len() })?;
    for_each(context, &ids, |id| {
        if selected {
            // A selected message that has changed its state since the selection is skipped.
            return match change(context, &mut client, repeat, request(*id)) {
                Err(Error::Refused(why)) if why.code == ErrorCode::Conflict => Ok(()),
                changed => changed,
            };
        }
        find(&mut client, of, *id)?;
        change(context, &mut client, repeat, request(*id))
    })
}

/// Makes the request, and prints the message's new state.
fn change(context: &Context, client: &mut Client, repeat: &Repeat, request: Request) -> Result<(), Error> {
    let message = expect_message(client.change(repeat, request)?)?;
    if context.style.json {
        out::json(&MessageJson::new(&message))
    } else {
        context.say(&format!("{}  {}", message.id, json_name(&message.status.state)))
    }
}

/// `queue resolve`.
pub(super) fn resolve(
    context: &Context,
    session: &str,
    ids: Vec<MessageId>,
    (resolution, repeat): (Resolution, &Repeat),
) -> Result<(), Error> {
    let which = Selection { ids, kind: Vec::new() };
    let none = Many { asked: false, state: MessageState::InDoubt, flag: "" };
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
        Response::Purged { messages } => context.say(&format!("{messages} deleted")),
        other => Err(Error::unexpected(&other)),
    }
}
