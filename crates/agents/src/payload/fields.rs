//! The fields of a hook's input, each as what it should be or not at all.

use protocol::activity::ASK_MAX;
use protocol::hook::{PROMPT_MAX, Signal, TEXT_MAX, ToolUse};
use serde_json::{Map, Value};

use super::mend::{Mended, mend};
use super::{ID_MAX, QUESTIONS_TOOL};

/// The longest word or short sentence, in bytes.
const WORD_MAX: usize = 1024;
/// The longest account of what an agent is working with, in bytes: a line for people.
const WHAT_MAX: usize = 200;
/// Arguments of tools that say the most about their use, the most telling first.
const TELLING: [&str; 12] = [
    "command",
    "file_path",
    "filePath",
    "notebook_path",
    "path",
    "url",
    "pattern",
    "query",
    "skill",
    "description",
    "prompt",
    "name",
];

/// A JSON object.
pub(super) struct Fields {
    /// What is complete in it.
    map: Map<String, Value>,
    /// The same with the text in whose middle the input broke off: an id or a word would be another, but of a prompt the
    /// beginning is worth something.
    cut: Option<Map<String, Value>>,
}

impl Fields {
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        match serde_json::from_slice(input) {
            Ok(Value::Object(map)) => Some(Self { map, cut: None }),
            Ok(_) => None,
            Err(_) => mend(input).map(|Mended { map, cut }| Self { map, cut }),
        }
    }

    /// A text that is there and not empty.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.map.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    /// Whether there is anything under this name.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    pub(super) fn is_true(&self, key: &str) -> bool {
        self.map.get(key) == Some(&Value::Bool(true))
    }

    pub(super) fn word(&self, key: &str) -> Option<String> {
        self.text(key).map(|text| clip(text, WORD_MAX))
    }

    pub(super) fn word_or_nothing(&self, key: &str) -> String {
        self.word(key).unwrap_or_default()
    }

    pub(super) fn long(&self, key: &str) -> Option<String> {
        self.text(key).map(|text| clip(text, TEXT_MAX))
    }

    /// An id; a cut one would be another, so one that is too long is none.
    pub(super) fn id(&self, key: &str) -> Option<String> {
        self.text(key).filter(|id| id.len() <= ID_MAX).map(str::to_owned)
    }

    /// Whether an object says that it tells of an error.
    pub(super) fn failed_within(&self, key: &str) -> bool {
        self.map.get(key).and_then(|value| value.get("error")).is_some_and(|error| !error.is_null())
    }

    /// A prompt: the text there may be empty, but must be there.
    pub(super) fn prompt(&self, key: &str, turn: Option<String>) -> Option<Signal> {
        let whole = self.map.get(key);
        let text = whole.or_else(|| self.cut.as_ref()?.get(key))?.as_str()?;
        let cut = whole.is_none() || text.len() > PROMPT_MAX;
        Some(Signal::Prompt { text: clip(text, PROMPT_MAX), cut, turn })
    }

    /// The beginning of the use of a tool.
    pub(super) fn tool_begins(&self) -> Signal {
        let tool = self.word_or_nothing("tool_name");
        let input = self.map.get("tool_input");
        let skill = match (tool.as_str(), input) {
            ("Skill", Some(Value::Object(map))) => {
                ["skill", "name", "command"].into_iter().find_map(|key| map.get(key)?.as_str())
            }
            _ => None,
        };
        let skill = skill.map(|name| clip(name.trim_start_matches('/'), WORD_MAX));
        let what = match input.and_then(summary) {
            Some(summary) => format!("{tool}: {}", line(summary)),
            None => tool,
        };
        Signal::Working { what: Some(clip(&what, WHAT_MAX)).filter(|what| !what.is_empty()), skill }
    }

    /// The end of the use of a tool.
    pub(super) fn tool_ended(&self, response: &str, failed: bool) -> Signal {
        Signal::ToolUsed(Box::new(ToolUse {
            id: self.id("tool_use_id"),
            tool: self.word_or_nothing("tool_name"),
            input: self.json("tool_input"),
            response: self.json(response),
            failed,
            cwd: self.text("cwd").map(|cwd| clip(cwd, WORD_MAX * 4)),
        }))
    }

    /// A request for a permission.
    pub(super) fn permission(&self) -> Signal {
        let tool = self.word_or_nothing("tool_name");
        let text = match self.map.get("tool_input") {
            // Questions that are not whole cannot be answered.
            Some(_) if tool == QUESTIONS_TOOL && self.cut.is_some() => String::new(),
            Some(input) => match tool.as_str() {
                QUESTIONS_TOOL => Some(questions(input).unwrap_or_default()),
                "ExitPlanMode" => input.get("plan").and_then(Value::as_str).map(str::to_owned),
                _ => summary(input).map(str::to_owned),
            }
            .unwrap_or_else(|| input.to_string()),
            None => String::new(),
        };
        Signal::Permission { tool, text: clip(&text, ASK_MAX), wait_ms: 0 }
    }

    /// A value as JSON; nothing where there is none.
    pub(super) fn json(&self, key: &str) -> String {
        match self.map.get(key) {
            Some(value) => clip(&value.to_string(), TEXT_MAX),
            None => String::new(),
        }
    }
}

