//! The agent's own record of a conversation: Claude Code's `~/.claude/projects/…/ID.jsonl`, Codex's rollout file, and Gemini
//! CLI's `~/.gemini/tmp/…/chats/session-….jsonl`; of Aider its history of prompts.
//! Read is its last piece, which may begin in the middle of a line; what is not understood is skipped.

mod aider;
mod claude;
mod codex;
mod gemini;

use std::time::UNIX_EPOCH;

use protocol::time::{Timestamp, millis};
use serde_json::Value;

use crate::kind::Adapter;

/// Finds in the output of an agent that resumes a conversation that there is none: Claude Code 2.1.197, Codex 0.169.0,
/// OpenCode 1.18.33.
#[must_use]
pub fn says_missing(adapter: Adapter, output: &[u8]) -> bool {
    let words: &[u8] = match adapter {
        Adapter::Claude => b"No conversation found",
        Adapter::Codex => b"no rollout found",
        Adapter::Opencode => b"Session not found",
        Adapter::Gemini | Adapter::Aider | Adapter::None => return false,
    };
    output.windows(words.len()).any(|window| window.eq_ignore_ascii_case(words))
}

/// Something that was said to the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The text as the agent took it.
    pub text: String,
    /// When.
    pub at: Option<Timestamp>,
    /// It waits for the running turn to end; it is told of again when it is taken up.
    pub queued: bool,
}

/// A usage limit that was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Until when, where the record says so.
    pub until: Option<Timestamp>,
    /// The agent's own words.
    pub text: String,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With an answer.
    Done,
    /// Somebody interrupted it.
    Interrupted,
    /// At a usage limit.
    Limited(Limit),
    /// At another error, in the agent's own words.
    Failed(String),
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// How.
    pub how: Ending,
    /// When.
    pub at: Option<Timestamp>,
    /// Which turn, where the record says so: Codex's does.
    pub turn: Option<String>,
}

/// What one line of a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// A prompt.
    Said(Said),
    /// The agent answers, or begins to.
    Works,
    /// The turn ended.
    Over(End),
    /// A turn ended; a line before it says how, if not well.
    Closed(Option<Timestamp>),
}

/// What was said to the agent, oldest first.
#[must_use]
pub fn prompts(adapter: Adapter, tail: &[u8]) -> Vec<Said> {
    if adapter == Adapter::Aider {
        return aider::prompts(tail);
    }
    let entries = lines(tail).filter_map(|line| entry(adapter, &line));
    let said = entries.filter_map(|entry| if let Entry::Said(said) = entry { Some(said) } else { None });
    said.collect()
}

/// The end of the newest turn; nothing while it goes on. A prompt that only waits for its turn begins none.
#[must_use]
pub fn ended(adapter: Adapter, tail: &[u8]) -> Option<End> {
    let mut end = newest_end(adapter, tail)?;
    if let Ending::Limited(limit) = &mut end.how
        && adapter == Adapter::Codex
    {
        limit.until = limit.until.or_else(|| lines(tail).rev().find_map(|line| codex::resets(&line)));
    }
    Some(end)
}

fn newest_end(adapter: Adapter, tail: &[u8]) -> Option<End> {
    let entries = lines(tail).rev().filter_map(|line| entry(adapter, &line));
    let mut entries = entries.filter(|entry| !matches!(entry, Entry::Said(Said { queued: true, .. })));
    match entries.next()? {
        Entry::Over(end) => Some(end),
        Entry::Closed(at) => match entries.next() {
            Some(Entry::Over(end)) => Some(end),
            _ => Some(End { how: Ending::Done, at, turn: None }),
        },
        Entry::Said(_) | Entry::Works => None,
    }
}

/// When the newest turn was interrupted; nothing where it was not.
#[must_use]
pub fn interrupted(adapter: Adapter, tail: &[u8]) -> Option<Timestamp> {
    ended(adapter, tail).filter(|end| end.how == Ending::Interrupted)?.at
}

/// The usage limit at which the newest turn ended; nothing where it did not.
#[must_use]
pub fn limit(adapter: Adapter, tail: &[u8]) -> Option<Limit> {
    match ended(adapter, tail)?.how {
        Ending::Limited(limit) => Some(limit),
        _ => None,
    }
}

/// The tokens that the conversation has come to: what the newest answer was given and what it wrote.
#[must_use]
pub fn tokens(adapter: Adapter, tail: &[u8]) -> Option<u64> {
    let of = match adapter {
        Adapter::Claude => claude::tokens,
        Adapter::Codex => codex::tokens,
        Adapter::Gemini => gemini::tokens,
        Adapter::Opencode | Adapter::Aider | Adapter::None => return None,
    };
    lines(tail).rev().find_map(|line| of(&line))
}

fn entry(adapter: Adapter, line: &Value) -> Option<Entry> {
    match adapter {
        Adapter::Claude => claude::entry(line),
        Adapter::Codex => codex::entry(line),
        Adapter::Gemini => gemini::entry(line),
        Adapter::Opencode | Adapter::Aider | Adapter::None => None,
    }
}

/// The lines that are whole.
fn lines(tail: &[u8]) -> impl DoubleEndedIterator<Item = Value> + '_ {
    tail.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// A time of RFC 3339.
fn time(line: &Value) -> Option<Timestamp> {
    let at = humantime::parse_rfc3339(line.get("timestamp")?.as_str()?).ok()?;
    at.duration_since(UNIX_EPOCH).ok().map(|since| Timestamp(millis(since)))
}
