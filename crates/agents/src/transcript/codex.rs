//! Lines of Codex's record (0.169.0).

use protocol::Timestamp;
use serde_json::Value;

use super::{Entry, RecordedPrompt, TurnEnd, TurnOutcome, UsageLimit, time};

/// The error code of a usage limit.
const LIMITED: &str = "usage_limit_exceeded";

/// Parses a line.
pub(super) fn entry(line: &Value) -> Option<Entry> {
    let event = event(line)?;
    match event.get("type")?.as_str()? {
        "item_completed" => item(line, event.get("item")?),
        "user_message" => Some(prompt(line, event.get("message")?.as_str()?.to_owned())),
        "agent_message" | "task_started" => Some(Entry::Working),
        "turn_aborted" => Some(turn_end(line, event, TurnOutcome::Interrupted)),
        "task_complete" => {
            let error = event.get("error").filter(|error| !error.is_null());
            Some(turn_end(line, event, error.map_or(TurnOutcome::Done, failure)))
        }
        _ => None,
    }
}

/// Returns the payload of a line that is an event.
fn event(line: &Value) -> Option<&Value> {
    let payload = line.get("payload")?;
    (line.get("type")?.as_str()? == "event_msg").then_some(payload)
}

fn item(line: &Value, item: &Value) -> Option<Entry> {
    match item.get("type")?.as_str()? {
        "UserMessage" => {
            let parts = item.get("content")?.as_array()?;
            let texts: Vec<_> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            Some(prompt(line, texts.join("\n")))
        }
        "AgentMessage" => Some(Entry::Working),
        _ => None,
    }
}

fn prompt(line: &Value, text: String) -> Entry {
    Entry::Prompt(RecordedPrompt { text, at: time(line), queued: false })
}

fn turn_end(line: &Value, event: &Value, outcome: TurnOutcome) -> Entry {
    let turn = event.get("turn_id").and_then(Value::as_str).map(str::to_owned);
    Entry::TurnEnd(TurnEnd { outcome, at: time(line), turn })
}

/// Classifies an error. The end of a limit is in its text as a time of day without a zone, and is not read.
fn failure(error: &Value) -> TurnOutcome {
    let text = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    if error.get("codex_error_info").and_then(Value::as_str) == Some(LIMITED) {
        TurnOutcome::Limited(UsageLimit { until: None, text })
    } else {
        TurnOutcome::Failed(text)
    }
}

/// Returns the time at which the account's exhausted allowances are renewed, the latest of them, from a line
/// with the count of tokens.
pub(super) fn limit_reset(line: &Value) -> Option<Timestamp> {
    let limits = event(line)?.get("rate_limits")?;
    let windows = ["primary", "secondary"].iter().filter_map(|name| limits.get(name));
    let exhausted = windows.filter(|window| {
        window.get("used_percent").and_then(Value::as_f64).is_some_and(|used| used >= 100.0)
    });
    exhausted
        .filter_map(|window| window.get("resets_at")?.as_u64())
        .max()
        .map(|seconds| Timestamp(seconds.saturating_mul(1000)))
}

/// Returns the input and output tokens of the newest answer.
pub(super) fn tokens(line: &Value) -> Option<u64> {
    let last = event(line)?.get("info")?.get("last_token_usage")?;
    last.get("total_tokens")?.as_u64().filter(|all| *all > 0)
}
