//! Subscribers: the state first, or the journal from where they were; then every change. A slow
//! one is told what it missed and cut; it resumes from the journal.

use std::sync::Arc;
use std::time::Duration;

use protocol::request::{Observe, View};
use protocol::{Call, Frame, Request, Seq, Stamped, frame, parts};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::conn::{Connection, Gone};
use crate::context::Daemon;
use crate::engine::Turn;
use crate::verb::read::redacted;
use crate::view::{Look, Seen};

/// Events of the journal that are read at once.
const PAGE: usize = 1000;

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let Ok(Some(payload)) = connection.reader.next().await else { return };
    let since = match frame::decode::<Call>(&payload) {
        Ok(Call { request: Request::Subscribe(subscribe), .. }) => subscribe.since,
        Ok(Call { request: Request::Watch, .. }) => return follow_tmux(daemon, connection).await,
        Ok(_) => return tracing::info!("a subscriber asked for something else"),
        Err(error) => return tracing::info!(%error, "a subscriber was cut off"),
    };
    let (reader, outbox) = (&mut connection.reader, &connection.outbox);
    let follow = async {
        let Ok((first, sent, events)) = start(daemon, since).await else { return };
        for (stamped, snapshot) in first {
            let Ok(()) = outbox.send(Frame::Event { stamped: Box::new(redacted(stamped)), snapshot }).await
            else {
                return;
            };
        }
        drop(follow(daemon, &connection.outbox, sent, events).await);
    };
    tokio::select! {
        () = follow => {}
        // It says nothing more; this is its end.
        _ = reader.next() => {}
    }
}

type Start = (Vec<(Stamped, bool)>, Seq, broadcast::Receiver<Stamped>);

/// The state, or nothing where the journal continues from `since`; and changes from there on.
async fn start(daemon: &Arc<Daemon>, since: Option<Seq>) -> Result<Start, protocol::Refusal> {
    let begin = move |turn: &mut Turn<'_>| {
        let events = turn.subscribe();
        let oldest = turn.store().oldest_seq().ok().flatten().unwrap_or(Seq(1));
        match since {
            Some(since) if since.0.saturating_add(1) >= oldest.0 && since <= turn.pool().seq() => {
                (Vec::new(), since, events)
            }
            _ => {
                let state = turn.pool().replicate();
                let shown = state.into_iter().filter(|s| s.event.is_journaled()).map(|s| (s, true)).collect();
                (shown, turn.pool().seq(), events)
            }
        }
    };
    daemon.engine.turn(begin).await
}

async fn follow(
    daemon: &Arc<Daemon>,
    outbox: &crate::conn::Outbox,
    mut sent: Seq,
    mut events: broadcast::Receiver<Stamped>,
) -> Result<(), Gone> {
    loop {
        let from = sent;
        let read = move |turn: &mut Turn<'_>| turn.store().events_since(from, PAGE);
        // A journal that is not readable is a gap: it ends here, and the state comes first next time.
        let Ok(Ok(page)) = daemon.engine.turn(read).await else { return Err(Gone) };
        let more = page.len() == PAGE;
        for stamped in page {
            sent = stamped.seq;
            outbox.send(event(stamped)).await?;
        }
        if !more {
            break;
        }
    }
    outbox.send(Frame::Synced { seq: sent }).await?;
    loop {
        match events.recv().await {
            Ok(stamped) if stamped.seq <= sent => {}
            Ok(stamped) => {
                sent = stamped.seq;
                outbox.send(event(stamped)).await?;
            }
            Err(RecvError::Lagged(missed)) => {
                let to = Seq(sent.0 + missed);
                return outbox.send(Frame::Lagged { from: sent, to }).await;
            }
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// tmux as it is known, then every observation as it comes, numbered anew.
async fn follow_tmux(daemon: &Arc<Daemon>, mut connection: Connection) {
    let (reader, outbox) = (&mut connection.reader, &connection.outbox);
    let follow = async {
        let begin = |turn: &mut Turn<'_>| (turn.subscribe_to_tmux(), turn.rest.view.state.clone());
        let Ok((mut observed, state)) = daemon.engine.turn(begin).await else { return };
        let mut stream = Numbered { watcher: connection.id, seq: 0 };
        let mut seen = Arc::new(Seen::whole(state, Duration::ZERO));
        loop {
            for observe in stream.frames(&seen) {
                let Ok(()) = outbox.send(Frame::Observed(Box::new(observe))).await else { return };
            }
            match observed.recv().await {
                Ok(next) => seen = next,
                Err(RecvError::Lagged(missed)) => {
                    let (from, to) = (Seq(stream.seq), Seq(stream.seq + missed));
                    return drop(outbox.send(Frame::Lagged { from, to }).await);
                }
                Err(RecvError::Closed) => return,
            }
        }
    };
    tokio::select! {
        () = follow => {}
        _ = reader.next() => {}
    }
}

/// A stream of observations with numbers of its own.
struct Numbered {
    watcher: u64,
    seq: u64,
}

impl Numbered {
    fn frames(&mut self, seen: &Seen) -> Vec<Observe> {
        let views = match &seen.look {
            Look::Whole(state) => parts::snapshot(state.clone()),
            Look::Changes(changes) => vec![View::Diff(changes.clone())],
            Look::Same => vec![View::Unchanged],
            Look::Alive => vec![View::Alive],
        };
        let age_ms = u64::try_from(seen.age.as_millis()).unwrap_or(u64::MAX);
        let number = |view| {
            self.seq += 1;
            Observe { watcher: self.watcher, seq: self.seq, asked: 0, age_ms, complete: seen.complete, view }
        };
        views.into_iter().map(number).collect()
    }
}

fn event(stamped: Stamped) -> Frame {
    Frame::Event { stamped: Box::new(redacted(stamped)), snapshot: false }
}
