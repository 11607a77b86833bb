//! Subscribers: the state first, or the journal from a given event on; then every change. A slow subscriber
//! is told what it missed and disconnected; it resumes from the journal.

use std::sync::Arc;
use std::time::Duration;

use pool::observe::Report;
use protocol::request::{Observe, View};
use protocol::{Call, Event, Frame, MessageId, Request, Seq, Stamped, Timestamp, frame, view_parts};
use store::{Reader, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::engine::{Daemon, ObservedTmux, Turn};
use crate::host::blocking_pool::{BlockingPool, Purpose};
use crate::host::outbox::{Outbox, PAGE_BYTES, PeerGone};
use crate::net::connection::Connection;
use crate::net::role::output;
use crate::verb::events::redacted;

/// Number of records read at a time.
const PAGE: usize = 1000;

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let Ok(Some(payload)) = connection.reader.next().await else { return };
    let since = match frame::decode::<Call>(&payload) {
        Ok(Call { request: Request::Subscribe(subscribe), .. }) => subscribe.since,
        Ok(Call { id, request: Request::Output(output), .. }) => {
            return output::serve(daemon, connection, (id, output)).await;
        }
        Ok(Call { request: Request::Watch, .. }) => return follow_tmux(daemon, connection).await,
        Ok(_) => return tracing::info!("a subscriber was disconnected: it requested something else"),
        Err(error) => return tracing::info!(%error, "a subscriber was disconnected"),
    };
    let (reader, outbox) = (&mut connection.reader, &connection.outbox);
    tokio::select! {
        biased;
        followed = follow(daemon, outbox, since) => {
            drop(followed);
            // The engine notices a failure of the database in its next turn.
            daemon.engine.post(|_| ());
        }
        // A subscriber sends nothing more: anything read here ends the subscription.
        _ = reader.next() => {}
    }
}

/// The beginning of a subscription.
struct Start {
    /// The state without its messages; empty if the subscriber continues from the journal.
    state: Vec<Stamped>,
    /// The messages of the state that are not final.
    messages: Vec<MessageId>,
    /// The last event that the subscriber has.
    sent: Seq,
    /// True if the subscription begins with the state, followed by `Synced`. Otherwise it begins with the journal.
    with_state: bool,
    events: broadcast::Receiver<Stamped>,
    reader: Reader,
}

/// Begins a subscription after the event `since`, or with the state.
fn start(turn: &mut Turn<'_>, since: Option<Seq>) -> Start {
    let (events, reader) = (turn.subscribe(), turn.reader());
    // If the beginning of the journal is not readable, the state comes first.
    let floor = reader.floor().unwrap_or(Seq(u64::MAX));
    let continues = |since: &Seq| (floor..=turn.pool().seq()).contains(since);
    if let Some(sent) = since.filter(continues) {
        return Start { state: Vec::new(), messages: Vec::new(), sent, with_state: false, events, reader };
    }
    let state = state(turn);
    let sessions = turn.pool().sessions();
    let messages = sessions.flat_map(|s| turn.pool().pending_messages_of(s.id)).map(|m| m.id).collect();
    Start { state, messages, sent: turn.pool().seq(), with_state: true, events, reader }
}

/// The state without its messages, and the tmux sessions that are not the pool's. Ended incarnations are no
/// state.
fn state(turn: &Turn<'_>) -> Vec<Stamped> {
    let pool = turn.pool().replicate_sessions().into_iter().filter(|stamped| stamped.event.is_journaled());
    let foreign = turn.volatile.observed.foreign().into_iter().flatten();
    let (seq, at) = (turn.pool().seq(), Timestamp(0));
    let seen = foreign.map(|(id, name)| Stamped {
        seq,
        at,
        event: Event::ForeignSeen { tmux: *id, name: name.clone() },
    });
    pool.chain(seen).collect()
}

/// Reads the database outside of the engine, so that neither the engine nor other connections wait for the
/// disk.
async fn read<T: Send + 'static>(
    blocking: &BlockingPool,
    reader: &Reader,
    work: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, PeerGone> {
    let reader = reader.clone();
    // An unreadable record is a gap in the journal: the connection ends, and the next subscription begins with the
    // state.
    blocking
        .without_timeout(Purpose::DatabaseReads, move || work(&reader))
        .await
        .map_err(|_| PeerGone)?
        .map_err(|_| PeerGone)
}

async fn follow(daemon: &Arc<Daemon>, outbox: &Outbox, since: Option<Seq>) -> Result<(), PeerGone> {
    let mut since = since;
    loop {
        let Ok(begun) = daemon.engine.turn(move |turn| start(turn, since)).await else {
            return Err(PeerGone);
        };
        if let Some((sent, events)) = catch_up(&daemon.blocking, outbox, begun).await? {
            return live(outbox, sent, events).await;
        }
        // The next events are gone or not readable: send the state instead.
        since = None;
    }
}

