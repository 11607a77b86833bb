//! What is told: a whole snapshot first, then what changes, each as soon as it is known; and that
//! nothing does.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use protocol::TransportError;
use protocol::diff::Change;
use protocol::parts;
use protocol::request::{Observe, View};
use protocol::tmux::{Means, Server, TmuxState};
use tokio::time::{Instant, sleep_until};

use crate::error::Error;
use crate::source::{Seen, Source};
use crate::wanted::Wanted;

/// Whoever is told.
pub(crate) trait Sink: Send {
    /// Whether more may be told before an answer was heard.
    fn has_room(&self) -> bool;
    /// The number that the next call will have.
    fn next_call(&self) -> u64;
    /// Sends an observation. Not to be cancelled.
    fn observe(&mut self, observe: Observe) -> impl Future<Output = Result<(), Error>> + Send;
    /// Says how changes are learnt. Not to be cancelled.
    fn watching_by(&mut self, means: Means) -> impl Future<Output = Result<(), Error>> + Send;
    /// What is said back, or that there is room again. May be cancelled.
    fn hear(&mut self) -> impl Future<Output = Result<Heard, Error>> + Send;
    /// How long there may be no room before whoever is told counts as stuck; `None` for ever.
    fn patience(&self) -> Option<Duration>;
}

/// What is said back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Call number `.0` left a gap: a whole snapshot is needed.
    Gap(u64),
    /// A snapshot with this number is asked for, taken from now on.
    Asked(u64),
    /// Nothing to act on.
    Fine,
}

/// What was learnt and not told yet, besides what is different.
#[derive(Debug, Clone, Copy, Default)]
struct News {
    /// When the newest reading of the whole server began.
    whole: Option<Instant>,
    /// When the oldest reading of a part began.
    part: Option<Instant>,
    /// When the server answered, if that is news, and whether it did not.
    alive: Option<Instant>,
    silence: bool,
}

impl News {
    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Whole(began) => self.whole = Some(began),
            Seen::Part(began) => self.part = Some(self.part.map_or(began, |old| old.min(began))),
            Seen::Alive => self.alive = Some(Instant::now()),
            Seen::Silence => self.silence = true,
        }
    }
}

/// What is to be sent: when the reading of the whole server began, if it is one, and else of a part.
struct Piece {
    view: View,
    asked: u64,
    whole: Option<Instant>,
    part: Option<Instant>,
}

/// One run of observations.
pub(crate) struct Stream<'a, S> {
    sink: S,
    source: &'a mut Source,
    /// Random, so that no numbers of an earlier run are taken for this one's.
    watcher: u64,
    seq: u64,
    /// Half of the heartbeat: then even a late frame is in time.
    beat: Duration,
    told: TmuxState,
    told_at: Instant,
    told_means: Option<Means>,
    news: News,
    wanted: Wanted,
    /// Whether nothing can be told but a snapshot: at the start, and after a gap.
    lost: bool,
    /// The call that began the last snapshot.
    snapshot_call: u64,
    /// When it was last seen to it that there is something to tell.
    proved_at: Instant,
    /// What waits for room; nothing is added to it before it is sent.
    outbox: VecDeque<Piece>,
    /// When there was room last.
    room_at: Instant,
}

impl<'a, S: Sink> Stream<'a, S> {
    pub(crate) fn new(sink: S, source: &'a mut Source, heartbeat: Duration) -> Self {
        let now = Instant::now();
        Self {
            sink,
            source,
            // The standard library seeds its hashes from the operating system. Exact as a JSON number.
            watcher: RandomState::new().hash_one(std::process::id()) >> 11,
            seq: 0,
            beat: heartbeat / 2,
            told: TmuxState::default(),
            told_at: now,
            told_means: None,
            news: News::default(),
            wanted: Wanted::default(),
            lost: true,
            snapshot_call: 0,
            proved_at: now,
            outbox: VecDeque::new(),
            room_at: now,
        }
    }

