//! Waiting for a message that was sent. Its session is identified by its id, because during the wait the session may
//! be renamed, and another one may take its name.

use std::time::Instant;

use protocol::request::{Until, Wait};
use protocol::{Message, MessageId, Request, SessionRef};

use crate::client::ANSWER_MARGIN;
use crate::show::time;
use crate::{Client, Context, Error, expect_message, outcome};

/// A wait for a message, with one time limit for all of its stages.
pub(crate) struct MessageWait {
    client: Client,
    session: SessionRef,
    id: MessageId,
    deadline: Option<Instant>,
}

impl MessageWait {
    /// A wait that begins now.
    pub(crate) fn new(context: &Context, message: &Message) -> Self {
        Self {
            client: context.unlimited_client(),
            session: message.session.into(),
            id: message.id,
            deadline: context.waiting_limit().map(|limit| Instant::now() + limit),
        }
    }

    /// Waits until the message is accepted, or cannot be any more. A message that is in doubt, or is never confirmed,
    /// ends the wait too: a person has to resolve it.
    pub(crate) fn accepted(&mut self) -> Result<Message, Error> {
        self.until(Until::Accepted(self.id))
    }

    /// Waits until the message is final, or left to a person.
    pub(crate) fn done(&mut self) -> Result<Message, Error> {
        let accepted = self.accepted()?;
        if accepted.status.state.is_final() || outcome::is_left(&accepted) {
            return Ok(accepted);
        }
        self.until(Until::Message(self.id))
    }

    fn until(&mut self, until: Until) -> Result<Message, Error> {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
        // poold itself reports the end of the time limit. This client has a later limit of its own, as poold may hang,
        // or be restarted and begin the wait again.
        self.client.set_limit(left.map(|left| left + ANSWER_MARGIN));
        let timeout_ms = left.map(time::millis);
        let wait = Wait { session: self.session.clone(), until: vec![until], timeout_ms };
        expect_message(self.client.ask(Request::Wait(wait))?)
    }
}
