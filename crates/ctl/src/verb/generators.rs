//! `generators`: the workers, and the messages that they work on.

use protocol::Request;
use protocol::reply::GeneratorView;
use serde_json::{Value, json};

use crate::calls::{self, expected};
use crate::context::Context;
use crate::error::Error;
use crate::show::time::rfc3339;
use crate::show::{out, queue, time};

/// Show the workers: their messages, since when they run, and their last activity
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those of this session
    session: Option<String>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut client = context.client();
    let session = args.session.as_deref().map(|session| context.session(session)).transpose()?;
    let only = match session {
        Some(session) => Some(calls::session(&mut client, session)?.session.id),
        None => None,
    };
    let mut views = expected!(client.ask(Request::Generators)?, Generators)?;
    views.retain(|view| only.is_none_or(|only| view.session == Some(only)));
    if context.style.json {
        views.iter().try_for_each(|view| out::json(&document(view)))
    } else if context.style.quiet {
        let ids = views.iter().filter_map(|view| view.id);
        ids.map(|id| id.to_string()).try_for_each(|id| out::line(&id))
    } else {
        out::text(&queue::generators(&views, context.style, time::now()))
    }
}

fn document(view: &GeneratorView) -> Value {
    let holds = view.holds.iter().map(|held| {
        json!({
            "id": held.held.id,
            "session": held.session,
            "kind": held.kind,
            "token": held.held.token,
            "deadline_at": held.deadline_at.map(rfc3339),
        })
    });
    json!({
        "id": view.id,
        "generation": view.generation,
        "session": view.session,
        "name": view.name,
        "sessions": view.sessions,
        "role": view.role,
        "kinds": view.kinds,
        "pid": view.process.map(|process| process.pid),
        "start_time": view.process.map(|process| process.start),
        "since": rfc3339(view.since),
        "last_activity_at": rfc3339(view.last_activity_at),
        "holds": holds.collect::<Vec<_>>(),
    })
}
