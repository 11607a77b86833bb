//! Sequence of reports: first a whole snapshot, then each change as soon as it is known, and a heartbeat
//! while nothing changes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use process::runtime::awake::awake;
use protocol::TransportError;
use protocol::diff::Change;
use protocol::request::{Observe, View};
use protocol::tmux::{Server, TmuxState, TmuxTransport};
use protocol::view_parts;
use tokio::time::{Instant, sleep_until};

use crate::error::Error;
use crate::snapshot_requests::SnapshotRequests;
use crate::source::{Source, SourceEvent};

/// Receiver of the reports.
pub(crate) trait Sink: Send {
    /// True if another report may be sent before a reply arrives.
    fn has_room(&self) -> bool;
    fn next_call(&self) -> u64;
    /// Sends an observation. Not cancel-safe.
    fn observe(&mut self, observe: Observe) -> impl Future<Output = Result<(), Error>> + Send;
    /// Sends the transport in use. Not cancel-safe.
    fn report_transport(
        &mut self,
        transport: TmuxTransport,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    /// Returns the next feedback, or returns because there is room again. Cancel-safe.
    fn feedback(&mut self) -> impl Future<Output = Result<Feedback, Error>> + Send;
    /// Time without room after which the receiver counts as stuck; `None` for no limit.
    fn stall_limit(&self) -> Option<Duration>;
}

/// Message from the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feedback {
    /// Call number `.0` left a gap: a whole snapshot is needed.
    Gap(u64),
    /// Request for a snapshot with this number, read from now on.
    SnapshotRequested(u64),
    /// No action needed.
    Nothing,
}

/// Events not yet reported, apart from changes of the state.
#[derive(Debug, Clone, Copy, Default)]
struct Unreported {
    /// Start of the newest read of the whole server.
    whole: Option<Instant>,
    /// Start of the oldest read of a part.
    part: Option<Instant>,
    /// Time of an answer of the server, if the answer is to be reported, and whether the server failed to answer.
    alive: Option<Instant>,
    silence: bool,
}

impl Unreported {
    fn add(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Whole(began) => self.whole = Some(began),
            SourceEvent::Part(began) => self.part = Some(self.part.map_or(began, |old| old.min(began))),
            SourceEvent::Alive => self.alive = Some(Instant::now()),
            SourceEvent::Silence => self.silence = true,
        }
    }
}

/// Report to send, with the start of the read of the whole server, or else of a part.
struct Outgoing {
    view: View,
    asked: u64,
    whole: Option<Instant>,
    part: Option<Instant>,
}

/// One run of reports over a connection.
pub(crate) struct Stream<'a, S> {
    sink: S,
    source: &'a mut Source,
    /// Random, so that sequence numbers of an earlier run are not confused with this one's.
    watcher: u64,
    seq: u64,
    /// Half of the heartbeat, so that even a late frame is in time.
    keep_alive_after: Duration,
    reported: TmuxState,
    reported_at: Instant,
    reported_transport: Option<TmuxTransport>,
    unreported: Unreported,
    snapshot_requests: SnapshotRequests,
    /// True if only a snapshot may be reported: at the start, and after a gap.
    needs_snapshot: bool,
    /// Number of the call that began the last snapshot.
    snapshot_call: u64,
    /// Time of the last check that a keep-alive is possible.
    checked_at: Instant,
    /// Reports waiting for room; it is sent before more are added.
    outbox: VecDeque<Outgoing>,
    /// Time when there was room last.
    room_at: Instant,
}

impl<'a, S: Sink> Stream<'a, S> {
    pub(crate) fn new(sink: S, source: &'a mut Source, heartbeat: Duration) -> Self {
        let now = Instant::now();
        Self {
            sink,
            source,
            // Random, because the standard library seeds its hashes from the operating system. 53 bits:
            // exact as a JSON number.
            watcher: RandomState::new().hash_one(std::process::id()) >> 11,
            seq: 0,
            keep_alive_after: heartbeat / 2,
            reported: TmuxState::default(),
            reported_at: now,
            reported_transport: None,
            unreported: Unreported::default(),
            snapshot_requests: SnapshotRequests::default(),
            needs_snapshot: true,
            snapshot_call: 0,
            checked_at: now,
            outbox: VecDeque::new(),
            room_at: now,
        }
    }

    /// Reports until the receiver is lost.
    pub(crate) async fn run(mut self) -> Result<Infallible, Error> {
        self.request_snapshot(0);
        loop {
            let quiet = self.reported_at.max(self.checked_at) + self.keep_alive_after;
            let stall_limit = self.sink.stall_limit().filter(|_| !self.sink.has_room());
            let stalled_at = self.room_at + stall_limit.unwrap_or_default();
            tokio::select! {
                event = self.source.next() => self.unreported.add(event),
                feedback = self.sink.feedback() => self.handle_feedback(feedback?),
                () = sleep_until(quiet), if self.seq > 0 => self.keep_alive(),
                () = sleep_until(stalled_at), if stall_limit.is_some() => return Err(TransportError::Timeout.into()),
            }
            self.send().await?;
            if self.sink.has_room() && self.outbox.is_empty() {
                self.report().await?;
                self.send().await?;
            }
        }
    }

