//! One tmux server as it is watched: connects, asks what the model wants to know, and looks after
//! processes. In the order in which things happen: `next` waits, `begin` starts what is due, `hear`
//! and `due` take in what came.

mod hear;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::ServerId;
use protocol::tmux::{Means, Server, TmuxState, Trouble};
use tmux::Device;
use tmux::live::Ask;
use tokio::time::{Instant, sleep_until};

use crate::cure::{self, Cure};
use crate::ladder::Ladder;
use crate::model::Model;
use crate::pace::{FLOOR, sweep};
use crate::procs::{End, Procs};
use crate::server::{Failure, Looks};
use crate::touched::Touched;
use crate::wire::Wire;

/// How often it is looked whether the socket's file is still that of the connected server.
const SOCKET: Duration = Duration::from_secs(2);
/// Of the server's time at most one in so many goes to whole listings that are asked for to settle a
/// contradiction.
const DOUBT_SHARE: u32 = 20;
/// But so long none waits.
const DOUBT_MAX: Duration = Duration::from_secs(2);
/// So many looks in a row at a server with which nothing is the matter, while an answer is waited for,
/// before the connection is taken for broken.
const SILENCES: u32 = 4;
/// When after a connection was made the end of the hidden session's own program is brought to the
/// server's mind, which may have missed it. No listing shows whether it did.
const REMINDERS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// What to watch, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) means: Option<Means>,
    pub(crate) sweep: Option<Duration>,
    /// How long nothing may come of a question before the server is looked at.
    pub(crate) patience: Duration,
}

/// What was learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The whole server, asked for then; or that there is none.
    Whole(Instant),
    /// A part of it, asked for then.
    Part(Instant),
    /// That it answers.
    Alive,
    /// That it does not.
    Silence,
}

/// One tmux server as it is watched.
pub(crate) struct Source {
    device: Device,
    plan: Plan,
    model: Model,
    procs: Procs,
    cure: Cure,
    looks: Looks,
    ladder: Ladder,
    wire: Wire,
    means: Option<Means>,
    /// The server at the other end of the connection, and whether it was read since.
    server: Option<ServerId>,
    useful: bool,
    /// The socket's file before the connection was made, and when to look for it next.
    socket: Option<(u64, u64)>,
    socket_due: Instant,
    reminders: VecDeque<Instant>,
    /// What was asked, and when.
    asked: VecDeque<(Ask, Instant)>,
    /// When the last answer came over the connection.
    answered: Option<Instant>,
    /// Since when an answer is waited for, and the last look at a server that gave none.
    since: Instant,
    looked: Instant,
    /// How often in a row such a look found nothing the matter.
    silences: u32,
    /// When the last whole listing began, and how long it took.
    swept: Instant,
    cost: Duration,
    /// Whether a whole listing that begins from now on is asked for.
    demanded: bool,
}

