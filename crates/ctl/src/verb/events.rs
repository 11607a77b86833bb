//! `events`: the durable journal, and the events that follow.

use std::ops::ControlFlow;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use protocol::event::EventKind;
use protocol::request::{Events, Subscribe};
use protocol::{Frame, Request, Seq, SessionId, Stamped};

use crate::calls::{self, expected};
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::follow::{Follower, follow};
use crate::show::{escape, event, out, time};

/// Events per request.
const PAGE: u32 = 1000;

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
    let printer = Printer { context, session, kinds: &args.kind, marks_snapshot: args.follow };
    if args.follow {
        follow(context, client, &mut Journal { printer, since: args.since })?;
        return Ok(());
    }
    let (mut since, mut asked) = (args.since.unwrap_or_default(), args.since);
    loop {
        let events = expected!(client.ask(Request::Events(Events { since, limit: PAGE }))?, Events)?;
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(()) };
        if asked.take().is_some_and(|asked| first.seq.0 > asked.0.saturating_add(1)) {
            out::note(&format!("poolctl: events before {} are no longer in the journal", first.seq));
        }
        since = last.seq;
        events.iter().try_for_each(|event| printer.print(event, false))?;
    }
}

/// The id of a session. An id is not looked up, so that the events of a removed session can be printed too.
fn session_id(context: &Context, client: &mut Client, session: &str) -> Result<SessionId, Error> {
    let session = context.session(session)?;
    match session.0.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(calls::session(client, session)?.session.id),
    }
}

struct Printer<'a> {
    context: &'a Context,
    session: Option<SessionId>,
    kinds: &'a [EventKind],
    /// True if each document has a field that tells whether it belongs to the initial state.
    marks_snapshot: bool,
}

impl Printer<'_> {
    fn print(&self, stamped: &Stamped, snapshot: bool) -> Result<(), Error> {
        if !self.wants(stamped) {
            return Ok(());
        }
        let style = self.context.style;
        if !style.json {
            // The initial state is no event.
            return if snapshot { Ok(()) } else { out::line(&line(stamped, style)) };
        }
        out::json(&event::document(stamped, self.marks_snapshot.then_some(snapshot)))
    }

    fn synced(&self, seq: Seq) -> Result<(), Error> {
        if self.context.style.json { out::json(&event::synced(seq)) } else { Ok(()) }
    }

    /// Events that are never in the journal concern the pool itself only.
    fn wants(&self, stamped: &Stamped) -> bool {
        let event = &stamped.event;
        event.is_journaled()
            && (self.session.is_none() || event.session() == self.session)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind()))
    }
}

fn line(stamped: &Stamped, style: out::Style) -> String {
    let session = stamped.event.session().map_or_else(|| "-".to_owned(), |id| id.to_string());
    let (at, kind) = (time::when(stamped.at, style, time::now()), stamped.event.kind());
    let fields = escape::line(&event::line(&stamped.event));
    let line = format!("{:>6}  {at}  {kind:<22}  {session:<8}  {fields}", stamped.seq);
    line.trim_end().to_owned()
}

struct Journal<'a> {
    printer: Printer<'a>,
    /// The last printed event, after which a new connection continues.
    since: Option<Seq>,
}

impl Follower for Journal<'_> {
    fn request(&self) -> Request {
        Request::Subscribe(Subscribe { since: self.since })
    }

    fn persists(&self) -> bool {
        true
    }

    fn take(&mut self, frame: Frame) -> Result<ControlFlow<()>, Error> {
        match frame {
            Frame::Event { stamped, snapshot } => {
                self.printer.print(&stamped, snapshot)?;
                if !snapshot {
                    self.since = Some(stamped.seq);
                }
            }
            Frame::Synced { seq } => {
                self.since = Some(seq);
                self.printer.synced(seq)?;
            }
            // Too slow: poold drops the connection, and a new one continues after the last event.
            Frame::Lagged { .. } => return Ok(ControlFlow::Break(())),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
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
