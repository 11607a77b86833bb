//! `queue`: look into a session's queue and mend it.

mod look;
mod mend;

use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::request::Messages;
use protocol::{Message, MessageId, MessageState, Request, Response, SessionId};

use crate::cli::{Repeat, kind};
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::time;
use crate::verb::{expect_message, expect_session};

/// Look into a queue and mend it
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List what waits or is in flight, and the newest that are over, by number
    Ls {
        /// Of which session
        session: String,
        /// Only those in this state; several are any of them
        #[arg(long, value_parser = words(&STATES))]
        state: Vec<MessageState>,
        /// Only those of this kind; several are any of them
        #[arg(long, value_parser = kind)]
        kind: Vec<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u32,
    },
    /// Show messages and what happened to them
    Show {
        /// Of which session
        session: String,
        /// Which messages
        #[arg(required = true, value_name = "ID")]
        ids: Vec<MessageId>,
        /// The body too; where standard output is no terminal, its bytes and nothing else
        #[arg(long)]
        body: bool,
    },
    /// Cancel messages that wait, are in doubt or are being worked
    Cancel {
        /// Of which session
        session: String,
        #[command(flatten)]
        which: Which,
        /// All that wait, instead of these
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        repeat: Repeat,
    },
    /// Queue messages again that are dead, cancelled, expired or in doubt; one that waits is tried at once
    Retry {
        /// Of which session
        session: String,
        #[command(flatten)]
        which: Which,
        /// All that are dead, instead of these
        #[arg(long)]
        dead: bool,
        #[command(flatten)]
        repeat: Repeat,
    },
    /// End messages of which it is not known whether they were typed
    Resolve {
        /// Of which session
        session: String,
        /// Which messages
        #[arg(required = true, value_name = "ID")]
        ids: Vec<MessageId>,
        /// What they are to be
        #[arg(long = "as", value_enum, value_name = "WHAT")]
        resolution: As,
        #[command(flatten)]
        repeat: Repeat,
    },
    /// List dead letters: how often they were tried, and why they were given up
    Dead {
        /// Of which session
        session: String,
        /// Only those of this kind; several are any of them
        #[arg(long, value_parser = kind)]
        kind: Vec<String>,
    },
    /// Forget messages that are over, and print how many; the dead where nothing else is said
    Purge {
        /// Of which session
        session: String,
        /// These, whatever they ended as
        #[arg(value_name = "ID")]
        ids: Vec<MessageId>,
        /// Only those that ended like this; several are any of them
        #[arg(long, value_parser = words(&FINAL))]
        state: Vec<MessageState>,
        /// Only those that have been over for this long
        #[arg(long, value_name = "DUR", value_parser = time::parse)]
        older_than: Option<Duration>,
        #[command(flatten)]
        repeat: Repeat,
    },
}

/// Which messages, where a flag can stand for many.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Which {
    /// Which messages
    #[arg(value_name = "ID")]
    ids: Vec<MessageId>,
    /// Of many, only those of this kind; several are any of them
    #[arg(long, value_parser = kind, conflicts_with = "ids")]
    kind: Vec<String>,
}

/// What an in-doubt message is to be.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum As {
    /// It was typed.
    Done,
    /// It was not; type it.
    Retry,
    /// Give it up.
    Dead,
}

const FINAL: [&str; 4] = ["dead", "done", "cancelled", "expired"];
const STATES: [&str; 11] = [
    "queued",
    "claimed",
    "typing",
    "typed",
    "accepted",
    "in_doubt",
    "revoking",
    "done",
    "dead",
    "cancelled",
    "expired",
];

fn words(words: &'static [&'static str]) -> impl TypedValueParser<Value = MessageState> {
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(word.into()))
}

/// Carries it out.
pub(crate) fn run(context: &Context, command: Command) -> Result<u8, Error> {
    let mut client = context.client();
    match command {
        Command::Ls { session, state, kind, limit } => {
            look::list(context, &session, (kind, state, limit))?;
        }
        Command::Dead { session, kind } => look::dead(context, &session, kind)?,
        Command::Show { session, ids, body } => look::show(context, &mut client, &session, (&ids, body))?,
        Command::Cancel { session, which, all, repeat } => {
            let many = (all, MessageState::Queued, "--all");
            mend::each(context, &session, (which, many, &repeat), Request::Cancel)?;
        }
        Command::Retry { session, which, dead, repeat } => {
            let many = (dead, MessageState::Dead, "--dead");
            mend::each(context, &session, (which, many, &repeat), Request::Retry)?;
        }
        Command::Resolve { session, ids, resolution, repeat } => {
            mend::resolve(context, &session, ids, (resolution, &repeat))?;
        }
        Command::Purge { session, ids, state, older_than, repeat } => {
            mend::purge(context, &session, (ids, state, older_than), &repeat)?;
        }
    }
    Ok(exit::OK)
}

fn session_id(context: &Context, client: &mut Client, session: &str) -> Result<SessionId, Error> {
    let session = context.session(session)?;
    Ok(expect_session(client.ask(Request::Show(session))?)?.session.id)
}

/// Hands over the messages that this asks for, as they come: there may be very many.
fn messages(
    client: &mut Client,
    which: Messages,
    mut each: impl FnMut(Message) -> Result<(), Error>,
) -> Result<(), Error> {
    client.ask_each(&Request::Messages(which), |part| match part {
        Response::Messages(messages) => messages.into_iter().try_for_each(&mut each),
        other => Err(Error::unexpected(&other)),
    })
}

/// The message, if it is one of this session.
fn find(client: &mut Client, of: SessionId, id: MessageId) -> Result<Message, Error> {
    let message = expect_message(client.ask(Request::ShowMessage(id))?)?;
    if message.session == of {
        Ok(message)
    } else {
        Err(Error::not_found(format!("message {id} is not one of {of}: it is one of {}", message.session)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_can_be_asked_for() {
        let state = |word: &str| serde_json::from_value::<MessageState>(word.into()).unwrap();
        assert!(FINAL.iter().all(|word| state(word).is_final()));
        assert_eq!(STATES.iter().filter(|word| state(word).is_final()).count(), FINAL.len());
    }
}