impl Source {
    /// # Errors
    /// Where the operating system has no descriptor left.
    pub(crate) fn new(device: Device, plan: Plan) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            ladder: Ladder::new(plan.means, device.own, now),
            device,
            plan,
            model: Model::default(),
            procs: Procs::new()?,
            cure: Cure::default(),
            looks: Looks::default(),
            wire: Wire::Idle,
            means: None,
            server: None,
            useful: false,
            socket: None,
            socket_due: now,
            reminders: VecDeque::new(),
            asked: VecDeque::new(),
            answered: None,
            since: now,
            looked: now,
            silences: 0,
            swept: now,
            cost: Duration::ZERO,
            demanded: false,
        })
    }

    /// Whether it watches this server in this way.
    pub(crate) fn is(&self, device: &Device, plan: &Plan) -> bool {
        let same = self.device.binary == device.binary && self.device.socket == device.socket;
        same && self.device.own == device.own && self.plan == *plan
    }

    /// tmux as far as it is known.
    pub(crate) fn state(&self) -> &TmuxState {
        self.model.state()
    }

    /// What of it may have changed since this was last asked.
    pub(crate) fn take_touched(&mut self) -> Touched {
        self.model.take_touched()
    }

    /// How it learns of changes, once something was learnt.
    pub(crate) fn means(&self) -> Option<Means> {
        self.means
    }

    /// When the server last answered over the connection, while that lasts and nothing speaks against it.
    pub(crate) fn answered_at(&self) -> Option<Instant> {
        let up = matches!(self.model.state().server, Server::Up(_)) && matches!(self.wire, Wire::Live(_));
        self.answered.filter(|_| up)
    }

    /// A whole listing is to begin from now on, soon.
    pub(crate) fn demand(&mut self) {
        self.demanded = true;
        self.model.doubt_all();
        self.ladder.hurry(Instant::now());
    }

    /// Something is to be learnt soon, if only that the server answers.
    pub(crate) fn prove(&mut self) {
        let now = Instant::now();
        match &mut self.wire {
            Wire::Live(live) if self.asked.iter().all(|(ask, _)| *ask != Ask::Alive) => {
                live.ask(Ask::Alive);
                if self.asked.is_empty() {
                    self.since = now;
                }
                self.asked.push_back((Ask::Alive, now));
            }
            Wire::Idle => self.ladder.hurry(now),
            _ => {}
        }
    }

    /// What is learnt next. May be cancelled.
    pub(crate) async fn next(&mut self) -> Seen {
        loop {
            let now = Instant::now();
            let (begins, due) = (self.begins(now), self.due_at());
            // In this order: what has come already is heard before anything is asked, so that one
            // batch of questions is about all of it.
            let seen = tokio::select! {
                biased;
                ends = self.procs.ends() => self.ended(&ends),
                said = self.wire.says() => self.hear(said),
                () = std::future::ready(()), if begins => {
                    self.begin(now);
                    None
                }
                () = sleep_until(due) => self.due(Instant::now()),
            };
            if let Some(seen) = seen {
                return seen;
            }
        }
    }

    /// Whether a connection, a listing or a question is due.
    fn begins(&self, now: Instant) -> bool {
        match &self.wire {
            Wire::Idle => now >= self.idle_until(),
            Wire::Live(_) => self.asked.is_empty() && self.model.asks(self.may_ask_all(now)),
            Wire::Opening(..) | Wire::Listing(_) => false,
        }
    }

    fn may_ask_all(&self, now: Instant) -> bool {
        self.demanded || now >= self.settle_at()
    }

    /// Starts it.
    fn begin(&mut self, now: Instant) {
        let allowed = self.may_ask_all(now);
        match &mut self.wire {
            Wire::Idle => {
                let means = self.ladder.next(now);
                if means == Means::Listings {
                    self.swept = now;
                }
                (self.since, self.demanded) = (now, false);
                self.socket = file_of(&self.device.socket);
                self.wire = Wire::begin(means, &self.device);
            }
            Wire::Live(live) => {
                for ask in self.model.batch(allowed) {
                    if ask == Ask::All {
                        (self.swept, self.demanded) = (now, false);
                    }
                    live.ask(ask);
                    self.since = now;
                    self.asked.push_back((ask, now));
                }
            }
            Wire::Opening(..) | Wire::Listing(_) => {}
        }
    }

    /// Until when nothing is tried. Where there are only listings, doubts are settled sooner.
    fn idle_until(&self) -> Instant {
        let due = self.ladder.due();
        let doubts = self.means == Some(Means::Listings) && self.model.asks(true);
        if doubts { due.min(self.swept + FLOOR) } else { due }
    }

    fn due_at(&self) -> Instant {
        let waits = match &self.wire {
            Wire::Idle => self.idle_until(),
            Wire::Live(_) if self.asked.is_empty() && self.model.asks(true) => {
                self.settle_at().min(self.socket_due)
            }
            Wire::Live(_) if self.asked.is_empty() => self.sweep_at().min(self.socket_due),
            Wire::Live(_) => self.look_at().min(self.socket_due),
            Wire::Opening(..) | Wire::Listing(_) => self.look_at(),
        };
        let others = [self.procs.due(), self.cure.due(), self.reminders.front().copied()];
        others.into_iter().flatten().fold(waits, Instant::min)
    }

    /// From then on a contradiction may be settled by a whole listing.
    fn settle_at(&self) -> Instant {
        self.swept + (self.cost * DOUBT_SHARE).min(DOUBT_MAX)
    }

    fn sweep_at(&self) -> Instant {
        self.swept + self.plan.sweep.unwrap_or_else(|| sweep(self.cost))
    }

    fn look_at(&self) -> Instant {
        self.since.max(self.looked) + self.plan.patience
    }

    /// Does what the clock says.
    fn due(&mut self, now: Instant) -> Option<Seen> {
        self.procs.look(&mut self.model, now);
        self.tend(now);
        if matches!(self.wire, Wire::Live(_)) && now >= self.socket_due {
            self.socket_due = now + SOCKET;
            if self.socket != file_of(&self.device.socket) {
                tracing::warn!("tmux's socket is not the connected server's any more");
                self.disconnect(now);
            }
        }
        let waits = match &self.wire {
            Wire::Idle => false,
            Wire::Live(_) => !self.asked.is_empty(),
            Wire::Opening(..) | Wire::Listing(_) => true,
        };
        if waits && now >= self.look_at() {
            let seen = self.look(Failure::Silent, now);
            self.give_up(now);
            return Some(seen);
        }
        if matches!(self.wire, Wire::Live(_)) && !waits && now >= self.sweep_at() {
            self.model.doubt_all();
        }
        Some(Seen::Part(now))
    }

    /// Starts over where a connection stays silent and nothing is the matter with the server.
    fn give_up(&mut self, now: Instant) {
        let Server::Unknown(silence) = &self.model.state().server else { return };
        if silence.trouble == Trouble::Unknown && matches!(self.wire, Wire::Live(_)) {
            self.silences += 1;
            if self.silences >= SILENCES {
                tracing::warn!("the connection to tmux stays silent");
                self.disconnect(now);
            }
        }
    }

    /// Looks whether the server knows of the ends that were seen.
    fn tend(&mut self, now: Instant) {
        let Some(server) = self.model.server().or(self.server) else { return };
        let state = self.model.state();
        let is_over = |id| state.panes.get(&id).is_none_or(|pane| pane.dead && pane.has_known_end());
        let needed = self.cure.look(now, is_over, |pid| cure::is_zombie_child(pid, server));
        let reminded = self.reminders.front().is_some_and(|due| *due <= now);
        if reminded {
            self.reminders.pop_front();
        }
        if needed.poke {
            cure::signal(server, Signal::SIGCHLD, || true);
        } else if reminded {
            cure::signal(server, Signal::SIGCHLD, || false);
        }
        for id in needed.read {
            if self.model.state().panes.contains_key(&id) {
                self.model.reread(id);
            }
        }
    }

    /// Processes have ended.
    fn ended(&mut self, ends: &[End]) -> Option<Seen> {
        let now = Instant::now();
        for end in ends {
            match *end {
                End::Pane(id, process, how) => {
                    self.model.ended(id, process, how);
                    self.cure.ended(id, process.pid, now);
                }
                End::Server(_) => {
                    if matches!(self.wire, Wire::Live(_)) {
                        self.disconnect(now);
                    }
                    self.ladder.hurry(now);
                }
            }
        }
        (!ends.is_empty()).then_some(Seen::Part(now))
    }
}

/// Which file a path leads to.
fn file_of(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|found| process::file::id(&found))
}
