//! `generators`: who works on what.

use protocol::reply::GeneratorView;
use protocol::{Request, Response};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::time::rfc3339;
use crate::show::{out, queue, time};
use crate::verb::expect_session;

/// Show who works on what, since when, and when they last spoke
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those of this session
    pub session: Option<String>,
}

/// Prints them.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let mut client = context.client();
    let session = args.session.as_deref().map(|session| context.session(session)).transpose()?;
    let only = match session {
        Some(session) => Some(expect_session(client.ask(Request::Show(session))?)?.session.id),
        None => None,
    };
    let mut views = match client.ask(Request::Generators)? {
        Response::Generators(views) => views,
        other => return Err(Error::unexpected(&other)),
    };
    views.retain(|view| only.is_none_or(|only| view.session == only));
    if context.style.json {
        views.iter().try_for_each(|view| out::json(&document(view)))?;
    } else if context.style.quiet {
        let ids = views.iter().filter_map(|view| view.id);
        ids.map(|id| id.to_string()).try_for_each(|id| out::line(&id))?;
    } else {
        out::text(&queue::generators(&views, context.style, time::now()))?;
    }
    Ok(exit::OK)
}

fn document(view: &GeneratorView) -> Value {
    let holds = view.holds.iter().map(|held| {
        json!({
            "id": held.held.id,
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
        "role": view.role,
        "kinds": view.kinds,
        "pid": view.process.map(|process| process.pid),
        "start_time": view.process.map(|process| process.start),
        "since": rfc3339(view.since),
        "last_activity_at": rfc3339(view.last_activity_at),
        "holds": holds.collect::<Vec<_>>(),
    })
}
