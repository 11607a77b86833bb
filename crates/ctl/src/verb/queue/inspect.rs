//! The commands that show a queue.

use protocol::request::Messages;
use protocol::{Message, MessageId, MessageState, OsBytes, Request, SessionId, Timestamp};

use super::messages::{self, find, session_id};
use crate::calls::{self, expected};
use crate::show::json::{MessageJson, with_history};
use crate::show::out::{self, Style};
use crate::show::{escape, queue, time};
use crate::targets::for_each;
use crate::{Client, Context, Error};

/// `queue ls`.
pub(super) fn list(
    context: &Context,
    session: &str,
    (kinds, states, limit): (Vec<String>, Vec<MessageState>, u32),
) -> Result<(), Error> {
    let session = context.session(session)?;
    let found = all(context, Messages { session, kinds, states, limit })?;
    print(context, &found, queue::messages)?;
    if u32::try_from(found.len()) == Ok(limit) {
        context.tell(&format!("poolctl: {limit} are listed, and there may be more: see --limit"));
    }
    note_held_back(context, &found)
}

/// Says which kinds of the messages that wait are held back, and why.
fn note_held_back(context: &Context, found: &[Message]) -> Result<(), Error> {
    let waits = |message: &&Message| message.status.state == MessageState::Queued;
    let Some(session) = found.iter().find(waits).map(|message| message.session) else { return Ok(()) };
    if context.style.json || context.style.quiet {
        return Ok(());
    }
    // The list is printed already, so a missing status is no error.
    let Ok(status) = calls::status(&mut context.client()) else { return Ok(()) };
    for held in status.breakers.iter().filter(|held| held.session == session) {
        let why = queue::breaker(&held.kind, &held.breaker, time::now());
        out::note(&format!("poolctl: held back: {}", escape::line(&why)));
    }
    Ok(())
}

/// `queue dead`: each message as it arrives, but for people a table of all.
pub(super) fn dead(context: &Context, session: &str, kinds: Vec<String>) -> Result<(), Error> {
    let (session, states) = (context.session(session)?, vec![MessageState::Dead]);
    let list = Messages { session, kinds, states, limit: u32::MAX };
    if context.style.json || context.style.quiet {
        let each = |message| print(context, &[message], queue::dead);
        messages::for_each(&mut context.unlimited_client(), list, each)
    } else {
        print(context, &all(context, list)?, queue::dead)
    }
}

fn all(context: &Context, list: Messages) -> Result<Vec<Message>, Error> {
    let mut found = Vec::new();
    messages::for_each(&mut context.unlimited_client(), list, |message| {
        found.push(message);
        Ok(())
    })?;
    Ok(found)
}

/// Formats messages as a table.
type Table = fn(&[Message], Style, Timestamp) -> String;

fn print(context: &Context, found: &[Message], table: Table) -> Result<(), Error> {
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
    session: &str,
    ids: &[MessageId],
    with_body: bool,
) -> Result<(), Error> {
    let mut client = context.client();
    let of = session_id(context, &mut client, session)?;
    for_each(context, ids, |id| show_one(context, &mut client, (of, *id), with_body))
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
        return out::json(&with_history(&message, body.as_ref()));
    }
    match &body {
        Some(body) if !context.style.terminal => return out::bytes(&body.0),
        _ => {}
    }
    out::text(&queue::messages(std::slice::from_ref(&message), context.style, time::now()))?;
    out::text(&queue::history(&message.steps))?;
    if let Some(holder) = &message.status.holder {
        let generators = expected!(client.ask(Request::Generators)?, Generators)?;
        let its = generators.iter().find(|view| view.holds.iter().any(|held| held.held.id == id));
        out::text(&queue::holder(holder, its))?;
    }
    if let Some(result) = &message.status.result {
        out::text(&queue::result(&result.to_string_lossy()))?;
    }
    body.map_or(Ok(()), |body| out::line(&escape::lines(&body.to_string_lossy())))
}

fn body(client: &mut Client, id: MessageId) -> Result<OsBytes, Error> {
    expected!(client.ask(Request::Body(id))?, Body)
}
