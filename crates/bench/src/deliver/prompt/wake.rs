//! Time from a wake until the agent has its first prompt: by the pool, which starts it for the message, and
//! by hand, where it is started and typed to as soon as its composer is drawn.

use std::time::{Duration, Instant};

use agents::Adapter;
use agents::screen::{Composer, Screen, composer};
use anyhow::{Context, Result, ensure};
use protocol::request::{Park, Restore};
use protocol::{ActivityState, Lifecycle, MessageState, Request};

use super::{Chat, Way};
use crate::deliver::agents::{Agents, Kind};
use crate::deliver::hooks::tells;
use crate::order::order;
use crate::pool::Pool;
use crate::stats::Times;
use crate::{interrupt, report};

/// Time limit of a start or an end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval of reading a screen.
const LOOK: Duration = Duration::from_millis(20);

/// All measurements of one agent, in the order of [`Way::ALL`].
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) times: [Times; 2],
    /// Number of wakes in which the agent did not get the prompt.
    pub(crate) lost: [usize; 2],
}

/// Wakes each agent this many times in each way.
pub(crate) fn measure(pool: &Pool, agents: &Agents, runs: usize) -> Result<Vec<Row>> {
    let real = agents.kinds.iter().copied().filter(|kind| adapter(*kind).is_some());
    real.map(|kind| {
        report(&format!("{runs} wakes of {}, by hand and by the pool, in turn", kind.as_str()));
        let mut chat = Chat::begin(pool, agents, (kind, kind.as_str()))?;
        chat.is_ready()?;
        let mut row = Row { kind, times: Default::default(), lost: [0; 2] };
        for run in 0..runs {
            for at in order(run, Way::ALL.len()) {
                chat.park()?;
                match chat.wake(kind, Way::ALL[at])? {
                    Some(took) => row.times[at].push(took),
                    None => row.lost[at] += 1,
                }
            }
        }
        Ok(row)
    })
    .collect()
}

/// Returns the adapter that reads the agent's screen; `None` for the script, which has no screen.
fn adapter(kind: Kind) -> Option<Adapter> {
    Some(Adapter::of(kind.as_str())).filter(|adapter| adapter.knows_screen())
}

impl Chat<'_> {
    /// Parks the agent, which resumes its conversation later.
    fn park(&mut self) -> Result<()> {
        interrupt::check()?;
        let deadline = Instant::now() + PATIENCE;
        let park = Park { session: self.session.into(), force: true, grace_ms: None };
        while self.client.session(Request::Park(park.clone()))?.lifecycle != Lifecycle::Parked {
            ensure!(Instant::now() < deadline, "the session is not parked");
            interrupt::sleep(LOOK)?;
        }
        self.subscriber.quiet(super::QUIET)
    }

    /// Measures the time until the agent has a prompt; `None` if it does not report one.
    fn wake(&mut self, kind: Kind, way: Way) -> Result<Option<Duration>> {
        let text = self.text();
        let began = Instant::now();
        let taken = match way {
            Way::Pool => {
                let id = self.send(&text)?;
                let accepted = self.reaches(id, MessageState::Accepted)?;
                self.reaches(id, MessageState::Done)?;
                accepted
            }
            Way::Hand => {
                let session = self.client.session(Request::Restore(Restore {
                    session: Some(self.session.into()),
                    wait_slot_ms: None,
                }))?;
                self.pane = session.incarnation.and_then(|run| run.pane).context("no pane")?;
                self.await_composer(adapter(kind).unwrap_or_default())?;
                self.type_in(&text)?;
                let hooked = |state| self.subscriber.wait(|event| tells(event, (self.session, state)));
                let begun = hooked(ActivityState::Busy)?;
                hooked(ActivityState::Idle)?;
                begun
            }
        };
        Ok(taken.map(|seen| seen.at - began))
    }

    /// Waits until the composer is drawn and empty.
    fn await_composer(&self, adapter: Adapter) -> Result<()> {
        let (deadline, pane) = (Instant::now() + PATIENCE, self.pane.to_string());
        loop {
            ensure!(Instant::now() < deadline, "the composer is not drawn");
            let cursor = ["display-message", "-p", "-t", &pane, "#{cursor_x} #{cursor_y}", ";"];
            let mut look = self.pool.tmux();
            let seen = look.args(cursor).args(["capture-pane", "-p", "-e", "-t", &pane]).output()?;
            let text = String::from_utf8_lossy(&seen.stdout).into_owned();
            let (cursor, screen) = text.split_once('\n').unwrap_or_default();
            let cursor = cursor.split_once(' ').and_then(|(x, y)| Some((x.parse().ok()?, y.parse().ok()?)));
            let is_free = |at| composer(adapter, &Screen::new(screen.as_bytes()), at) == Composer::Empty;
            if cursor.is_some_and(is_free) {
                return Ok(());
            }
            interrupt::sleep(LOOK)?;
        }
    }
}
