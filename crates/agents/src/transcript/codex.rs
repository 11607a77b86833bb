//! Lines of Codex's record (0.169.0).

use protocol::time::Timestamp;
use serde_json::Value;

use super::{End, Ending, Entry, Limit, Said, time};

/// The word for an account's usage limit.
const LIMITED: &str = "usage_limit_exceeded";

/// What a line says.
pub(super) fn entry(line: &Value) -> Option<Entry> {
    let event = event(line)?;
    match event.get("type")?.as_str()? {
        "item_completed" => item(line, event.get("item")?),
        "user_message" => said(line, event.get("message")?.as_str()?.to_owned()),
        "agent_message" | "task_started" => Some(Entry::Works),
        "turn_aborted" => Some(over(line, event, Ending::Interrupted)),
        "task_complete" => {
            let error = event.get("error").filter(|error| !error.is_null());
            Some(over(line, event, error.map_or(Ending::Done, failure)))
        }
        _ => None,
    }
}

/// What happened, where the line is of that sort.
fn event(line: &Value) -> Option<&Value> {
    let payload = line.get("payload")?;
    (line.get("type")?.as_str()? == "event_msg").then_some(payload)
}

fn item(line: &Value, item: &Value) -> Option<Entry> {
    match item.get("type")?.as_str()? {
        "UserMessage" => {
            let parts = item.get("content")?.as_array()?;
            let texts: Vec<_> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            said(line, texts.join("\n"))
        }
        "AgentMessage" => Some(Entry::Works),
        _ => None,
    }
}

fn said(line: &Value, text: String) -> Option<Entry> {
    Some(Entry::Said(Said { text, at: time(line), queued: false }))
}

fn over(line: &Value, event: &Value, how: Ending) -> Entry {
    let turn = event.get("turn_id").and_then(Value::as_str).map(str::to_owned);
    Entry::Over(End { how, at: time(line), turn })
}

/// What an error is. When a limit ends is told in words as a time of day of an unnamed zone: that is not read.
fn failure(error: &Value) -> Ending {
    let text = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    if error.get("codex_error_info").and_then(Value::as_str) == Some(LIMITED) {
        Ending::Limited(Limit { until: None, text })
    } else {
        Ending::Failed(text)
    }
}

/// When a used-up allowance is given anew, by the newest count of tokens: the latest of those that are used up.
pub(super) fn resets(line: &Value) -> Option<Timestamp> {
    let limits = event(line)?.get("rate_limits")?;
    let windows = ["primary", "secondary"].iter().filter_map(|name| limits.get(name));
    let used_up = windows.filter(|window| {
        window.get("used_percent").and_then(Value::as_f64).is_some_and(|used| used >= 100.0)
    });
    used_up
        .filter_map(|window| window.get("resets_at")?.as_u64())
        .max()
        .map(|seconds| Timestamp(seconds.saturating_mul(1000)))
}

/// What the newest answer was given and what it wrote.
pub(super) fn tokens(line: &Value) -> Option<u64> {
    let last = event(line)?.get("info")?.get("last_token_usage")?;
    last.get("total_tokens")?.as_u64().filter(|all| *all > 0)
}
