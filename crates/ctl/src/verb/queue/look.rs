//! What a queue holds.

use protocol::request::Messages;
use protocol::{Message, MessageId, MessageState, OsBytes, Request, Response, SessionId, Timestamp};

use super::{find, messages, session_id};
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::json::{MessageJson, with_history};
use crate::show::out::{self, Style};
use crate::show::{escape, queue, time};
use crate::verb::for_each;

/// `queue ls`.
pub(super) fn list(
    context: &Context,
    session: &str,
    (kinds, states, limit): (Vec<String>, Vec<MessageState>, u32),
) -> Result<(), Error> {
    let session = context.session(session)?;
    let found = all(context, Messages { session, kinds, states, limit })?;
    print(context, &found, queue::messages)?;
    if context.style.terminal && !context.style.quiet && u32::try_from(found.len()) == Ok(limit) {
        out::note(&format!("poolctl: that is {limit}, there may be more: see --limit"));
    }
    Ok(())
}

/// `queue dead`: each as it comes and as fast as it is read, but for people, who get a table of all.
pub(super) fn dead(context: &Context, session: &str, kinds: Vec<String>) -> Result<(), Error> {
    let (session, states) = (context.session(session)?, vec![MessageState::Dead]);
    let which = Messages { session, kinds, states, limit: u32::MAX };
    if context.style.json || context.style.quiet {
        let each = |message| print(context, &[message], queue::dead);
        messages(&mut context.patient_client(), which, each)
    } else {
        print(context, &all(context, which)?, queue::dead)
    }
}

fn all(context: &Context, which: Messages) -> Result<Vec<Message>, Error> {
    let mut found = Vec::new();
    messages(&mut context.client(), which, |message| {
        found.push(message);
        Ok(())
    })?;
    Ok(found)
}

/// Makes a table.
type Shown = fn(&[Message], Style, Timestamp) -> String;

fn print(context: &Context, found: &[Message], table: Shown) -> Result<(), Error> {
    if context.style.json {
        found.iter().try_for_each(|message| out::json(&MessageJson::new(message)))
    } else if context.style.quiet {
        found.iter().try_for_each(|message| out::line(&message.id.to_string()))
    } else {
        out::text(&table(found, context.style, time::now()))
    }
}

/// `queue show`.
pub(super) fn show(
    context: &Context,
    client: &mut Client,
    session: &str,
    (ids, with_body): (&[MessageId], bool),
) -> Result<(), Error> {
    let of = session_id(context, client, session)?;
    for_each(context, ids, |id| show_one(context, client, (of, *id), with_body))
}

fn show_one(
    context: &Context,
    client: &mut Client,
    (of, id): (SessionId, MessageId),
    with_body: bool,
) -> Result<(), Error> {
    let message = find(client, of, id)?;
    let body = if with_body { Some(body(client, id)?) } else { None };
    if context.style.json {
        let document = with_history(&message, body.as_ref());
        return out::json(&document.map_err(|error| Error::Output(error.into()))?);
    }
    match &body {
        Some(body) if !context.style.terminal => return out::bytes(&body.0),
        _ => {}
    }
    out::text(&queue::messages(std::slice::from_ref(&message), context.style, time::now()))?;
    out::text(&queue::history(&message.steps))?;
    if let Some(result) = &message.status.result {
        out::text(&queue::result(&result.to_string_lossy()))?;
    }
    body.map_or(Ok(()), |body| out::line(&escape::lines(&body.to_string_lossy())))
}

fn body(client: &mut Client, id: MessageId) -> Result<OsBytes, Error> {
    match client.ask(Request::Body(id))? {
        Response::Body(body) => Ok(body),
        other => Err(Error::unexpected(&other)),
    }
}
