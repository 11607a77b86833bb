//! `events`: the durable journal, and what follows.

use std::ops::ControlFlow;

use protocol::request::{Events, Subscribe};
use protocol::{Frame, Request, Response, Seq, SessionId, Stamped};
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::follow::{Follower, follow};
use crate::show::{escape, event, human, out, time};
use crate::verb::expect_session;

/// How many events are asked for at a time.
const PAGE: u32 = 1000;

/// Print the journal; with --follow, what happens from now on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Those after this one
    #[arg(long, value_name = "SEQ")]
    pub since: Option<Seq>,
    /// Go on with what happens; without --since from now on, and with --json the state comes first, marked `snapshot`
    #[arg(short, long)]
    pub follow: bool,
    /// Only those of this session
    #[arg(long)]
    pub session: Option<String>,
    /// Only those of this kind (session_live, message_done, activity_changed, …); several are any of them
    #[arg(long)]
    pub kind: Vec<String>,
}

/// Prints them.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let mut client = if args.follow { context.patient_client() } else { context.client() };
    let session = match &args.session {
        Some(session) => Some(session_id(context, &mut client, session)?),
        None => None,
    };
    let printer = Printer { context, session, kinds: &args.kind, marked: args.follow };
    if args.follow {
        follow(context, client, &mut Journal { printer, since: args.since })?;
        return Ok(exit::OK);
    }
    let (mut since, mut asked) = (args.since.unwrap_or_default(), args.since);
    loop {
        let events = match client.ask(Request::Events(Events { since, limit: PAGE }))? {
            Response::Events(events) => events,
            other => return Err(Error::unexpected(&other)),
        };
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(exit::OK) };
        if asked.take().is_some_and(|asked| first.seq.0 > asked.0.saturating_add(1)) {
            out::note(&format!("poolctl: events before {} are gone", first.seq));
        }
        since = last.seq;
        events.iter().try_for_each(|event| printer.print(event, false))?;
    }
}

/// An id stands for itself, so that a session that is removed can be asked about too.
fn session_id(context: &Context, client: &mut Client, session: &str) -> Result<SessionId, Error> {
    let session = context.session(session)?;
    match session.0.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(expect_session(client.ask(Request::Show(session))?)?.session.id),
    }
}

struct Printer<'a> {
    context: &'a Context,
    session: Option<SessionId>,
    kinds: &'a [String],
    /// Whether an event says if it belongs to the state at the start.
    marked: bool,
}

impl Printer<'_> {
    fn print(&self, stamped: &Stamped, snapshot: bool) -> Result<(), Error> {
        if !self.wants(stamped) {
            return Ok(());
        }
        let style = self.context.style;
        if !style.json {
            // A person asks for what happens.
            return if snapshot { Ok(()) } else { out::line(&line(stamped, style)) };
        }
        let mut document = event::document(stamped);
        self.mark(&mut document, snapshot);
        out::json(&document)
    }

    fn synced(&self, seq: Seq) -> Result<(), Error> {
        if !self.context.style.json {
            return Ok(());
        }
        let mut document = event::synced(seq);
        self.mark(&mut document, true);
        out::json(&document)
    }

    fn mark(&self, document: &mut Map<String, Value>, snapshot: bool) {
        if self.marked {
            document.insert("snapshot".into(), json!(snapshot));
        }
    }

    /// What is never in the journal only concerns the pool itself.
    fn wants(&self, stamped: &Stamped) -> bool {
        let event = &stamped.event;
        event.is_journaled()
            && (self.session.is_none() || event.session() == self.session)
            && (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == event.kind()))
    }
}

fn line(stamped: &Stamped, style: out::Style) -> String {
    let session = stamped.event.session().map_or_else(|| "-".to_owned(), |id| id.to_string());
    let at =
        if style.terminal { human::when(stamped.at, style, time::now()) } else { time::rfc3339(stamped.at) };
    let kind = stamped.event.kind();
    let line = format!(
        "{:>6}  {at}  {kind:<22}  {session:<8}  {}",
        stamped.seq,
        escape::line(&event::details(stamped))
    );
    line.trim_end().to_owned()
}

struct Journal<'a> {
    printer: Printer<'a>,
    /// The last event that was shown; what a new connection goes on after.
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
            // This side was too slow, and is cut: it goes on after what it has.
            Frame::Lagged { .. } => return Ok(ControlFlow::Break(())),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}