    /// Sends the waiting reports while there is room. Meanwhile it keeps reading from tmux, which must
    /// never wait for the receiver.
    async fn send(&mut self) -> Result<(), Error> {
        while self.sink.has_room() {
            self.room_at = Instant::now();
            let Some(Outgoing { view, asked, whole, part }) = self.outbox.pop_front() else { break };
            self.seq += 1;
            self.reported_at = self.room_at;
            let age = whole.or(part).map_or(Duration::ZERO, |began| began.elapsed());
            let age_ms = protocol::time::millis(age);
            let (watcher, seq, complete) = (self.watcher, self.seq, whole.is_some());
            let sent_at_ms = Some(protocol::time::millis(awake()));
            let sent = self.sink.observe(Observe { watcher, seq, asked, age_ms, sent_at_ms, complete, view });
            let mut sent = std::pin::pin!(sent);
            loop {
                tokio::select! {
                    biased;
                    sent = &mut sent => break sent?,
                    event = self.source.next() => self.unreported.add(event),
                }
            }
        }
        Ok(())
    }

    /// Prepares a keep-alive: the server has answered recently, or is asked to answer now.
    fn keep_alive(&mut self) {
        self.checked_at = Instant::now();
        self.unreported.alive =
            self.source.answered_at().filter(|at| at.elapsed() < self.keep_alive_after * 2);
        if self.unreported.alive.is_none() {
            self.source.request_ping();
        }
    }

    fn request_snapshot(&mut self, number: u64) {
        self.snapshot_requests.push(number, Instant::now());
        self.source.request_whole();
    }

    fn handle_feedback(&mut self, feedback: Feedback) {
        match feedback {
            Feedback::SnapshotRequested(n) => self.request_snapshot(n),
            // A snapshot after that call has filled the gap already.
            Feedback::Gap(call) if call >= self.snapshot_call && !self.needs_snapshot => {
                self.needs_snapshot = true;
                self.request_snapshot(0);
            }
            Feedback::Gap(_) | Feedback::Nothing => {}
        }
    }

    async fn report(&mut self) -> Result<(), Error> {
        if let Some(transport) =
            self.source.transport().filter(|transport| self.reported_transport != Some(*transport))
        {
            self.reported_transport = Some(transport);
            self.sink.report_transport(transport).await?;
        }
        let unreported = std::mem::take(&mut self.unreported);
        if let Some(asked) = self.snapshot_requests.answered(unreported.whole, unreported.silence) {
            self.enqueue_snapshot(asked, unreported.whole);
            return Ok(());
        }
        if self.needs_snapshot {
            return Ok(());
        }
        let changes = self.source.take_changes().changes(&self.reported, self.source.state());
        let pieces = view_parts::diffs(changes);
        if pieces.len() > 1 && unreported.whole.is_some() {
            self.enqueue_snapshot(0, unreported.whole);
            return Ok(());
        }
        if pieces.is_empty() {
            self.report_unchanged(&unreported);
        }
        for piece in pieces {
            piece.iter().cloned().for_each(|change| self.reported.apply(change));
            self.enqueue(View::Diff(piece), unreported.whole, unreported.part);
        }
        Ok(())
    }

    /// Reports an unchanged state: after each read of the whole server, otherwise only when a frame is due.
    fn report_unchanged(&mut self, unreported: &Unreported) {
        let due = self.reported_at.elapsed() >= self.keep_alive_after;
        if unreported.whole.is_some() {
            self.enqueue(View::Unchanged, unreported.whole, None);
        } else if due && unreported.silence {
            let again = Change::Server(self.reported.server.clone());
            self.enqueue(View::Diff(vec![again]), None, None);
        } else if due && unreported.alive.is_some() {
            self.enqueue(View::Alive, None, unreported.alive);
        }
    }

    fn enqueue_snapshot(&mut self, asked: u64, whole: Option<Instant>) {
        self.needs_snapshot = false;
        self.snapshot_call = self.sink.next_call();
        drop(self.source.take_changes());
        self.reported = self.source.state().clone();
        let whole = whole.filter(|_| !matches!(self.reported.server, Server::Unknown(_)));
        let views = view_parts::snapshot(self.reported.clone());
        self.outbox.extend(views.into_iter().map(|view| Outgoing { view, asked, whole, part: None }));
    }

    fn enqueue(&mut self, view: View, whole: Option<Instant>, part: Option<Instant>) {
        self.outbox.push_back(Outgoing { view, asked: 0, whole, part });
    }
}
