//! What `poold` is told over one connection: a whole snapshot first, then what changes.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::time::Duration;

use protocol::diff::{Change, diff};
use protocol::request::{Observe, View};
use protocol::tmux::{Server, TmuxState};
use tokio::time::{Instant, sleep_until};

use crate::error::Error;
use crate::link::{Heard, Link};
use crate::pace::{FLOOR, interval};
use crate::parts::{self, CHANGES};
use crate::source::Source;

/// The shortest heartbeat that is kept, in milliseconds: below it looking would be all that is done.
const SHORTEST_BEAT_MS: u64 = 20;

/// One connection's worth of observations.
pub(crate) struct Stream<'a> {
    link: Link,
    source: &'a mut Source,
    /// Random, so that no numbers of an earlier connection are taken for this one's.
    watcher: u64,
    seq: u64,
    heartbeat: Duration,
    /// What `poold` has been told.
    told: TmuxState,
    told_at: Instant,
    /// When the last look began.
    began: Instant,
    /// The number of the snapshot that is asked for, or 0.
    asked: u64,
    /// Whether the next frame must be a snapshot: at the start, and after a gap.
    whole: bool,
    /// The call that began the last snapshot.
    snapshot_call: u64,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(link: Link, source: &'a mut Source, heartbeat_ms: u64) -> Self {
        Self {
            link,
            source,
            // The standard library seeds its hashes from the operating system.
            watcher: RandomState::new().hash_one(std::process::id()),
            seq: 0,
            heartbeat: Duration::from_millis(heartbeat_ms.max(SHORTEST_BEAT_MS)),
            told: TmuxState::default(),
            told_at: Instant::now(),
            began: Instant::now(),
            asked: 0,
            whole: true,
            snapshot_call: 0,
        }
    }

    /// Until the connection is lost.
    pub(crate) async fn run(mut self) -> Result<Infallible, Error> {
        loop {
            // Asked before this look began, so this look answers it.
            let asked = std::mem::take(&mut self.asked);
            self.began = Instant::now();
            let state = self.look().await?;
            let looked_at = Instant::now();
            self.tell(state, asked).await?;
            self.rest(looked_at).await?;
        }
    }

    /// Half of the heartbeat: then even a late frame is in time.
    fn beat(&self) -> Duration {
        self.heartbeat / 2
    }

    /// Takes a listing. `poold` is heard meanwhile, and told when tmux is silent.
    async fn look(&mut self) -> Result<TmuxState, Error> {
        let began = Instant::now();
        let mut listing = pin!(self.source.ask());
        loop {
            let patience = self.told_at + self.heartbeat * 3 / 4;
            tokio::select! {
                look = &mut listing => return Ok(self.source.read(look)),
                heard = self.link.hear() => self.note(heard?),
                () = sleep_until(patience), if self.seq > 0 => {
                    let why = format!("tmux has not answered for {:.1} s", began.elapsed().as_secs_f32());
                    self.say(TmuxState { server: Server::Unknown(why), ..TmuxState::default() }).await?;
                }
            }
        }
    }

    fn note(&mut self, heard: Heard) {
        match heard {
            Heard::Asked(n) => self.asked = n,
            // Before that call a snapshot has mended the gap already.
            Heard::Gap(call) => self.whole |= call >= self.snapshot_call,
            Heard::Fine => {}
        }
    }

    async fn tell(&mut self, state: TmuxState, asked: u64) -> Result<(), Error> {
        if self.whole || asked != 0 {
            self.snapshot(state, asked).await
        } else if state != self.told {
            self.say(state).await
        } else if self.told_at.elapsed() + self.interval() >= self.beat() {
            self.send(unchanged(&state.server), 0).await
        } else {
            Ok(())
        }
    }

    /// Tells what is different.
    async fn say(&mut self, state: TmuxState) -> Result<(), Error> {
        let changes = diff(&self.told, &state);
        if changes.len() > CHANGES {
            return self.snapshot(state, 0).await;
        }
        self.told = state;
        self.send(View::Diff(changes), 0).await
    }

    async fn snapshot(&mut self, state: TmuxState, asked: u64) -> Result<(), Error> {
        self.whole = false;
        self.snapshot_call = self.link.next_call();
        self.told = state.clone();
        for view in parts::snapshot(state) {
            self.send(view, asked).await?;
        }
        Ok(())
    }

    async fn send(&mut self, view: View, asked: u64) -> Result<(), Error> {
        while !self.link.has_room() {
            let heard = self.link.hear_soon().await?;
            self.note(heard);
        }
        self.seq += 1;
        self.told_at = Instant::now();
        let age_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.link.send(Observe { watcher: self.watcher, seq: self.seq, asked, age_ms, view }).await
    }

    fn interval(&self) -> Duration {
        interval(self.source.cost(), self.beat())
    }

    /// Until the next look is due, or asked for.
    async fn rest(&mut self, looked_at: Instant) -> Result<(), Error> {
        loop {
            let pause = if self.whole { FLOOR.min(self.interval()) } else { self.interval() };
            tokio::select! {
                heard = self.link.hear() => self.note(heard?),
                () = sleep_until(looked_at + pause) => return Ok(()),
            }
            if self.asked != 0 {
                return Ok(());
            }
        }
    }
}

/// Nothing changed. After a silence that may not be said with the word for a complete listing.
fn unchanged(server: &Server) -> View {
    match server {
        Server::Unknown(_) => View::Diff(vec![Change::Server(server.clone())]),
        Server::Absent | Server::Up(_) => View::Unchanged,
    }
}
