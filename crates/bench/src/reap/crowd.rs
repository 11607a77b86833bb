//! Sessions that are ended concurrently, and the pool's progress with the last of them.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::request::{Kill, New};
use protocol::{Event, ProcId, Request, SessionId, SessionRef};

use super::Sample;
use super::trees::{Program, held};
use crate::create::many;
use crate::floors::Client;
use crate::pool::{self, Pool};
use crate::subscriber::Subscriber;

/// Events of an end, in their order.
pub(super) const STEPS: [&str; 4] = ["draining", "leased", "verdict", "stopped"];
/// Number of sessions created or removed concurrently.
const AT_A_TIME: usize = 8;

/// Running sessions, with all their processes.
pub(super) struct Crowd<'a> {
    pool: &'a Pool,
    names: Vec<String>,
    sessions: BTreeSet<SessionId>,
    programs: Vec<Handle>,
}

/// Returns the names of this many sessions.
pub(super) fn names(stem: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{stem}-{n}")).collect()
}

/// Creates sessions with these names; returns their ids and programs, in any order.
pub(super) fn make(pool: &Pool, names: &[String], program: Program) -> Result<Vec<(SessionId, ProcId)>> {
    let made = std::sync::Mutex::new(Vec::new());
    many(names, AT_A_TIME, |name| {
        let command = program.words().into_iter().map(Into::into).collect();
        let new = New { name: Some(name.to_owned()), command, ..New::default() };
        let session = Client::connect(pool)?.start(new)?;
        let run = session.incarnation.context("a session without an incarnation")?;
        let agent = run.agent.context("a session without a program")?;
        made.lock().map_err(|_| anyhow!("a thread panicked"))?.push((session.id, agent));
        Ok(())
    })?;
    made.into_inner().map_err(|_| anyhow!("a thread panicked"))
}

impl<'a> Crowd<'a> {
    /// Creates this many sessions.
    pub(super) fn make(pool: &'a Pool, count: usize, program: Program) -> Result<Self> {
        let names = names("end", count);
        let (sessions, programs): (BTreeSet<_>, Vec<_>) = make(pool, &names, program)?.into_iter().unzip();
        // Waits until each program has started its children.
        drop(program.hold(&programs)?);
        let programs = programs.into_iter().map(held).collect::<Result<_>>()?;
        Ok(Self { pool, names, sessions, programs })
    }

    /// Measures from the first kill request until the last reply, which confirms the end.
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

    /// Measures from the first signal to a program until the last slot is free.
    pub(super) fn end_programs(&self) -> Result<Sample> {
        let subscriber = Subscriber::connect(&self.pool.socket(), pool::NAME)?;
        let began = Instant::now();
        for program in &self.programs {
            program.signal(Signal::SIGKILL)?;
        }
        let steps = self.steps(&subscriber, began)?;
        Ok(Sample { whole: steps[STEPS.len() - 1], steps })
    }

    /// Returns when the last session reached each step.
    fn steps(&self, subscriber: &Subscriber, began: Instant) -> Result<[Duration; STEPS.len()]> {
        let mut missing: [BTreeSet<SessionId>; STEPS.len()] = std::array::from_fn(|_| self.sessions.clone());
        let mut at = [Duration::ZERO; STEPS.len()];
        while !missing.iter().all(BTreeSet::is_empty) {
            let seen = subscriber.wait(|event| step(event).is_some())?.context("an event did not arrive")?;
            let Some((step, session)) = step(&seen.event) else { continue };
            if missing[step].remove(&session) {
                at[step] = at[step].max(seen.at.saturating_duration_since(began));
            }
        }
        Ok(at)
    }

    /// Removes the sessions.
    pub(super) fn remove(&self) -> Result<()> {
        many(&self.names, AT_A_TIME, |name| Client::connect(self.pool)?.remove(name)).map(drop)
    }
}

/// Kills a session, starting together with the others; returns the start and the end.
fn kill(mut client: Client, name: &str, together: &Barrier) -> Result<(Instant, Instant)> {
    let kill = Kill { session: SessionRef(name.to_owned()), grace_ms: None };
    together.wait();
    let began = Instant::now();
    client.call(Request::Kill(kill))?;
    Ok((began, Instant::now()))
}

/// Returns the index of an event in [`STEPS`], and its session.
fn step(event: &Event) -> Option<(usize, SessionId)> {
    match event {
        Event::SessionDraining { session, .. } => Some((0, *session)),
        Event::ReapStarted { session, .. } => Some((1, *session)),
        Event::ReapFinished { session, .. } => Some((2, *session)),
        Event::SessionStopped { session, .. } => Some((3, *session)),
        _ => None,
    }
}
