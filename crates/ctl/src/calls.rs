//! Calls to `poold` that several verbs make, and the responses that they expect.

use protocol::reply::Status;
use protocol::request::List;
use protocol::{Message, OsBytes, Request, Response, SessionRef, SessionView};

use crate::show::{escape, out};
use crate::{Client, Error};

/// The content of a response of the expected variant, or the error for any other response.
macro_rules! expected {
    ($response:expr, $variant:ident) => {
        match $response {
            protocol::Response::$variant(content) => Ok(content),
            other => Err($crate::error::Error::unexpected(&other)),
        }
    };
}
pub(crate) use expected;

/// Asks for a session.
pub(crate) fn session(client: &mut Client, session: SessionRef) -> Result<SessionView, Error> {
    expect_session(client.ask(Request::Show(session))?)
}

/// Asks for a copy of the database, at most once: a repetition would find the file of the first request.
pub(crate) fn backup(client: &mut Client, path: OsBytes) -> Result<Response, Error> {
    let hint = format!("if {} exists, it is complete", escape::line(&path.to_string_lossy()));
    client.ask_at_most_once(&Request::Backup { path }, &hint)
}

/// Asks for the sessions of a list.
pub(crate) fn sessions(client: &mut Client, list: List) -> Result<Vec<SessionView>, Error> {
    expected!(client.ask(Request::List(list))?, Sessions)
}

/// Asks for the sessions of a list, with the ends of their output and the colours of their repositories.
pub(crate) fn snapshot(client: &mut Client, list: List) -> Result<Vec<SessionView>, Error> {
    expected!(client.ask(Request::Snapshot(list))?, Sessions)
}

/// Asks for the pool's status.
pub(crate) fn status(client: &mut Client) -> Result<Status, Error> {
    expect_status(client.ask(Request::Status)?)
}

/// The session in a response.
pub(crate) fn expect_session(response: Response) -> Result<SessionView, Error> {
    expected!(response, Session).map(|view| *view)
}

/// The status in a response.
pub(crate) fn expect_status(response: Response) -> Result<Status, Error> {
    expected!(response, Status).map(|status| *status)
}

/// The message in a response.
pub(crate) fn expect_message(response: Response) -> Result<Message, Error> {
    expected!(response, Message).map(|message| *message)
}

/// Accepts the response to a removal. Notes on standard error which files of the session were not removed although
/// they should have been.
pub(crate) fn expect_removed(response: &Response) -> Result<(), Error> {
    match response {
        Response::Text(left) => {
            out::note(&format!("poolctl: {}", escape::lines(left)));
            Ok(())
        }
        other => expect_done(other),
    }
}

/// Accepts the response without content.
pub(crate) fn expect_done(response: &Response) -> Result<(), Error> {
    match response {
        Response::Done => Ok(()),
        other => Err(Error::unexpected(other)),
    }
}
