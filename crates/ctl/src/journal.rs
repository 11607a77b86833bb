//! The durable journal of events, as `events` and `logs --events` print it.

use std::ops::ControlFlow;

use protocol::event::EventKind;
use protocol::request::{Events, Subscribe};
use protocol::{Frame, Request, Seq, SessionId, Stamped, Timestamp};

use crate::calls::expected;
use crate::follow::{Follower, follow};
use crate::show::{escape, event, out, time};
use crate::{Client, Context, Error};

/// Events per request.
const PAGE: u32 = 1000;

/// Prints the events after this one, and returns the last one in the journal.
pub(crate) fn print(client: &mut Client, printer: &Printer<'_>, since: Option<Seq>) -> Result<Seq, Error> {
    let (mut last, mut asked) = (since.unwrap_or_default(), since);
    loop {
        let page = Events { since: last, limit: PAGE };
        let events = expected!(client.ask(Request::Events(page))?, Events)?;
        let (Some(first), Some(newest)) = (events.first(), events.last()) else { return Ok(last) };
        if asked.take().is_some_and(|asked| first.seq.0 > asked.0.saturating_add(1)) {
            out::note(&format!("poolctl: events before {} are no longer in the journal", first.seq));
        }
        last = newest.seq;
        events.iter().try_for_each(|event| printer.print(event, false))?;
    }
}

/// Prints the events after this one, or the state without one, and continues with new ones.
pub(crate) fn follow_from(
    context: &Context,
    client: Client,
    printer: Printer<'_>,
    since: Option<Seq>,
) -> Result<(), Error> {
    follow(context, client, &mut Journal { printer, since, noted_gap: false }).map(drop)
}

/// Prints chosen events.
pub(crate) struct Printer<'a> {
    pub style: out::Style,
    /// Only events of this session.
    pub session: Option<SessionId>,
    /// Only events of these kinds; empty for all.
    pub kinds: &'a [EventKind],
    /// Only events from this time on.
    pub from: Option<Timestamp>,
    /// True if each document has a field that tells whether it belongs to the initial state.
    pub marks_snapshot: bool,
}

impl Printer<'_> {
    fn print(&self, stamped: &Stamped, snapshot: bool) -> Result<(), Error> {
        if !self.wants(stamped) {
            return Ok(());
        }
        // A state is no event, and among events it has to be marked.
        if snapshot && !self.marks_snapshot {
            return Ok(());
        }
        if !self.style.json {
            return if snapshot { Ok(()) } else { out::line(&line(stamped, self.style)) };
        }
        out::json(&event::document(stamped, self.marks_snapshot.then_some(snapshot)))
    }

    fn synced(&self, seq: Seq) -> Result<(), Error> {
        if self.style.json && self.marks_snapshot { out::json(&event::synced(seq)) } else { Ok(()) }
    }

    /// Events that are never in the journal concern the pool itself only.
    fn wants(&self, stamped: &Stamped) -> bool {
        let event = &stamped.event;
        event.is_journaled()
            && self.from.is_none_or(|from| stamped.at >= from)
            && (self.session.is_none() || event.session() == self.session)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind()))
    }
}

fn line(stamped: &Stamped, style: out::Style) -> String {
    let session = stamped.event.session().map_or_else(|| "-".to_owned(), |id| id.to_string());
    let (at, kind) = (time::when(stamped.at, style, time::now()), stamped.event.kind());
    let fields = escape::line(&event::line(&stamped.event));
    let line = format!("{:>6}  {at:<8}  {kind:<22}  {session:<8}  {fields}", stamped.seq);
    line.trim_end().to_owned()
}

struct Journal<'a> {
    printer: Printer<'a>,
    /// The last printed event, after which a new connection continues.
    since: Option<Seq>,
    /// True once it was said that events are missing before the state that follows.
    noted_gap: bool,
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
                if snapshot
                    && !self.noted_gap
                    && let Some(since) = self.since.filter(|since| *since < stamped.seq)
                {
                    self.noted_gap = true;
                    out::note(&format!(
                        "poolctl: events after {since} are not kept any more; the present state follows"
                    ));
                }
                self.printer.print(&stamped, snapshot)?;
                if !snapshot {
                    self.since = Some(stamped.seq);
                }
            }
            Frame::Synced { seq } => {
                (self.since, self.noted_gap) = (Some(seq), false);
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
    use protocol::Event;

    use super::*;

    #[test]
    fn the_columns_stand_below_each_other_whatever_the_age() {
        let style = out::Style { terminal: true, ..out::Style::default() };
        let at_kind = |seconds: u64| {
            let (seq, at) = (Seq(7), Timestamp(time::now().0 - seconds * 1000));
            let event = Event::SessionRenamed { session: SessionId(1), name: "web".parse().unwrap() };
            line(&Stamped { seq, at, event }, style).find("session_renamed")
        };
        assert_eq!([5, 3000, 400 * 86_400].map(at_kind), [Some(18); 3]);
    }
}
