//! `stats`: what running sessions use.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use protocol::life::{Limits, Usage};
use protocol::reply::UsageView;
use protocol::request::List;
use protocol::{ErrorCode, Request, Response, SessionId, SessionRef};
use serde::Serialize;

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::LimitsJson;
use crate::show::table::Table;
use crate::show::{out, size};
use crate::verb::{for_each, ls};

/// Time between the two looks that a share of a processor takes.
const BETWEEN: Duration = Duration::from_millis(500);

/// Show what running sessions use
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions [default: all that run]
    #[arg(value_name = "SESSION")]
    pub sessions: Vec<String>,
}

/// One session's, as JSON.
#[derive(Debug, Serialize)]
struct Document<'a> {
    id: SessionId,
    name: &'a str,
    #[serde(flatten)]
    usage: &'a Usage,
    limits: Option<LimitsJson<'a>>,
}

/// Looks twice and prints what the second look found.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let mut client = context.client();
    let sessions = args.sessions.iter().map(|session| context.session(session).map(Some));
    let mut sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    if sessions.is_empty() {
        sessions.push(None);
    }
    for session in &sessions {
        match look(&mut client, session.clone()) {
            Err(error) if of_the_pool(&error) => return Err(error),
            // What is wrong with one is told at the second look.
            _ => {}
        }
    }
    thread::sleep(BETWEEN);
    let mut found = Vec::new();
    let looked = for_each(context, &sessions, |session| {
        found.extend(look(&mut client, session.clone())?);
        Ok(())
    });
    let limits = limits(&mut client)?;
    if context.style.json {
        found.iter().try_for_each(|view| out::json(&document(view, &limits)))?;
    } else {
        out::text(&table(&found, &limits, context.style.quiet))?;
    }
    looked.map(|()| exit::OK)
}

fn look(client: &mut Client, session: Option<SessionRef>) -> Result<Vec<UsageView>, Error> {
    match client.ask(Request::Usage(session))? {
        Response::Usage(views) => Ok(views),
        other => Err(Error::unexpected(&other)),
    }
}

/// Whether it would be the same for every session.
fn of_the_pool(error: &Error) -> bool {
    matches!(error.code(), ErrorCode::Unavailable | ErrorCode::Timeout | ErrorCode::Protocol)
}

/// What bounds each.
fn limits(client: &mut Client) -> Result<BTreeMap<SessionId, Limits>, Error> {
    let views = ls::sessions(client, List { all: true, ..List::default() })?;
    Ok(views.into_iter().map(|view| (view.session.id, view.session.spec.limits)).collect())
}

fn document<'a>(view: &'a UsageView, limits: &'a BTreeMap<SessionId, Limits>) -> Document<'a> {
    let limits = limits.get(&view.session).map(LimitsJson::new);
    Document { id: view.session, name: view.name.as_str(), usage: &view.usage, limits }
}

fn table(views: &[UsageView], limits: &BTreeMap<SessionId, Limits>, quiet: bool) -> String {
    let header: &[&str] =
        if quiet { &[] } else { &["NAME", "CPU%", "MEM", "PROCS", "DISK", "LOG", "LIMITS"] };
    let mut table = Table::new(header);
    for UsageView { session, name, usage } in views {
        let size = |bytes: Option<u64>| bytes.map(size::short).unwrap_or_default();
        table.row([
            name.to_string(),
            usage.cpu_percent.map(|percent| format!("{percent}%")).unwrap_or_default(),
            size::short(usage.memory),
            usage.processes.to_string(),
            size(usage.disk),
            size(usage.log),
            limits.get(session).map(Limits::to_string).unwrap_or_default(),
        ]);
    }
    table.render()
}
