//! Sessions that are ended together, and how far the pool has come with the last of them.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::request::{Kill, New, Remove};
use protocol::{Event, Lifecycle, ProcId, Request, Response, SessionId, SessionRef};

use super::Sample;
use super::trees::{Program, held};
use crate::create::many;
use crate::floors::Client;
use crate::pool::{self, Pool};
use crate::subscriber::Subscriber;

/// The events on the way, in their order.
pub(super) const STEPS: [&str; 4] = ["draining", "leased", "verdict", "stopped"];
/// How many are made, or removed, at a time.
const AT_A_TIME: usize = 8;

/// Sessions that run, all their processes.
pub(super) struct Crowd<'a> {
    pool: &'a Pool,
    names: Vec<String>,
    sessions: BTreeSet<SessionId>,
    programs: Vec<Handle>,
}

/// The names of so many sessions.
pub(super) fn names(stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{stem}-{n}")).collect()
}

/// Makes sessions of these names; who they are and what runs in them, in any order.
///
/// # Errors
/// One is not made, or does not run.
pub(super) fn make(pool: &Pool, names: &[String], program: Program) -> Result<Vec<(SessionId, ProcId)>> {
    let made = std::sync::Mutex::new(Vec::new());
    many(names, AT_A_TIME, |name| {
        let command = program.words().into_iter().map(Into::into).collect();
        let new = New { name: Some(name.to_owned()), command, ..New::default() };
        let Response::Session(view) = Client::connect(pool)?.call(Request::New(Box::new(new)))? else {
            anyhow::bail!("poold answers something else than a session");
        };
        ensure!(view.session.lifecycle == Lifecycle::Live, "{name} is {:?}", view.session.lifecycle);
        let run = view.session.incarnation.context("a session without an incarnation")?;
        let agent = run.agent.context("a session without a program")?;
        made.lock().map_err(|_| anyhow!("a thread panicked"))?.push((view.session.id, agent));
        Ok(())
    })?;
    made.into_inner().map_err(|_| anyhow!("a thread panicked"))
}

impl<'a> Crowd<'a> {
    /// Makes so many.
    ///
    /// # Errors
    /// One is not made, or does not run.
    pub(super) fn make(pool: &'a Pool, count: usize, program: Program) -> Result<Self> {
        let names = names("end", count);
        let (sessions, programs): (BTreeSet<_>, Vec<_>) = make(pool, &names, program)?.into_iter().unzip();
        // Whatever each has started is there.
        drop(program.hold(&programs)?);
        let programs = programs.into_iter().map(held).collect::<Result<_>>()?;
        Ok(Self { pool, names, sessions, programs })
    }

    /// From the first request to end them until the last answer, that it is done.
    ///
    /// # Errors
    /// One is refused or fails.
    pub(super) fn kill(&self) -> Result<Sample> {
        let subscriber = Subscriber::connect(&self.pool.socket(), pool::NAME)?;
        let clients = self.names.iter().map(|_| Client::connect(self.pool)).collect::<Result<Vec<_>>>()?;
        let together = Barrier::new(clients.len());
        let spans = thread::scope(|scope| {
            let asked: Vec<_> = clients
                .into_iter()
                .zip(&self.names)
                .map(|(client, name)| scope.spawn(|| kill(client, name, &together)))
                .collect();
            asked
                .into_iter()
                .map(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?)
                .collect::<Result<Vec<_>>>()
        })?;
        let began = spans.iter().map(|span| span.0).min().context("no session")?;
        let ended = spans.iter().map(|span| span.1).max().context("no session")?;
        let steps = self.steps(&subscriber, began)?;
        Ok(Sample { whole: ended.saturating_duration_since(began), steps })
    }

    /// From the first signal that ends a program, and nothing else, until the last slot is free.
    ///
    /// # Errors
    /// One does not become free.
    pub(super) fn end_programs(&self) -> Result<Sample> {
        let subscriber = Subscriber::connect(&self.pool.socket(), pool::NAME)?;
        let began = Instant::now();
        for program in &self.programs {
            program.signal(Signal::SIGKILL)?;
        }
        let steps = self.steps(&subscriber, began)?;
        Ok(Sample { whole: steps[STEPS.len() - 1], steps })
    }

    /// When the last of them had come to each step.
    fn steps(&self, subscriber: &Subscriber, began: Instant) -> Result<[Duration; STEPS.len()]> {
        let mut missing: [BTreeSet<SessionId>; STEPS.len()] = std::array::from_fn(|_| self.sessions.clone());
        let mut at = [Duration::ZERO; STEPS.len()];
        while !missing.iter().all(BTreeSet::is_empty) {
            let seen = subscriber.wait(|event| step(event).is_some())?.context("an event does not come")?;
            let Some((step, session)) = step(&seen.event) else { continue };
            if missing[step].remove(&session) {
                at[step] = at[step].max(seen.at.saturating_duration_since(began));
            }
        }
        Ok(at)
    }

    /// Removes them.
    ///
    /// # Errors
    /// One stays.
    pub(super) fn remove(&self) -> Result<()> {
        let remove = |name: &str| {
            let session = SessionRef(name.to_owned());
            let remove = Remove { session, keep_tmux: false, force: true, purge: true, archive: false };
            Client::connect(self.pool)?.call(Request::Remove(remove)).map(drop)
        };
        many(&self.names, AT_A_TIME, remove).map(drop)
    }
}

/// Ends a session, along with others. From when until when that took.
fn kill(mut client: Client, name: &str, together: &Barrier) -> Result<(Instant, Instant)> {
    let kill = Kill { session: SessionRef(name.to_owned()), grace_ms: None };
    together.wait();
    let began = Instant::now();
    client.call(Request::Kill(kill))?;
    Ok((began, Instant::now()))
}

/// The place of an event in [`STEPS`], and whose it is.
fn step(event: &Event) -> Option<(usize, SessionId)> {
    match event {
        Event::SessionDraining { session, .. } => Some((0, *session)),
        Event::ReapStarted { session, .. } => Some((1, *session)),
        Event::ReapFinished { session, .. } => Some((2, *session)),
        Event::SessionStopped { session, .. } => Some((3, *session)),
        _ => None,
    }
}
