//! A pool with foreign sessions on its tmux server, and the changes that are measured.

use std::collections::{BTreeSet, VecDeque};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::reply::Status;
use protocol::tmux::TmuxTransport;
use protocol::{Event, ProcId, Request, SessionId, SessionRef, TmuxSessionId};

use super::Sample;
use super::load::Parties;
use crate::floors::Client;
use crate::interrupt;
use crate::pool::{self, Pool};
use crate::subscriber::{Seen, Subscriber};

/// Number of foreign sessions created by one command line.
const AT_A_TIME: usize = 50;
/// Time for the pool to reach its steady state.
const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(100);

/// A session of the pool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ours {
    pub(super) id: SessionId,
    tmux: TmuxSessionId,
    /// The process of its pane.
    init: ProcId,
}

/// The pool and all sessions on its server. Measurements keep their number.
pub(super) struct World<'a> {
    pub(super) pool: &'a Pool,
    pub(super) client: Client,
    pub(super) subscriber: Subscriber,
    /// Session that is renamed and labelled, and never ended.
    pub(super) steady: Ours,
    ours: VecDeque<Ours>,
    foreign: VecDeque<TmuxSessionId>,
    /// Counter for names.
    made: usize,
}

/// Start and end of an external command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ran {
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

impl Ran {
    fn until(self, seen: &Seen) -> Sample {
        Sample {
            time: seen.at.saturating_duration_since(self.ended),
            whole: seen.at.saturating_duration_since(self.started),
            early: seen.at <= self.ended,
        }
    }
}

impl<'a> World<'a> {
    /// Creates this many sessions, `ours` of them the pool's.
    pub(super) fn new(pool: &'a Pool, sessions: usize, ours: usize) -> Result<Self> {
        let mut client = Client::connect(pool)?;
        let subscriber = Subscriber::connect(&pool.socket(), pool::NAME)?;
        let steady = create(pool, &mut client, "steady")?;
        let (ours_left, foreign) = (ours - 1, sessions.saturating_sub(ours));
        let mut world = Self {
            pool,
            client,
            subscriber,
            steady,
            ours: VecDeque::new(),
            foreign: VecDeque::new(),
            made: 0,
        };
        for _ in 0..ours_left {
            world.replace()?;
        }
        world.fill(foreign)?;
        Ok(world)
    }

    /// Creates foreign sessions, many at a time.
    fn fill(&mut self, count: usize) -> Result<()> {
        for first in (0..count).step_by(AT_A_TIME) {
            interrupt::check()?;
            let mut words: Vec<String> = Vec::new();
            for n in first..count.min(first + AT_A_TIME) {
                words.extend(["new-session", "-d", "-s"].map(str::to_owned));
                words.extend([format!("b{n}"), "exec sleep 100000".to_owned(), ";".to_owned()]);
            }
            self.external(&words)?;
        }
        let mut missing = count;
        while missing > 0 {
            let seen = self.subscriber.wait(|event| matches!(event, Event::ForeignSeen { .. }))?;
            let seen = seen.with_context(|| format!("{missing} of {count} sessions are not reported"))?;
            if let Event::ForeignSeen { tmux, .. } = seen.event {
                self.foreign.push_back(tmux);
            }
            missing -= 1;
        }
        Ok(())
    }

