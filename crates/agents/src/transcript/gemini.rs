//! Lines of Gemini CLI's record (0.61.0). The end of a turn is not in it, but what broke one off is.

use serde_json::Value;

use super::{End, Ending, Entry, Said, time};

/// How the text begins with which it opens each conversation by itself.
const CONTEXT: &str = "<session_context>";
/// What stands for an interruption.
const CANCELLED: &str = "Request cancelled.";

/// What a line says.
pub(super) fn entry(line: &Value) -> Option<Entry> {
    let content = line.get("content")?;
    let over = |how| Some(Entry::Over(End { how, at: time(line), turn: None }));
    match line.get("type")?.as_str()? {
        "user" => {
            let texts: Vec<_> =
                content.as_array()?.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            let text = texts.concat();
            let is_said = !texts.is_empty() && !text.starts_with(CONTEXT);
            is_said.then(|| Entry::Said(Said { text, at: time(line), queued: false }))
        }
        "gemini" => Some(Entry::Works),
        "info" if content.as_str()? == CANCELLED => over(Ending::Interrupted),
        "error" => over(Ending::Failed(content.as_str()?.to_owned())),
        _ => None,
    }
}

/// What an answer was given and what it wrote.
pub(super) fn tokens(line: &Value) -> Option<u64> {
    line.get("tokens")?.get("total")?.as_u64().filter(|total| *total > 0)
}
