//! `queue`: look into a session's queue and mend it.

use clap::ValueEnum;
use protocol::request::{Events, Resolution, ResolveMessage};
use protocol::{Event, Message, MessageId, MessageState, Request, Response, Seq, SessionId};

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::{MessageHistory, MessageJson, Step, word};
use crate::show::table::Table;
use crate::show::{human, out, time};
use crate::verb::{expect_message, expect_session, for_each, only_one};

/// How many events are asked for at a time.
const PAGE: u32 = 1000;

/// Look into a queue and mend it
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List what waits or is in flight, and the newest that are over
    Ls {
        /// Of which session
        session: String,
    },
    /// Show messages and what happened to them
    Show {
        /// Of which session
        session: String,
        /// Which messages
        #[arg(required = true, value_name = "ID")]
        ids: Vec<MessageId>,
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

/// Carries it out.
pub(crate) fn run(context: &Context, command: Command) -> Result<u8, Error> {
    let mut client = context.client();
    match command {
        Command::Ls { session } => list(context, &mut client, &session)?,
        Command::Show { session, ids } => {
            let of = session_id(context, &mut client, &session)?;
            for_each(context, &ids, |id| show(context, &mut client, of, *id))?;
        }
        Command::Resolve { session, ids, resolution, repeat } => {
            only_one(&repeat, ids.len())?;
            let of = session_id(context, &mut client, &session)?;
            for_each(context, &ids, |id| resolve(context, &mut client, (of, *id), (resolution, &repeat)))?;
        }
    }
    Ok(exit::OK)
}

fn list(context: &Context, client: &mut Client, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let messages = match client.ask(Request::ListMessages(session))? {
        Response::Messages(messages) => messages,
        other => return Err(Error::unexpected(&other)),
    };
    if context.style.json {
        messages.iter().try_for_each(|message| out::json(&MessageJson::new(message)))
    } else if context.style.quiet {
        messages.iter().try_for_each(|message| out::line(&message.id.to_string()))
    } else {
        out::text(&human::messages(&messages, context.style, time::now()))
    }
}

fn session_id(context: &Context, client: &mut Client, session: &str) -> Result<SessionId, Error> {
    let session = context.session(session)?;
    Ok(expect_session(client.ask(Request::Show(session))?)?.session.id)
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

fn show(context: &Context, client: &mut Client, of: SessionId, id: MessageId) -> Result<(), Error> {
    let message = find(client, of, id)?;
    let history = history(client, &message)?;
    if context.style.json {
        let document = MessageHistory { message: &message, history: &history }.document();
        return out::json(&document.map_err(|error| Error::Output(error.into()))?);
    }
    let now = time::now();
    out::text(&human::messages(std::slice::from_ref(&message), context.style, now))?;
    let mut table = Table::new(&[]);
    for step in history {
        table.row([step.at, word(&step.state), step.reason.unwrap_or_default()]);
    }
    out::text(&table.render())
}

/// What the journal still has of a message's life, oldest first.
fn history(client: &mut Client, message: &Message) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    let mut since = Seq(message.id.0.saturating_sub(1));
    loop {
        let events = match client.ask(Request::Events(Events { since, limit: PAGE }))? {
            Response::Events(events) => events,
            other => return Err(Error::unexpected(&other)),
        };
        let Some(last) = events.last() else { return Ok(steps) };
        since = last.seq;
        let later = last.at > message.changed_at;
        steps.extend(
            events.iter().filter_map(|event| step(time::rfc3339(event.at), &event.event, message.id)),
        );
        if later {
            return Ok(steps);
        }
    }
}

fn step(at: String, event: &Event, of: MessageId) -> Option<Step> {
    match event {
        Event::MessageQueued(message) if message.id == of => {
            Some(Step { at, state: MessageState::Queued, attempts: 0, reason: None })
        }
        Event::MessageChanged { id, state, attempts, reason, .. } if *id == of => {
            Some(Step { at, state: *state, attempts: *attempts, reason: reason.clone() })
        }
        _ => None,
    }
}

fn resolve(
    context: &Context,
    client: &mut Client,
    (of, id): (SessionId, MessageId),
    (resolution, repeat): (As, &Repeat),
) -> Result<(), Error> {
    find(client, of, id)?;
    let resolution = match resolution {
        As::Done => Resolution::Done,
        As::Retry => Resolution::Retry,
        As::Dead => Resolution::Dead,
    };
    let request = Request::ResolveMessage(ResolveMessage { id, resolution });
    let message = expect_message(client.change(repeat, request)?)?;
    if context.style.json {
        out::json(&MessageJson::new(&message))
    } else {
        context.say(&format!("{id}  {}", word(&message.state)))
    }
}
