//! Latency of a prompt to an agent: by the pool, and by the same keys typed by hand into the same terminal.
//! The agent's own hooks tell when its turn begins and ends.

pub(super) mod wake;

use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use protocol::request::New;
use protocol::{
    ActivityState, AgentEvent, Event, MessageId, MessageState, OsBytes, PROMPT, PaneId, Response, SessionId,
    Timestamp,
};

use super::agents::{Agents, Kind};
use super::hooks::tells;
use crate::floors::Client;
use crate::order::order;
use crate::pool::{self, Pool};
use crate::queue::poold::message;
use crate::stats::Times;
use crate::subscriber::{Seen, Subscriber};
use crate::{interrupt, report};

/// Prompts before the first that counts.
const WARM_UP: usize = 2;
/// Pause before Enter that agents need, the addition for each byte, and the maximum.
const PAUSE: Duration = Duration::from_millis(150);
const PAUSE_BYTES_PER_SECOND: u32 = 40_000;
const PAUSE_MAX: Duration = Duration::from_millis(750);
/// Time for an agent to finish its first prompt.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Time without an event after which the agent counts as idle.
const QUIET: Duration = Duration::from_millis(250);

/// A way to type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// tmux commands.
    Hand,
    /// A message to the pool.
    Pool,
}

impl Way {
    pub(super) const ALL: [Self; 2] = [Self::Hand, Self::Pool];
}

/// Times of a prompt, from its sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    /// By hand: the start of the agent's prompt hook. By the pool: a subscriber has the event that the
    /// prompt is accepted.
    begun: Duration,
    /// Likewise for the end of the turn.
    over: Duration,
}

/// All measurements of one way to one agent.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) way: Way,
    pub(super) begun: Times,
    pub(super) over: Times,
    /// Number of prompts without an end.
    pub(super) lost: usize,
}

impl Row {
    fn add(&mut self, turn: Option<Turn>) {
        let Some(turn) = turn else {
            self.lost += 1;
            return;
        };
        self.begun.push(turn.begun);
        self.over.push(turn.over);
    }
}

/// Sends this many prompts to each agent in each way.
pub(super) fn measure(pool: &Pool, agents: &Agents, runs: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kind in agents.kinds.iter().copied() {
        report(&format!("{runs} prompts to {}, by hand and by the pool, in turn", kind.as_str()));
        let mut chat = Chat::begin(pool, agents, (kind, kind.as_str()))?;
        chat.is_ready()?;
        let new = |way| Row { kind, way, begun: Times::default(), over: Times::default(), lost: 0 };
        let mut of_kind = Way::ALL.map(new);
        for run in 0..WARM_UP + runs {
            for at in order(run, of_kind.len()) {
                let row = &mut of_kind[at];
                let turn = chat.say(row.way)?;
                if run >= WARM_UP {
                    row.add(turn);
                }
            }
        }
        rows.extend(of_kind);
    }
    Ok(rows)
}

/// A session with an agent.
pub(super) struct Chat<'a> {
    pool: &'a Pool,
    session: SessionId,
    pane: PaneId,
    client: Client,
    subscriber: Subscriber,
    said: usize,
}

impl<'a> Chat<'a> {
    /// Starts the agent.
    pub(super) fn begin(pool: &'a Pool, agents: &Agents, (kind, name): (Kind, &str)) -> Result<Self> {
        let (mut client, subscriber) =
            (Client::connect(pool)?, Subscriber::connect(&pool.socket(), pool::NAME)?);
        let new = New {
            name: Some(name.to_owned()),
            agent: Some(kind.as_str().to_owned()),
            cwd: Some(OsBytes::from(agents.place().into_os_string())),
            pinned: true,
            ..New::default()
        };
        let session = client.start(new)?;
        let pane =
            session.incarnation.as_ref().and_then(|run| run.pane).context("a session without a pane")?;
        Ok(Self { pool, session: session.id, pane, client, subscriber, said: 0 })
    }

