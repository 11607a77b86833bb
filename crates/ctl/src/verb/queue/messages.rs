//! Requests for the messages of a session.

use protocol::request::Messages;
use protocol::{Message, MessageId, Request, Response, SessionId};

use crate::calls::{self};
use crate::{Client, Context, Error, expect_message};

/// The id of a session.
pub(super) fn session_id(context: &Context, client: &mut Client, session: &str) -> Result<SessionId, Error> {
    Ok(calls::session(client, context.session(session)?)?.session.id)
}

/// Calls `each` with the messages of a list, as they arrive: there may be very many.
pub(super) fn for_each(
    client: &mut Client,
    list: Messages,
    mut each: impl FnMut(Message) -> Result<(), Error>,
) -> Result<(), Error> {
    client.ask_each(&Request::Messages(list), |part| match part {
        Response::Messages(messages) => messages.into_iter().try_for_each(&mut each),
        other => Err(Error::unexpected(&other)),
    })
}

/// The message with this id, which must belong to the session.
pub(super) fn find(client: &mut Client, session: SessionId, id: MessageId) -> Result<Message, Error> {
    let message = expect_message(client.ask(Request::ShowMessage(id))?)?;
    if message.session == session {
        Ok(message)
    } else {
        Err(Error::not_found(format!("message {id} belongs to {}, not to {session}", message.session)))
    }
}