    /// Until nobody can be told any more.
    pub(crate) async fn run(mut self) -> Result<Infallible, Error> {
        self.want(0);
        loop {
            let quiet = self.told_at.max(self.proved_at) + self.beat;
            let stuck = self.sink.patience().filter(|_| !self.sink.has_room());
            let stuck_at = self.room_at + stuck.unwrap_or_default();
            tokio::select! {
                seen = self.source.next() => self.news.see(seen),
                heard = self.sink.hear() => self.note(heard?),
                () = sleep_until(quiet), if self.seq > 0 => self.be_heard(),
                () = sleep_until(stuck_at), if stuck.is_some() => return Err(TransportError::Timeout.into()),
            }
            self.send().await?;
            if self.sink.has_room() && self.outbox.is_empty() {
                self.tell().await?;
                self.send().await?;
            }
        }
    }

    /// Sends what waits, as far as there is room. tmux is heard meanwhile: it must never wait for
    /// whoever is told.
    async fn send(&mut self) -> Result<(), Error> {
        while self.sink.has_room() {
            self.room_at = Instant::now();
            let Some(Piece { view, asked, whole, part }) = self.outbox.pop_front() else { break };
            self.seq += 1;
            self.told_at = self.room_at;
            let age = whole.or(part).map_or(Duration::ZERO, |began| began.elapsed());
            let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            let (watcher, seq, complete) = (self.watcher, self.seq, whole.is_some());
            let sent = self.sink.observe(Observe { watcher, seq, asked, age_ms, complete, view });
            let mut sent = std::pin::pin!(sent);
            loop {
                tokio::select! {
                    biased;
                    sent = &mut sent => break sent?,
                    seen = self.source.next() => self.news.see(seen),
                }
            }
        }
        Ok(())
    }

    /// A frame is due, and there is nothing to tell but that the server answered lately, or that it
    /// does when it is asked.
    fn be_heard(&mut self) {
        self.proved_at = Instant::now();
        self.news.alive = self.source.answered_at().filter(|at| at.elapsed() < self.beat * 2);
        if self.news.alive.is_none() {
            self.source.prove();
        }
    }

    fn want(&mut self, number: u64) {
        self.wanted.push(number, Instant::now());
        self.source.demand();
    }

    fn note(&mut self, heard: Heard) {
        match heard {
            Heard::Asked(n) => self.want(n),
            // Before that call a snapshot has mended the gap already.
            Heard::Gap(call) if call >= self.snapshot_call && !self.lost => {
                self.lost = true;
                self.want(0);
            }
            Heard::Gap(_) | Heard::Fine => {}
        }
    }

    async fn tell(&mut self) -> Result<(), Error> {
        if let Some(means) = self.source.means().filter(|means| self.told_means != Some(*means)) {
            self.told_means = Some(means);
            self.sink.watching_by(means).await?;
        }
        let news = std::mem::take(&mut self.news);
        if let Some(asked) = self.wanted.answered(news.whole, news.silence) {
            self.snapshot(asked, news.whole);
            return Ok(());
        }
        if self.lost {
            return Ok(());
        }
        let changes = self.source.take_touched().changes(&self.told, self.source.state());
        let pieces = parts::diffs(changes);
        if pieces.len() > 1 && news.whole.is_some() {
            self.snapshot(0, news.whole);
            return Ok(());
        }
        if pieces.is_empty() {
            self.nothing_new(&news);
        }
        for piece in pieces {
            piece.iter().cloned().for_each(|change| self.told.apply(change));
            self.push(View::Diff(piece), news.whole, news.part);
        }
        Ok(())
    }

    /// That nothing changed is told of the whole server each time, of less only when a frame is due.
    fn nothing_new(&mut self, news: &News) {
        let due = self.told_at.elapsed() >= self.beat;
        if news.whole.is_some() {
            self.push(View::Unchanged, news.whole, None);
        } else if due && news.silence {
            let again = Change::Server(self.told.server.clone());
            self.push(View::Diff(vec![again]), None, None);
        } else if due && news.alive.is_some() {
            self.push(View::Alive, None, news.alive);
        }
    }

    fn snapshot(&mut self, asked: u64, whole: Option<Instant>) {
        self.lost = false;
        self.snapshot_call = self.sink.next_call();
        drop(self.source.take_touched());
        self.told = self.source.state().clone();
        let whole = whole.filter(|_| !matches!(self.told.server, Server::Unknown(_)));
        let views = parts::snapshot(self.told.clone());
        self.outbox.extend(views.into_iter().map(|view| Piece { view, asked, whole, part: None }));
    }

    fn push(&mut self, view: View, whole: Option<Instant>, part: Option<Instant>) {
        self.outbox.push_back(Piece { view, asked: 0, whole, part });
    }
}
