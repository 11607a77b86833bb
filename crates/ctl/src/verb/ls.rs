//! `ls`: lists sessions.

use std::collections::BTreeMap;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::request::List;
use protocol::{Lifecycle, Request, Response, SessionId};

use crate::args::{labels, pair};
use crate::show::json::SessionJson;
use crate::show::{lifecycle, out, session, time};
use crate::{Client, Context, Error, calls};

/// List sessions
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Stopped, lost and failed ones too
    #[arg(short, long)]
    all: bool,
    /// Only those in this state; of several, in any of them
    #[arg(long, value_parser = state())]
    state: Vec<Lifecycle>,
    /// Only those with this label; of several, with all of them
    #[arg(long, value_name = "K=V", value_parser = pair)]
    label: Vec<(String, String)>,
    /// Only those with this kind of agent
    #[arg(long, value_name = "KIND")]
    agent: Option<String>,
    /// With the colours of their repositories and the last 500 characters of their output, all in one answer
    #[arg(long)]
    full: bool,
}

fn state() -> impl TypedValueParser<Value = Lifecycle> {
    let names = Lifecycle::ALL.map(Lifecycle::as_str);
    PossibleValuesParser::new(names).try_map(|word| Lifecycle::of_name(&word).ok_or("there is no such state"))
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let labels = labels(&args.label)?;
    // A state that is named is shown even if it is hidden by default.
    let all = args.all || !args.state.is_empty();
    let state = args.state.first().copied().filter(|_| args.state.len() == 1);
    let list = List { all, state, labels, agent: args.agent, workers: false };
    let mut client = context.client();
    let full = args.full;
    let mut views =
        if full { calls::snapshot(&mut client, list) } else { calls::sessions(&mut client, list) }?;
    views.retain(|view| args.state.is_empty() || args.state.contains(&view.session.lifecycle));
    let now = time::now();
    if context.style.json {
        views.iter().try_for_each(|view| out::json(&SessionJson::new(view, now)))
    } else if context.style.quiet {
        views.iter().try_for_each(|view| out::line(&view.session.id.to_string()))
    } else if full {
        let shown = |view| session::session(view, (None, view.replay.as_deref()), context.style, now);
        out::text(&views.iter().map(shown).collect::<Vec<_>>().join("\n"))
    } else {
        let needs = if views.is_empty() { BTreeMap::new() } else { needs(&mut client) };
        out::text(&session::sessions(&views, &needs, context.style, now))?;
        if let Some(since) = views.iter().find_map(|view| lifecycle::unseen_since(view, context.style, now)) {
            out::note(&format!("not observed since {since} (`poolctl status` says what to do)"));
        }
        Ok(())
    }
}

/// The inbox items of each session, by their kinds; empty if the daemon does not answer.
fn needs(client: &mut Client) -> BTreeMap<SessionId, Vec<String>> {
    let mut needs: BTreeMap<SessionId, Vec<String>> = BTreeMap::new();
    if let Ok(Response::Inbox(items)) = client.ask(Request::Inbox) {
        items.into_iter().for_each(|item| needs.entry(item.session).or_default().push(item.kind));
    }
    needs
}
