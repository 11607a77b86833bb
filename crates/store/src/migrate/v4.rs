//! From schema 4: answers that show sessions, with nothing about their agents. What is remembered of agents has
//! tables of its own, which are empty.

mod old;

use protocol::Refusal;
use protocol::frame::decode_record;
use protocol::reply::Response;

use crate::commit::Tables;
use crate::error::StoreError;

/// An operation that was answered with sessions has the same answer.
pub(super) fn answers(tables: &mut Tables<'_>) -> Result<(), StoreError> {
    super::answers(tables, answer)
}

/// An answer as it is now, if it shows sessions; the others that are remembered did not change.
fn answer(reply: &[u8]) -> Option<Response> {
    match decode_record::<Result<old::Response, Refusal>>(reply).ok()?.ok()? {
        old::Response::Session(view) => Some(Response::Session(Box::new((*view).into()))),
        old::Response::Sessions(views) => {
            Some(Response::Sessions(views.into_iter().map(Into::into).collect()))
        }
        _ => None,
    }
}