    /// Waits until the agent has finished its first prompt, which the pool delivers when it is ready.
    pub(super) fn is_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let text = self.text();
        let id = self.send(&text)?;
        while self.reaches(id, MessageState::Done)?.is_none() {
            interrupt::check()?;
            ensure!(Instant::now() < deadline, "an agent did not take its first prompt");
        }
        Ok(())
    }

    /// Sends a prompt, and waits for the end of its turn. `None` if that does not come.
    fn say(&mut self, way: Way) -> Result<Option<Turn>> {
        interrupt::check()?;
        self.subscriber.quiet(QUIET)?;
        let text = self.text();
        match way {
            Way::Hand => self.by_hand(&text),
            Way::Pool => self.by_pool(&text),
        }
    }

    /// Returns a unique text.
    fn text(&mut self) -> String {
        self.said += 1;
        format!("prompt number {} of the benchmark", self.said)
    }

    fn by_hand(&mut self, text: &str) -> Result<Option<Turn>> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH)?;
        self.type_in(text)?;
        let hooked = |state| {
            let seen = self.subscriber.wait(|event| tells(event, (self.session, state)))?;
            anyhow::Ok(
                seen.and_then(|seen| since(&seen.event))
                    .map(|at| Duration::from_millis(at.0).saturating_sub(began)),
            )
        };
        let begun = hooked(ActivityState::Busy)?;
        let over = hooked(ActivityState::Idle)?;
        Ok(begun.zip(over).map(|(begun, over)| Turn { begun, over }))
    }

    /// Types the text as the pool does: a paste, the pause, Enter.
    pub(super) fn type_in(&self, text: &str) -> Result<()> {
        let pane = self.pane.to_string();
        let mut paste = self.pool.tmux();
        paste.args([
            "load-buffer",
            "-b",
            "bench",
            "-",
            ";",
            "paste-buffer",
            "-p",
            "-r",
            "-d",
            "-b",
            "bench",
            "-t",
            &pane,
        ]);
        let mut child = paste.stdin(Stdio::piped()).spawn().context("tmux")?;
        child.stdin.take().context("a pipe")?.write_all(text.as_bytes())?;
        let pasted = child.wait()?;
        ensure!(pasted.success(), "tmux paste-buffer: {pasted}");
        thread::sleep(pause(text.len()));
        let entered = self.pool.tmux().args(["send-keys", "-t", &pane, "Enter"]).status()?;
        ensure!(entered.success(), "tmux send-keys: {entered}");
        Ok(())
    }

    fn by_pool(&mut self, text: &str) -> Result<Option<Turn>> {
        let began = Instant::now();
        let id = self.send(text)?;
        let begun = self.reaches(id, MessageState::Accepted)?;
        let over = self.reaches(id, MessageState::Done)?;
        let times = begun.zip(over);
        Ok(times.map(|(begun, over)| Turn { begun: begun.at - began, over: over.at - began }))
    }

    pub(super) fn send(&mut self, text: &str) -> Result<MessageId> {
        match self.client.call(message(self.session.into(), PROMPT, text.as_bytes()))? {
            Response::Sent(sent) => Ok(sent.message.id),
            _ => bail!("unexpected reply of poold instead of a message"),
        }
    }

    fn reaches(&self, id: MessageId, state: MessageState) -> Result<Option<Seen>> {
        self.subscriber.wait(|event| match event {
            Event::MessageChanged { id: changed, status, .. } => *changed == id && status.state == state,
            _ => false,
        })
    }
}

/// Pause of the pool before Enter after this many bytes; typing by hand uses it too.
pub(super) fn pause(bytes: usize) -> Duration {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    PAUSE_MAX.min(PAUSE + Duration::from_secs(1) * bytes / PAUSE_BYTES_PER_SECOND)
}

/// Start of the agent's hook, with a resolution of a millisecond.
fn since(event: &Event) -> Option<Timestamp> {
    match event {
        Event::Agent(AgentEvent::ActivityChanged { activity, .. }) => Some(activity.since),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_the_pools_own() {
        for bytes in [0, 40, 20_000, 200_000, u32::MAX] {
            assert_eq!(pause(usize::try_from(bytes).unwrap()), ::pool::prompt::enter_delay(bytes), "{bytes}");
        }
    }
}