/// The questions that Claude Code has, each in one line with what it offers.
fn questions(input: &Value) -> Option<String> {
    let asked = input.get("questions")?.as_array().filter(|asked| !asked.is_empty())?;
    // None is cut off by those before it.
    let most = ASK_MAX / asked.len() - 1;
    let word = |value: &Value, key: &str| {
        let text = value.get(key)?.as_str()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let one = |question: &Value| {
        let asked = word(question, "question")?;
        let offered = question.get("options").and_then(Value::as_array);
        let labels: Vec<_> =
            offered.into_iter().flatten().filter_map(|option| word(option, "label")).collect();
        let several = question.get("multiSelect") == Some(&Value::Bool(true));
        let line = match (labels.join(" / "), several) {
            (labels, _) if labels.is_empty() => asked,
            (labels, false) => format!("{asked} ({labels})"),
            (labels, true) => format!("{asked} (some of {labels})"),
        };
        Some(clip(&line, most)).filter(|line| !line.is_empty())
    };
    Some(asked.iter().map(one).collect::<Option<Vec<_>>>()?.join("\n"))
}

/// The most telling one of a tool's arguments; of a command that is a list, its last part.
fn summary(input: &Value) -> Option<&str> {
    let map = input.as_object()?;
    TELLING.into_iter().find_map(|key| match map.get(key)? {
        Value::String(text) if !text.is_empty() => Some(text.as_str()),
        Value::Array(parts) => parts.last()?.as_str(),
        _ => None,
    })
}

/// What the use of a tool does, by its arguments as JSON, in the words in which its permission was asked for. None where no
/// argument tells.
pub(super) fn does(input: &str) -> Option<String> {
    let read = || mend(input.as_bytes()).map(|Mended { map, cut }| Value::Object(cut.unwrap_or(map)));
    let input = serde_json::from_str(input).ok().or_else(read)?;
    summary(&input).map(|does| clip(does, ASK_MAX))
}

/// The first line.
fn line(text: &str) -> &str {
    text.trim_start().lines().next().unwrap_or_default()
}

/// At most so many bytes of a text, whole characters.
pub(super) fn clip(text: &str, max: usize) -> String {
    protocol::bounds::cut(text, max).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(input: Value) -> Fields {
        Fields::read(input.to_string().as_bytes()).unwrap()
    }

    fn begins(tool: &str, input: Value) -> (Option<String>, Option<String>) {
        match fields(serde_json::json!({"tool_name": tool, "tool_input": input})).tool_begins() {
            Signal::Working { what, skill } => (what, skill),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_tool_does_is_told_in_a_line() {
        let json = |text: &str| serde_json::from_str(text).unwrap();
        let what = |tool, input| begins(tool, json(input)).0.unwrap();
        assert_eq!(what("Bash", r#"{"command":"make all\nmake more","description":"x"}"#), "Bash: make all");
        assert_eq!(what("Edit", r#"{"old_string":"a","file_path":"/src/x.rs"}"#), "Edit: /src/x.rs");
        assert_eq!(what("shell", r#"{"command":["bash","-lc","ls"]}"#), "shell: ls");
        assert_eq!(what("Odd", r#"{"n":3}"#), "Odd");
        assert_eq!(what("Odd", r#""text""#), "Odd");
        let long = format!(r#"{{"command":"{}"}}"#, "é".repeat(300));
        assert_eq!(what("Bash", &long), format!("Bash: {}", "é".repeat(97)));
        assert_eq!(begins("", Value::Null).0, None);
    }

    #[test]
    fn a_skill_is_known_by_its_tool() {
        let skill = |tool, input: &str| begins(tool, serde_json::from_str(input).unwrap()).1;
        assert_eq!(skill("Skill", r#"{"skill":"review","args":"x"}"#).as_deref(), Some("review"));
        assert_eq!(skill("Skill", r#"{"command":"/tidy"}"#).as_deref(), Some("tidy"));
        assert_eq!(skill("Bash", r#"{"skill":"review"}"#), None);
        assert_eq!(skill("Skill", "{}"), None);
    }

    #[test]
    fn a_permission_without_a_telling_argument_shows_all_of_them() {
        let asked = fields(serde_json::json!({"tool_name": "mcp__x", "tool_input": {"n": 3}})).permission();
        assert_eq!(
            asked,
            Signal::Permission { tool: "mcp__x".into(), text: r#"{"n":3}"#.into(), wait_ms: 0 }
        );
    }

    #[test]
    fn a_tool_is_used_as_its_permission_was_asked_for() {
        let long = "é".repeat(TEXT_MAX);
        for does_it in ["make all\nmake more", &long] {
            let input = serde_json::json!({"tool_input": {"command": does_it, "description": "x"}});
            let Signal::Permission { text, .. } = fields(input.clone()).permission() else { panic!() };
            let Signal::ToolUsed(used) = fields(input).tool_ended("none", false) else { panic!() };
            assert!(used.input.len() <= TEXT_MAX);
            assert_eq!(does(&used.input), Some(text));
        }
        assert_eq!(does(r#"{"n":3}"#), None);
        assert_eq!(does(""), None);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("aé", 3), "aé");
        let long = serde_json::json!({"p": "é".repeat(PROMPT_MAX)});
        match fields(long).prompt("p", None) {
            Some(Signal::Prompt { text, cut: true, .. }) => assert_eq!(text.len(), PROMPT_MAX),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_id_that_is_too_long_is_none() {
        let map = fields(serde_json::json!({"a": "x".repeat(ID_MAX), "b": "x".repeat(ID_MAX + 1)}));
        assert!(map.id("a").is_some());
        assert_eq!(map.id("b"), None);
    }
}
