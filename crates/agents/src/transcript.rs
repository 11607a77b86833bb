//! Reads the agent's own record of a conversation: Claude Code's `~/.claude/projects/…/ID.jsonl`, Codex's
//! rollout file, Gemini CLI's `~/.gemini/tmp/…/chats/session-….jsonl`, Aider's history of prompts. The input
//! is the end of the file, which may begin in the middle of a line; lines that are not understood are
//! skipped.

mod aider;
mod claude;
mod codex;
mod gemini;

use protocol::Timestamp;
use serde_json::Value;

use crate::adapter::Adapter;
use crate::payload::rfc3339;

/// True if the output of an agent says that the conversation to resume does not exist: Claude Code 2.1.197,
/// Codex 0.169.0, OpenCode 1.18.33, Gemini CLI 0.61.0, for which a conversation without a prompt is none.
pub fn says_conversation_missing(adapter: Adapter, output: &[u8]) -> bool {
    let sentences: &[&[u8]] = match adapter {
        Adapter::Claude => &[b"No conversation found"],
        Adapter::Codex => &[b"no rollout found"],
        Adapter::Opencode => &[b"Session not found"],
        Adapter::Gemini => {
            &[b"No previous sessions found for this project", b"resuming session: Invalid session identifier"]
        }
        Adapter::Aider | Adapter::None => &[],
    };
    let says = |words: &[u8]| output.windows(words.len()).any(|window| window.eq_ignore_ascii_case(words));
    sentences.iter().any(|words| says(words))
}

/// A prompt in the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedPrompt {
    /// The text as the agent took it.
    pub text: String,
    /// The time of the entry; Aider's record has none.
    pub at: Option<Timestamp>,
    /// True if the prompt waits for the end of the running turn. The record has a second entry once the agent
    /// takes it up.
    pub queued: bool,
}

/// A usage limit that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageLimit {
    /// The end of the limit, if the record tells it.
    pub until: Option<Timestamp>,
    /// The agent's message.
    pub text: String,
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The agent answered.
    Done,
    /// The user interrupted the turn.
    Interrupted,
    /// The turn failed at a usage limit.
    Limited(UsageLimit),
    /// The turn failed at another error; its text is the agent's message.
    Failed(String),
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// The outcome.
    pub outcome: TurnOutcome,
    /// The time of the entry.
    pub at: Option<Timestamp>,
    /// The turn's id; only Codex records it.
    pub turn: Option<String>,
}

/// The meaning of one line of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    /// A prompt.
    Prompt(RecordedPrompt),
    /// The agent answers or begins to answer.
    Working,
    /// A turn ended.
    TurnEnd(TurnEnd),
    /// A turn ended, successfully unless the entry before it is a [`TurnEnd`].
    Closed(Option<Timestamp>),
}

/// Returns the prompts, oldest first.
pub fn prompts(adapter: Adapter, tail: &[u8]) -> Vec<RecordedPrompt> {
    if adapter == Adapter::Aider {
        return aider::prompts(tail);
    }
    let entries = lines(tail).filter_map(|line| entry(adapter, &line));
    entries.filter_map(|entry| if let Entry::Prompt(prompt) = entry { Some(prompt) } else { None }).collect()
}

/// Returns the end of the newest turn; none while the turn is running. A queued prompt does not begin a turn.
pub fn turn_end(adapter: Adapter, tail: &[u8]) -> Option<TurnEnd> {
    let mut end = newest_end(adapter, tail)?;
    if let TurnOutcome::Limited(limit) = &mut end.outcome
        && adapter == Adapter::Codex
    {
        limit.until = limit.until.or_else(|| lines(tail).rev().find_map(|line| codex::limit_reset(&line)));
    }
    Some(end)
}

fn newest_end(adapter: Adapter, tail: &[u8]) -> Option<TurnEnd> {
    let entries = lines(tail).rev().filter_map(|line| entry(adapter, &line));
    let is_queued = |entry: &Entry| matches!(entry, Entry::Prompt(RecordedPrompt { queued: true, .. }));
    let mut entries = entries.filter(|entry| !is_queued(entry));
    match entries.next()? {
        Entry::TurnEnd(end) => Some(end),
        Entry::Closed(at) => match entries.next() {
            Some(Entry::TurnEnd(end)) => Some(end),
            _ => Some(TurnEnd { outcome: TurnOutcome::Done, at, turn: None }),
        },
        Entry::Prompt(_) | Entry::Working => None,
    }
}

/// Returns the tokens in the context of the conversation: the input and output of the newest answer.
pub fn tokens(adapter: Adapter, tail: &[u8]) -> Option<u64> {
    let read = match adapter {
        Adapter::Claude => claude::tokens,
        Adapter::Codex => codex::tokens,
        Adapter::Gemini => gemini::tokens,
        Adapter::Opencode | Adapter::Aider | Adapter::None => return None,
    };
    lines(tail).rev().find_map(|line| read(&line))
}

fn entry(adapter: Adapter, line: &Value) -> Option<Entry> {
    match adapter {
        Adapter::Claude => claude::entry(line),
        Adapter::Codex => codex::entry(line),
        Adapter::Gemini => gemini::entry(line),
        Adapter::Opencode | Adapter::Aider | Adapter::None => None,
    }
}

/// Returns the complete lines.
fn lines(tail: &[u8]) -> impl DoubleEndedIterator<Item = Value> + '_ {
    tail.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// Returns the `timestamp` of a line, which is in the form of RFC 3339.
fn time(line: &Value) -> Option<Timestamp> {
    rfc3339(line.get("timestamp")?.as_str()?)
}
