//! Lines of Claude Code's record (2.1.197).

use serde_json::Value;

use super::{End, Ending, Entry, Limit, Said, time};
use crate::payload::resets;

/// How the line begins that stands for an interruption.
const INTERRUPTED: &str = "[Request interrupted by user";

/// How lines begin that stand for commands and their output, and were said to nobody.
const COMMANDS: [&str; 4] = ["<command-", "<local-command-", "<bash-", "<task-notification>"];

/// What a line says.
pub(super) fn entry(line: &Value) -> Option<Entry> {
    let told = |name: &str| line.get(name).and_then(Value::as_bool) == Some(true);
    if told("isSidechain") || told("isMeta") || told("isCompactSummary") {
        return None;
    }
    match line.get("type")?.as_str()? {
        "user" => user(line),
        "assistant" if told("isApiErrorMessage") => Some(over(line, failure(line))),
        "assistant" => Some(Entry::Works),
        "system" => (line.get("subtype")?.as_str()? == "turn_duration").then(|| Entry::Closed(time(line))),
        "attachment" => taken(line),
        "queue-operation" if line.get("operation")?.as_str()? == "enqueue" => {
            let text = line.get("content")?.as_str()?.to_owned();
            Some(Entry::Said(Said { text, at: time(line), queued: true }))
        }
        _ => None,
    }
}

/// A prompt that waited and was taken into the running turn, between two of its tools: no hook tells of that.
fn taken(line: &Value) -> Option<Entry> {
    let attachment = line.get("attachment")?;
    let told = |name: &str, word: &str| attachment.get(name).and_then(Value::as_str) == Some(word);
    let text = attachment.get("prompt")?.as_str()?.to_owned();
    let is_prompt = told("type", "queued_command") && told("commandMode", "prompt");
    is_prompt.then(|| Entry::Said(Said { text, at: time(line), queued: false }))
}

fn over(line: &Value, how: Ending) -> Entry {
    Entry::Over(End { how, at: time(line), turn: None })
}

/// What the user's side of the conversation says: a prompt, an interruption; not the results of tools.
fn user(line: &Value) -> Option<Entry> {
    let content = line.get("message")?.get("content")?;
    let text = text(content)?;
    if content.is_array() && text.starts_with(INTERRUPTED) {
        return Some(over(line, Ending::Interrupted));
    }
    let said = || Entry::Said(Said { text: text.clone(), at: time(line), queued: false });
    (!COMMANDS.iter().any(|start| text.starts_with(start))).then(said)
}

/// The text of a message.
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

/// What an error of the model's service is. When a limit ends is told in words only, as it was then.
fn failure(line: &Value) -> Ending {
    let words = line.get("message").and_then(|message| text(message.get("content")?)).unwrap_or_default();
    if line.get("error").and_then(Value::as_str) == Some("rate_limit") {
        let until = time(line).and_then(|then| resets(&words, then));
        Ending::Limited(Limit { until, text: words })
    } else {
        Ending::Failed(words)
    }
}

/// What an answer was given and what it wrote.
pub(super) fn tokens(line: &Value) -> Option<u64> {
    entry(line).filter(|entry| *entry == Entry::Works)?;
    let usage = line.get("message")?.get("usage")?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let read = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let all = read.iter().fold(count("output_tokens"), |sum, name| sum.saturating_add(count(name)));
    (all > 0).then_some(all)
}
