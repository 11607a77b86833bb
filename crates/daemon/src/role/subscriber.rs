//! Subscribers: the state first, or the journal from where they were; then every change. A slow
//! one is told what it missed and cut; it resumes from the journal.

use std::sync::Arc;

use protocol::{Call, Frame, Request, Seq, Stamped, frame};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::conn::{Connection, Gone};
use crate::context::Daemon;
use crate::verb::read::redacted;

/// Events of the journal that are read at once.
const PAGE: usize = 1000;

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let Ok(Some(payload)) = connection.reader.next().await else { return };
    let since = match frame::decode::<Call>(&payload) {
        Ok(Call { request: Request::Subscribe(subscribe), .. }) => subscribe.since,
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
    let begin = move |turn: &mut crate::engine::Turn<'_>| {
        let events = turn.subscribe();
        let oldest = turn.store().oldest_seq().ok().flatten().unwrap_or(Seq(1));
        match since {
            Some(since) if since.0 + 1 >= oldest.0 && since <= turn.pool().seq() => {
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
        let read = move |turn: &mut crate::engine::Turn<'_>| turn.store().events_since(from, PAGE);
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

fn event(stamped: Stamped) -> Frame {
    Frame::Event { stamped: Box::new(redacted(stamped)), snapshot: false }
}
