//! `events`: the durable journal, and the events that follow.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::event::EventKind;
use protocol::{Seq, SessionId};

use crate::journal::{self, Printer};
use crate::{Client, Context, Error, calls};

/// Print the journal; with --follow, the events from now on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the events after this one
    #[arg(long, value_name = "SEQ")]
    since: Option<Seq>,
    /// Continue with new events; without --since from now on, and with --json after the state, marked
    /// `snapshot`
    #[arg(short, long)]
    follow: bool,
    /// Only those of this session
    #[arg(long)]
    session: Option<String>,
    /// Only those of this kind (session_live, message_done, activity_changed, …); may be repeated
    #[arg(long, value_parser = kind(), hide_possible_values = true)]
    kind: Vec<EventKind>,
}

fn kind() -> impl TypedValueParser<Value = EventKind> {
    let names = EventKind::PUBLISHED.iter().map(|kind| kind.as_str());
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let mut client = if args.follow { context.unlimited_client() } else { context.client() };
    let session = match &args.session {
        Some(session) => Some(session_id(context, &mut client, session)?),
        None => None,
    };
    let (kinds, since) = (args.kind.as_slice(), args.since);
    let printer = Printer { style: context.style, session, kinds, from: None, marks_snapshot: args.follow };
    if args.follow {
        return journal::follow_from(context, client, printer, since);
    }
    journal::print(&mut client, &printer, since).map(drop)
}

/// The id of a session. An id is not looked up, so that the events of a removed session can be printed too.
fn session_id(context: &Context, client: &mut Client, session: &str) -> Result<SessionId, Error> {
    let session = context.session(session)?;
    match session.0.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(calls::session(client, session)?.session.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_is_refused_and_the_nearest_is_named() {
        let parse = |kind| {
            let command = <Args as clap::Args>::augment_args(clap::Command::new("events"));
            command.try_get_matches_from(["events", "--kind", kind]).map_err(|error| error.to_string())
        };
        let error = parse("sesion_live").unwrap_err();
        assert!(error.contains("a similar value exists: 'session_live'"), "{error}");
        assert!(parse("session_observed").is_err(), "it is never in the journal");
        assert!(EventKind::PUBLISHED.iter().all(|kind| parse(kind.as_str()).is_ok()));
    }
}
