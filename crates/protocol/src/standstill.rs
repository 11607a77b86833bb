//! Lanes that stand still. A lane is all messages of one kind for one session.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::message::PROMPT;
use crate::text::Name;
use crate::time::Timestamp;

/// A lane of which no message moves: none is claimed, typed or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standstill {
    /// The time since which nothing moves.
    pub since: Timestamp,
    /// Number of its messages that are not final.
    pub waiting: u64,
    /// The reason.
    pub reason: StuckReason,
}

/// Why a lane stands still. Its sentence is its [`Display`](fmt::Display).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StuckReason {
    /// No worker is registered for the kind.
    NoWorker,
    /// Workers are registered for the kind and claim nothing.
    NoClaim,
    /// The next prompt is not typed, for this reason.
    PromptWaits(String),
    /// The circuit breaker of the kind stays open.
    BreakerOpen,
    /// tmux does not tell whether a prompt was typed.
    Typing,
    /// A prompt was typed, and nothing confirms it.
    Unconfirmed,
    /// A message is in doubt.
    InDoubt,
    /// A worker that was silent for longer than its lease has not ended.
    Revoking,
    /// The worker of the pool with this name works them, and was stopped, or failed too often.
    WorkerOff(String),
}

impl StuckReason {
    /// Returns the name for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoWorker => "no_worker",
            Self::NoClaim => "no_claim",
            Self::PromptWaits(_) => "prompt_waits",
            Self::BreakerOpen => "breaker_open",
            Self::Typing => "typing",
            Self::Unconfirmed => "unconfirmed",
            Self::InDoubt => "in_doubt",
            Self::Revoking => "revoking",
            Self::WorkerOff(_) => "worker_off",
        }
    }

    /// Returns the command that goes on from here.
    pub fn next_command(&self, session: &str, kind: &str) -> String {
        match self {
            Self::NoWorker => format!("poolctl work {session} --kind {kind} -- …"),
            Self::NoClaim => format!("poolctl generators {session}"),
            Self::Revoking => "poolctl reap --dry-run".to_owned(),
            Self::PromptWaits(_) => format!("poolctl show {session}"),
            Self::BreakerOpen => format!("poolctl queue retry {session} --kind {kind}"),
            Self::WorkerOff(worker) => format!("poolctl worker start {worker}"),
            Self::Typing | Self::Unconfirmed | Self::InDoubt => format!("poolctl queue ls {session}"),
        }
    }
}

impl fmt::Display for StuckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NoWorker => "no worker is registered for them",
            Self::NoClaim => "workers are registered for them, and none claims anything",
            Self::PromptWaits(why) => why,
            Self::BreakerOpen => "several failed in a row, and they are held back",
            Self::Typing => "tmux does not tell whether one was typed",
            Self::Unconfirmed => "one was typed, and nothing confirms it",
            Self::InDoubt => "one is in doubt",
            Self::Revoking => "a worker that was silent for too long is not proved gone yet",
            Self::WorkerOff(worker) => return write!(f, "worker {worker} was stopped, or failed too often"),
        };
        f.write_str(text)
    }
}

/// The reason for which a lane counts as stuck no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnstuckReason {
    /// A message of it was claimed, typed, or became final.
    Moved,
    /// It has no messages any more.
    Empty,
    /// Its messages wait on purpose: their session does not run, a person holds its lock, the next attempt
    /// has a time, or the configuration asks for less.
    Excused,
}

/// A lane that has stood still for too long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckLane {
    /// The session.
    pub session: SessionId,
    /// The session's name.
    pub name: Name,
    /// The kind of its messages.
    pub kind: String,
    /// The standstill of the lane.
    pub standstill: Standstill,
}

impl StuckLane {
    /// Returns a sentence for people: how many wait, for how long, and why. `age` is the time since it stands
    /// still.
    pub fn describe(&self, age: Duration) -> String {
        let Self { name, kind, standstill: Standstill { waiting, reason, .. }, .. } = self;
        let (noun, stand) = if *waiting == 1 { ("message", "stands") } else { ("messages", "stand") };
        let what = match kind.as_str() {
            PROMPT => noun.replace("message", "prompt"),
            kind => format!("{noun} of kind {kind}"),
        };
        let long = match age.as_secs() {
            seconds @ 0..60 => format!("{seconds} s"),
            seconds => format!("{} min", seconds / 60),
        };
        let name = name.for_people();
        format!("{waiting} {what} for {name} {stand} still for {long}: {reason}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_lane_is_a_sentence_and_a_next_command() {
        let lane = |kind: &str, waiting, reason| StuckLane {
            session: SessionId(1),
            name: "web".parse().unwrap(),
            kind: kind.to_owned(),
            standstill: Standstill { since: Timestamp(1), waiting, reason },
        };
        let one = lane("build", 1, StuckReason::NoWorker);
        let text =
            "1 message of kind build for web stands still for 12 min: no worker is registered for them";
        assert_eq!(one.describe(Duration::from_secs(12 * 60 + 59)), text);
        let reason = &one.standstill.reason;
        assert_eq!(reason.next_command("web", "build"), "poolctl work web --kind build -- …");
        let prompts = lane(PROMPT, 2, StuckReason::PromptWaits("it is in copy mode".to_owned()));
        assert_eq!(
            prompts.describe(Duration::from_secs(59)),
            "2 prompts for web stand still for 59 s: it is in copy mode"
        );
        let off = StuckReason::WorkerOff("w".to_owned());
        assert_eq!(
            (off.code(), off.next_command("web", "a").as_str()),
            ("worker_off", "poolctl worker start w")
        );
    }
}