/// Sends everything up to now, and `Synced`. Returns none if the journal has a gap.
async fn catch_up(
    blocking: &BlockingPool,
    outbox: &Outbox,
    start: Start,
) -> Result<Option<(Seq, broadcast::Receiver<Stamped>)>, PeerGone> {
    let Start { state, mut messages, mut sent, with_state, events, reader } = start;
    for stamped in state {
        outbox.send(event(stamped, true)).await?;
    }
    messages.sort_unstable();
    for ids in messages.chunks(PAGE) {
        let ids = ids.to_vec();
        for message in read(blocking, &reader, move |reader| reader.messages(&ids)).await? {
            let (seq, at) = (sent, message.status.changed_at);
            let stamped = Stamped { seq, at, event: Event::MessageQueued(Box::new(message)) };
            outbox.send(event(stamped, true)).await?;
        }
    }
    if with_state {
        outbox.send(Frame::Synced { seq: sent }).await?;
    }
    loop {
        let from = sent;
        let page =
            read(blocking, &reader, move |reader| match reader.events_page(from, (PAGE, PAGE_BYTES)) {
                Err(StoreError::Record { .. }) => Ok(None),
                page => page.map(Some),
            });
        let Some((page, has_more)) = page.await? else { return Ok(None) };
        for stamped in page {
            if stamped.seq.0 != sent.0 + 1 {
                return Ok(None);
            }
            sent = stamped.seq;
            outbox.send(event(stamped, false)).await?;
        }
        if !has_more {
            if !with_state {
                outbox.send(Frame::Synced { seq: sent }).await?;
            }
            return Ok(Some((sent, events)));
        }
    }
}

/// Sends every change from now on.
async fn live(
    outbox: &Outbox,
    mut sent: Seq,
    mut events: broadcast::Receiver<Stamped>,
) -> Result<(), PeerGone> {
    loop {
        match events.recv().await {
            Ok(stamped) if stamped.seq <= sent => {}
            // The subscriber was too slow, or the end of the journal was not readable: it comes back, and reads
            // on from the journal.
            Ok(stamped) if stamped.seq.0 != sent.0 + 1 => {
                return outbox.send(Frame::Lagged { from: sent, to: stamped.seq }).await;
            }
            Ok(stamped) => {
                sent = stamped.seq;
                outbox.send(event(stamped, false)).await?;
            }
            // The subscriber is more than `SUBSCRIBER_BACKLOG` events behind. It may have got the missing ones from the
            // journal: the number of the next event tells.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// Sends the observed state of tmux, then every observation as it arrives, with numbers of this stream.
async fn follow_tmux(daemon: &Arc<Daemon>, mut connection: Connection) {
    let (reader, outbox) = (&mut connection.reader, &connection.outbox);
    let follow = async {
        let begin = |turn: &mut Turn<'_>| (turn.subscribe_to_tmux(), turn.volatile.observed.state().clone());
        let Ok((mut observed, state)) = daemon.engine.turn(begin).await else { return };
        let mut stream = NumberedStream { watcher: connection.id, seq: 0 };
        let mut seen = Arc::new(ObservedTmux::whole(state, Duration::ZERO));
        loop {
            for observe in stream.frames(&seen, daemon.world.clock.awake()) {
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
        biased;
        () = follow => {}
        _ = reader.next() => {}
    }
}

/// A stream of observations, numbered consecutively.
struct NumberedStream {
    watcher: u64,
    seq: u64,
}

impl NumberedStream {
    /// Returns the frames of an observation, which are sent at this time since the boot.
    fn frames(&mut self, seen: &ObservedTmux, sent_at: Duration) -> Vec<Observe> {
        let views = match &seen.report {
            Report::Snapshot(state) => view_parts::snapshot(state.clone()),
            Report::Diff(changes) => vec![View::Diff(changes.clone())],
            Report::Unchanged => vec![View::Unchanged],
            Report::Alive => vec![View::Alive],
        };
        let (age_ms, sent_at_ms) = (protocol::time::millis(seen.age), Some(protocol::time::millis(sent_at)));
        let number = |view| {
            self.seq += 1;
            let (watcher, seq, complete) = (self.watcher, self.seq, seen.complete);
            Observe { watcher, seq, asked: 0, age_ms, sent_at_ms, complete, view }
        };
        views.into_iter().map(number).collect()
    }
}

/// Returns the frame of an event. `snapshot`: it is part of the state.
fn event(stamped: Stamped, snapshot: bool) -> Frame {
    Frame::Event { stamped: Box::new(redacted(stamped)), snapshot }
}

#[cfg(test)]
mod tests {
    use pool::Pool;
    use store::Store;

    use super::*;

    #[test]
    fn s05_a_page_of_the_journal_is_bounded_in_bytes_too() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(&dir.path().join("db"), |_| ()).unwrap();
        let mut pool = Pool::default();
        let reason = "x".repeat(8 << 10);
        let events: Vec<Stamped> = (1..PAGE as u64 / 2)
            .map(|n| Stamped {
                seq: Seq(n),
                at: Timestamp(n),
                event: Event::WatcherLost { reason: reason.clone() },
            })
            .collect();
        events.iter().for_each(|stamped| pool.apply(stamped));
        store.commit(&pool, &events, &[]).unwrap();
        let (page, has_more) = store.reader().events_page(Seq(0), (PAGE, PAGE_BYTES)).unwrap();
        assert!(has_more && !page.is_empty());
        assert!(page.len() * reason.len() <= PAGE_BYTES + reason.len(), "{} events", page.len());
    }
}
