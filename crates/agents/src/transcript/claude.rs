//! Lines of Claude Code's record (2.1.197).

use serde_json::Value;

use super::{Entry, RecordedPrompt, TurnEnd, TurnOutcome, UsageLimit, time};
use crate::payload::limit_reset;

/// The beginning of the user message that stands for an interruption.
const INTERRUPTED: &str = "[Request interrupted by user";

/// The beginnings of user messages that stand for commands and their output.
const COMMANDS: [&str; 4] = ["<command-", "<local-command-", "<bash-", "<task-notification>"];

/// Parses a line.
pub(super) fn entry(line: &Value) -> Option<Entry> {
    let is_true = |name: &str| line.get(name).and_then(Value::as_bool) == Some(true);
    if is_true("isSidechain") || is_true("isMeta") || is_true("isCompactSummary") {
        return None;
    }
    match line.get("type")?.as_str()? {
        "user" => user(line),
        "assistant" if is_true("isApiErrorMessage") => Some(turn_end(line, failure(line))),
        "assistant" => Some(Entry::Working),
        "system" => (line.get("subtype")?.as_str()? == "turn_duration").then(|| Entry::Closed(time(line))),
        "attachment" => attached_prompt(line),
        "queue-operation" if line.get("operation")?.as_str()? == "enqueue" => {
            let text = line.get("content")?.as_str()?.to_owned();
            Some(Entry::Prompt(RecordedPrompt { text, at: time(line), queued: true }))
        }
        _ => None,
    }
}

/// Parses a queued prompt that the running turn took up between two tools; no hook reports that.
fn attached_prompt(line: &Value) -> Option<Entry> {
    let attachment = line.get("attachment")?;
    let has = |name: &str, word: &str| attachment.get(name).and_then(Value::as_str) == Some(word);
    let text = attachment.get("prompt")?.as_str()?.to_owned();
    let is_prompt = has("type", "queued_command") && has("commandMode", "prompt");
    is_prompt.then(|| Entry::Prompt(RecordedPrompt { text, at: time(line), queued: false }))
}

fn turn_end(line: &Value, outcome: TurnOutcome) -> Entry {
    Entry::TurnEnd(TurnEnd { outcome, at: time(line), turn: None })
}

/// Parses a message of the user's side: a prompt or an interruption, but not the result of a tool.
fn user(line: &Value) -> Option<Entry> {
    let content = line.get("message")?.get("content")?;
    let text = text(content)?;
    if content.is_array() && text.starts_with(INTERRUPTED) {
        return Some(turn_end(line, TurnOutcome::Interrupted));
    }
    let is_command = COMMANDS.iter().any(|start| text.starts_with(start));
    (!is_command).then(|| Entry::Prompt(RecordedPrompt { text, at: time(line), queued: false }))
}

/// Returns the text of a message.
fn text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<_> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}

/// Classifies an error of the model's service. The end of a limit is only in its text, relative to the time
/// of the line.
fn failure(line: &Value) -> TurnOutcome {
    let text = line.get("message").and_then(|message| text(message.get("content")?)).unwrap_or_default();
    if line.get("error").and_then(Value::as_str) == Some("rate_limit") {
        let until = time(line).and_then(|at| limit_reset(&text, at));
        TurnOutcome::Limited(UsageLimit { until, text })
    } else {
        TurnOutcome::Failed(text)
    }
}

/// Returns the input and output tokens of an answer.
pub(super) fn tokens(line: &Value) -> Option<u64> {
    entry(line).filter(|entry| *entry == Entry::Working)?;
    let usage = line.get("message")?.get("usage")?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let input = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let all = input.iter().fold(count("output_tokens"), |sum, name| sum.saturating_add(count(name)));
    (all > 0).then_some(all)
}
