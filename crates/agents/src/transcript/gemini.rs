//! Lines of Gemini CLI's record (0.61.0). It contains interruptions and failures, but not the successful end
//! of a turn.

use serde_json::Value;

use super::{Entry, RecordedPrompt, TurnEnd, TurnOutcome, time};

/// The beginning of the message with which Gemini CLI itself opens each conversation.
const CONTEXT: &str = "<session_context>";
/// The message of an interruption.
const CANCELLED: &str = "Request cancelled.";

/// Parses a line.
pub(super) fn entry(line: &Value) -> Option<Entry> {
    let content = line.get("content")?;
    let turn_end = |outcome| Some(Entry::TurnEnd(TurnEnd { outcome, at: time(line), turn: None }));
    match line.get("type")?.as_str()? {
        "user" => {
            let texts: Vec<_> =
                content.as_array()?.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            let text = texts.concat();
            let is_prompt = !texts.is_empty() && !text.starts_with(CONTEXT);
            is_prompt.then(|| Entry::Prompt(RecordedPrompt { text, at: time(line), queued: false }))
        }
        "gemini" => Some(Entry::Working),
        "info" if content.as_str()? == CANCELLED => turn_end(TurnOutcome::Interrupted),
        "error" => turn_end(TurnOutcome::Failed(content.as_str()?.to_owned())),
        _ => None,
    }
}

/// Returns the input and output tokens of an answer.
pub(super) fn tokens(line: &Value) -> Option<u64> {
    line.get("tokens")?.get("total")?.as_u64().filter(|total| *total > 0)
}