    /// Returns the watcher's transport and the processes involved, once all of them run.
    pub(super) fn parties(&mut self) -> Result<(String, Parties)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.client.status()?;
            let parties = parties(&status)?;
            match (status.tmux.means, parties) {
                (Some(transport), Some(parties)) => {
                    return Ok((TmuxTransport::as_str(transport).to_owned(), parties));
                }
                _ => ensure!(Instant::now() < deadline, "tmux is not watched: {:?}", status.problems),
            }
            interrupt::sleep(TICK)?;
        }
    }

    /// Measures `tmux list-panes -a`, as a script would run it.
    pub(super) fn list(&self) -> Result<Duration> {
        let ran = self.external(&["list-panes", "-a"])?;
        Ok(ran.ended - ran.started)
    }

    /// Kills a session of the pool with tmux.
    pub(super) fn kill(&mut self) -> Result<Option<Sample>> {
        let victim = self.ours.pop_front().context("no session left")?;
        let ran = self.external(&["kill-session", "-t", &victim.tmux.to_string()])?;
        let seen = self.end_of(victim)?;
        Ok(seen.map(|seen| ran.until(&seen)))
    }

    /// Kills the process of a pane of the pool.
    pub(super) fn death(&mut self) -> Result<Option<Sample>> {
        let victim = self.ours.pop_front().context("no session left")?;
        let init = Handle::open(victim.init)?.context("the process of a pane has ended")?;
        let killed = Instant::now();
        init.signal(Signal::SIGKILL)?;
        let seen = self.end_of(victim)?;
        Ok(seen.map(|seen| seen.at.saturating_duration_since(killed).into()))
    }

    /// Renames a session of the pool with tmux.
    pub(super) fn rename(&mut self) -> Result<Option<Sample>> {
        self.made += 1;
        let (id, name) = (self.steady.id, format!("renamed-{}", self.made));
        let ran = self.external(&["rename-session", "-t", &self.steady.tmux.to_string(), &name])?;
        let is_it = |event: &Event| match event {
            Event::SessionRenamed { session, name: new } => *session == id && new.as_str() == name,
            _ => false,
        };
        Ok(self.subscriber.wait(is_it)?.map(|seen| ran.until(&seen)))
    }

    /// Creates a session with tmux.
    pub(super) fn new_foreign(&mut self) -> Result<Option<Sample>> {
        self.made += 1;
        let name = format!("n{}", self.made);
        let ran = self.make(&name)?;
        let seen = self
            .subscriber
            .wait(|event| matches!(event, Event::ForeignSeen { name: new, .. } if *new == name))?;
        if let Some(Event::ForeignSeen { tmux, .. }) = seen.as_ref().map(|seen| &seen.event) {
            self.foreign.push_back(*tmux);
        }
        Ok(seen.map(|seen| ran.until(&seen)))
    }

    /// Kills a foreign session with tmux.
    pub(super) fn kill_foreign(&mut self) -> Result<Option<Sample>> {
        let victim = self.foreign.pop_front().context("no foreign session left")?;
        let ran = self.external(&["kill-session", "-t", &victim.to_string()])?;
        let seen = self
            .subscriber
            .wait(|event| matches!(event, Event::ForeignGone { tmux, .. } if *tmux == victim))?;
        Ok(seen.map(|seen| ran.until(&seen)))
    }

    /// Creates a session by a command of its own.
    pub(super) fn make(&self, name: &str) -> Result<Ran> {
        self.external(&["new-session", "-d", "-s", name, "exec sleep 100000"])
    }

    /// Waits for the first event of a session's end and for its completion, and replaces the session.
    fn end_of(&mut self, victim: Ours) -> Result<Option<Seen>> {
        let is_final = |event: &Event| match event {
            Event::SessionStopped { session, .. } | Event::SessionLost { session, .. } => {
                *session == victim.id
            }
            _ => false,
        };
        let is_first = |event: &Event| {
            matches!(event, Event::SessionDraining { session, .. } if *session == victim.id)
                || is_final(event)
        };
        let first = self.subscriber.wait(is_first)?;
        if first.as_ref().is_some_and(|seen| !is_final(&seen.event)) {
            let over = self.subscriber.wait(is_final)?;
            over.with_context(|| format!("{} never stopped", victim.id))?;
        }
        self.replace()?;
        Ok(first)
    }

    fn replace(&mut self) -> Result<()> {
        interrupt::check()?;
        self.made += 1;
        let name = format!("s{}", self.made);
        self.ours.push_back(create(self.pool, &mut self.client, &name)?);
        Ok(())
    }

    fn external(&self, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Result<Ran> {
        let mut command = self.pool.tmux();
        command.args(arguments).stdout(Stdio::null());
        let started = Instant::now();
        let status = command.status().context("tmux")?;
        let ended = Instant::now();
        ensure!(status.success(), "{command:?}: {status}");
        Ok(Ran { started, ended })
    }
}

fn create(pool: &Pool, client: &mut Client, name: &str) -> Result<Ours> {
    pool.create(name)?;
    let session = client.session(Request::Show(SessionRef(name.to_owned())))?;
    let run = session.incarnation.context("a new session without an incarnation")?;
    let (tmux, init) = run.session.zip(run.init).context("a new session without a pane")?;
    Ok(Ours { id: session.id, tmux, init })
}

/// Returns the processes involved, if all of them run.
fn parties(status: &Status) -> Result<Option<Parties>> {
    let watcher = status.components.iter().find(|component| component.name == "tmux-watch");
    let watcher = watcher.and_then(|component| component.pid).map(process::identity::identify).transpose()?;
    let known = watcher.flatten().zip(status.tmux.server);
    Ok(known.map(|(watcher, server)| Parties::new([watcher, status.process, server.process])))
}

/// Returns the names of `count` sessions created one by one.
pub(super) fn names(count: usize) -> BTreeSet<String> {
    (0..count).map(|n| format!("storm{n}")).collect()
}
