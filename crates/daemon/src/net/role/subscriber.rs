//! Subscribers: the state first, or the journal from where they were; then every change. A slow
//! one is told what it missed and cut; it resumes from the journal.

use crate::engine::Sighting;
use pool::observe::Sight;
use std::sync::Arc;
use std::time::Duration;

use protocol::request::{Observe, View};
use protocol::{Call, Event, Frame, MessageId, Request, Seq, Stamped, frame, parts};
use store::{Reader, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;
use crate::host::outbox::{Gone, Outbox};
use crate::net::connection::Connection;
use crate::verb::read::redacted;

/// Events of the journal that are read at once.
const PAGE: usize = 1000;

pub(crate) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let Ok(Some(payload)) = connection.reader.next().await else { return };
    let since = match frame::decode::<Call>(&payload) {
        Ok(Call { request: Request::Subscribe(subscribe), .. }) => subscribe.since,
        Ok(Call { id, request: Request::Output(output), .. }) => {
            return crate::net::role::output::serve(daemon, connection, (id, output)).await;
        }
        Ok(Call { request: Request::Watch, .. }) => return follow_tmux(daemon, connection).await,
        Ok(_) => return tracing::info!("a subscriber asked for something else"),
        Err(error) => return tracing::info!(%error, "a subscriber was cut off"),
    };
    let (reader, outbox) = (&mut connection.reader, &connection.outbox);
    tokio::select! {
        followed = follow(daemon, outbox, since) => {
            drop(followed);
            // After a failure of the database the engine learns of it with its next turn.
            daemon.engine.post(|_| ());
        }
        // It says nothing more; this is its end.
        _ = reader.next() => {}
    }
}

/// Where a subscriber begins.
struct Start {
    /// The state but for its messages, and the messages that are not over; none of both where the journal continues
    /// from where the subscriber was.
    state: Vec<Stamped>,
    messages: Vec<MessageId>,
    sent: Seq,
    /// Whether the state comes first: then the mark follows it, and all changes come after that.
    anew: bool,
    events: broadcast::Receiver<Stamped>,
    reader: Reader,
}

/// The state, or nothing where the journal continues from `since`; and changes from there on.
fn start(turn: &mut Turn<'_>, since: Option<Seq>) -> Start {
    let (events, reader) = (turn.subscribe(), turn.reader());
    // Where that is not readable the state comes.
    let floor = reader.floor().unwrap_or(Seq(u64::MAX));
    let continues = |since: &Seq| (floor..=turn.pool().seq()).contains(since);
    if let Some(sent) = since.filter(continues) {
        return Start { state: Vec::new(), messages: Vec::new(), sent, anew: false, events, reader };
    }
    let state = turn.pool().replicate().into_iter().filter(|s| s.event.is_journaled()).collect();
    let sessions = turn.pool().sessions();
    let messages = sessions.flat_map(|s| turn.pool().open_messages_of(s.id)).map(|m| m.id).collect();
    Start { state, messages, sent: turn.pool().seq(), anew: true, events, reader }
}

/// Reads elsewhere: neither the engine nor the other connections wait for the disk.
async fn read<T: Send + 'static>(
    reader: &Reader,
    work: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Gone> {
    let reader = reader.clone();
    // What is not readable is a gap: it ends here, and the state comes first next time.
    blocking::unlimited(Purpose::Reads, move || work(&reader)).await.map_err(|_| Gone)?.map_err(|_| Gone)
}

async fn follow(daemon: &Arc<Daemon>, outbox: &Outbox, since: Option<Seq>) -> Result<(), Gone> {
    let mut since = since;
    loop {
        let Ok(begun) = daemon.engine.turn(move |turn| start(turn, since)).await else { return Err(Gone) };
        if let Some((sent, events)) = catch_up(outbox, begun).await? {
            return live(outbox, sent, events).await;
        }
        // What comes next is gone, or not readable: the state comes instead.
        since = None;
    }
}

/// Sends what there was, and the mark. None where the journal has a gap.
async fn catch_up(
    outbox: &Outbox,
    start: Start,
) -> Result<Option<(Seq, broadcast::Receiver<Stamped>)>, Gone> {
    let Start { state, mut messages, mut sent, anew, events, reader } = start;
    for stamped in state {
        outbox.send(event(stamped, true)).await?;
    }
    messages.sort_unstable();
    for ids in messages.chunks(PAGE) {
        let ids = ids.to_vec();
        for message in read(&reader, move |reader| reader.messages(&ids)).await? {
            let (seq, at) = (sent, message.status.changed_at);
            let stamped = Stamped { seq, at, event: Event::MessageQueued(Box::new(message)) };
            outbox.send(event(stamped, true)).await?;
        }
    }
    if anew {
        outbox.send(Frame::Synced { seq: sent }).await?;
    }
    loop {
        let from = sent;
        let page = read(&reader, move |reader| match reader.events_since(from, PAGE) {
            Err(StoreError::Record { .. }) => Ok(None),
            page => page.map(Some),
        });
        let Some(page) = page.await? else { return Ok(None) };
        let last = page.len() < PAGE;
        for stamped in page {
            if stamped.seq.0 != sent.0 + 1 {
                return Ok(None);
            }
            sent = stamped.seq;
            outbox.send(event(stamped, false)).await?;
        }
        if last {
            if !anew {
                outbox.send(Frame::Synced { seq: sent }).await?;
            }
            return Ok(Some((sent, events)));
        }
    }
}

/// Every change from here on.
async fn live(outbox: &Outbox, mut sent: Seq, mut events: broadcast::Receiver<Stamped>) -> Result<(), Gone> {
    loop {
        match events.recv().await {
            Ok(stamped) if stamped.seq <= sent => {}
            // The journal was not readable to its end.
            Ok(stamped) if stamped.seq.0 != sent.0 + 1 => {
                return outbox.send(Frame::Lagged { from: sent, to: stamped.seq }).await;
            }
            Ok(stamped) => {
                sent = stamped.seq;
                outbox.send(event(stamped, false)).await?;
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
        let begin = |turn: &mut Turn<'_>| (turn.subscribe_to_tmux(), turn.volatile.observed.state().clone());
        let Ok((mut observed, state)) = daemon.engine.turn(begin).await else { return };
        let mut stream = Numbered { watcher: connection.id, seq: 0 };
        let mut seen = Arc::new(Sighting::whole(state, Duration::ZERO));
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
    fn frames(&mut self, seen: &Sighting) -> Vec<Observe> {
        let views = match &seen.sight {
            Sight::Whole(state) => parts::snapshot(state.clone()),
            Sight::Changes(changes) => vec![View::Diff(changes.clone())],
            Sight::Same => vec![View::Unchanged],
            Sight::Alive => vec![View::Alive],
        };
        let age_ms = u64::try_from(seen.age.as_millis()).unwrap_or(u64::MAX);
        let number = |view| {
            self.seq += 1;
            Observe { watcher: self.watcher, seq: self.seq, asked: 0, age_ms, complete: seen.complete, view }
        };
        views.into_iter().map(number).collect()
    }
}

fn event(stamped: Stamped, snapshot: bool) -> Frame {
    Frame::Event { stamped: Box::new(redacted(stamped)), snapshot }
}
