//! Typed access to the fields of a payload; a field of another type counts as missing.

use protocol::activity::ASK_MAX;
use protocol::bounds::{cut, cut_question, cut_with_mark};
use protocol::hook::{HookEvent, PROMPT_MAX, TEXT_MAX, ToolUse};
use serde_json::{Map, Value};

use super::repair_json::{Repaired, repair_json};
use super::tool_use::{CUT_OFF, TELLING, describe, summary};
use super::{ID_MAX, PLAN_TOOL, QUESTIONS_TOOL};

/// The longest word or short sentence, in bytes.
const WORD_MAX: usize = 1024;
/// The longest description of work in progress, in bytes: one line for people.
const WHAT_MAX: usize = 200;

/// The tools of Claude Code, Gemini CLI and OpenCode that write a file.
const WRITING_TOOLS: [&str; 8] =
    ["Write", "Edit", "MultiEdit", "NotebookEdit", "write_file", "replace", "write", "edit"];
/// Their arguments that name it.
const FILE_KEYS: [&str; 3] = ["file_path", "filePath", "notebook_path"];

/// The fields of a payload.
pub(super) struct Fields {
    /// The complete values.
    map: Map<String, Value>,
    /// The complete values and the text in which the input was cut off. A truncated id or word would be a
    /// wrong one, but the beginning of a prompt is useful.
    cut: Option<Map<String, Value>>,
    /// False if the input was cut off.
    is_whole: bool,
}

impl Fields {
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        match serde_json::from_slice(input) {
            Ok(Value::Object(map)) => Some(Self { map, cut: None, is_whole: true }),
            Ok(_) => None,
            Err(_) => repair_json(input).map(|Repaired { map, cut, is_whole }| Self { map, cut, is_whole }),
        }
    }

    /// Returns a text that is not empty.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.map.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    /// True if the field has a value other than null.
    pub(super) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|value| !value.is_null())
    }

    pub(super) fn is_true(&self, key: &str) -> bool {
        self.map.get(key) == Some(&Value::Bool(true))
    }

    /// Returns a text of at most [`WORD_MAX`] bytes.
    pub(super) fn word(&self, key: &str) -> Option<String> {
        self.text(key).map(|text| clip(text, WORD_MAX))
    }

    pub(super) fn word_or_default(&self, key: &str) -> String {
        self.word(key).unwrap_or_default()
    }

    /// Returns a text of at most [`TEXT_MAX`] bytes.
    pub(super) fn long(&self, key: &str) -> Option<String> {
        self.text(key).map(|text| clip(text, TEXT_MAX))
    }

    /// Returns the text of a question, of at most [`ASK_MAX`] bytes. It says whether something is missing.
    pub(super) fn question(&self, key: &str) -> String {
        self.as_question(self.beginning(key).and_then(Value::as_str).unwrap_or_default())
    }

    /// Returns a value, of which the end may be cut off.
    fn beginning(&self, key: &str) -> Option<&Value> {
        self.cut.as_ref().unwrap_or(&self.map).get(key)
    }

    fn as_question(&self, text: &str) -> String {
        if self.is_whole {
            return cut_question(text);
        }
        format!("{}{CUT_OFF}", cut(text, ASK_MAX - CUT_OFF.len()))
    }

    /// Returns an id. One that is too long is ignored, because a truncated id would be a wrong one.
    pub(super) fn id(&self, key: &str) -> Option<String> {
        self.text(key).filter(|id| id.len() <= ID_MAX).map(str::to_owned)
    }

    /// True if the field is an object with an `error`.
    pub(super) fn failed_within(&self, key: &str) -> bool {
        self.map.get(key).and_then(|value| value.get("error")).is_some_and(|error| !error.is_null())
    }

    /// Returns the event of a prompt, whose text may be empty.
    pub(super) fn prompt(&self, key: &str, turn: Option<String>) -> Option<HookEvent> {
        let complete = self.map.get(key);
        let text = complete.or_else(|| self.cut.as_ref()?.get(key))?.as_str()?;
        let cut = complete.is_none() || text.len() > PROMPT_MAX;
        Some(HookEvent::Prompt { text: clip(text, PROMPT_MAX), cut, turn })
    }

    /// Returns the event of a tool that begins.
    pub(super) fn tool_begins(&self) -> HookEvent {
        let tool = self.word_or_default("tool_name");
        let input = self.map.get("tool_input");
        if [QUESTIONS_TOOL, PLAN_TOOL].contains(&tool.as_str()) {
            let plan = input.and_then(|input| input.get("plan")?.as_str()).filter(|_| tool == PLAN_TOOL);
            return HookEvent::Asking { plan: plan.map(|plan| clip(plan, TEXT_MAX)), tool };
        }
        let skill = match (tool.as_str(), input) {
            ("Skill", Some(Value::Object(map))) => {
                ["skill", "name", "command"].into_iter().find_map(|key| map.get(key)?.as_str())
            }
            _ => None,
        };
        let skill = skill.map(|name| clip(name.trim_start_matches('/'), WORD_MAX));
        let what = match input.and_then(summary) {
            Some(summary) => format!("{tool}: {}", first_line(&summary)),
            None => tool,
        };
        HookEvent::Working { what: Some(clip(&what, WHAT_MAX)).filter(|what| !what.is_empty()), skill }
    }

    /// Returns the event of a tool that ended. `response` is the key of its result.
    pub(super) fn tool_ended(&self, response: &str, failed: bool) -> HookEvent {
        HookEvent::ToolUsed(Box::new(ToolUse {
            id: self.id("tool_use_id"),
            tool: self.word_or_default("tool_name"),
            input: self.json("tool_input"),
            response: self.json(response),
            failed,
            cwd: self.text("cwd").map(|cwd| clip(cwd, WORD_MAX * 4)),
        }))
    }

    /// Returns the event of a permission request.
    pub(super) fn permission(&self) -> HookEvent {
        let tool = self.word_or_default("tool_name");
        let text = match (self.beginning("tool_input"), tool.as_str()) {
            (None, _) => String::new(),
            // Truncated questions cannot be answered.
            (Some(_), QUESTIONS_TOOL) if !self.is_whole => String::new(),
            (Some(input), QUESTIONS_TOOL) => questions(input).unwrap_or_default(),
            (Some(input), PLAN_TOOL) => self.as_question(&describe(input, &["plan"])),
            (Some(input), _) => self.as_question(&describe(input, &TELLING)),
        };
        HookEvent::Permission { tool, text, wait_ms: 0 }
    }

    /// Returns what a tool does with its arguments, for the person who permits it. None without arguments.
    pub(super) fn operation(&self, key: &str) -> Option<String> {
        let input = self.beginning(key)?;
        let has_arguments = input.as_object().is_some_and(|arguments| !arguments.is_empty());
        has_arguments.then(|| self.as_question(&describe(input, &TELLING)))
    }

    /// Returns a value as JSON of at most [`TEXT_MAX`] bytes, or an empty text. Of an object that is longer, the short
    /// members come first: the content of a file is cut off, and not its path.
    pub(super) fn json(&self, key: &str) -> String {
        match self.map.get(key) {
            Some(Value::Object(members)) => {
                let mut written: Vec<String> = members
                    .iter()
                    .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
                    .collect();
                // The braces and the commas count as well.
                let length = written.iter().map(String::len).sum::<usize>() + written.len() + 1;
                if length > TEXT_MAX {
                    written.sort_by_key(String::len);
                }
                clip(&format!("{{{}}}", written.join(",")), TEXT_MAX)
            }
            Some(value) => clip(&value.to_string(), TEXT_MAX),
            None => String::new(),
        }
    }
}

/// Returns the questions of Claude Code's tool, each in one line with its options.
fn questions(input: &Value) -> Option<String> {
    let questions = input.get("questions")?.as_array().filter(|questions| !questions.is_empty())?;
    // An equal share for each, so that all fit.
    let limit = (ASK_MAX / questions.len()).saturating_sub(1);
    let word = |value: &Value, key: &str| {
        let text = value.get(key)?.as_str()?;
        Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let one = |question: &Value| {
        let text = word(question, "question")?;
        let options = question.get("options").and_then(Value::as_array);
        let labels: Vec<_> =
            options.into_iter().flatten().filter_map(|option| word(option, "label")).collect();
        let multi_select = question.get("multiSelect") == Some(&Value::Bool(true));
        let line = match (labels.join(" / "), multi_select) {
            (labels, _) if labels.is_empty() => text,
            (labels, false) => format!("{text} ({labels})"),
            (labels, true) => format!("{text} (some of {labels})"),
        };
        Some(cut_with_mark(&line, limit, "; see its terminal")).filter(|line| !line.is_empty())
    };
    Some(questions.iter().map(one).collect::<Option<Vec<_>>>()?.join("\n"))
}

/// See [`super::written_file`]. The JSON may have been cut off.
pub(super) fn written_file(tool: &str, input: &str) -> Option<String> {
    if !WRITING_TOOLS.contains(&tool) {
        return None;
    }
    // Only complete values: a path that was cut off names another file.
    let fields = Fields::read(input.as_bytes())?;
    FILE_KEYS
        .into_iter()
        .find_map(|key| fields.text(key))
        .filter(|path| path.len() <= WORD_MAX * 4)
        .map(str::to_owned)
}

/// Returns the first line that is not blank.
fn first_line(text: &str) -> &str {
    text.trim_start().lines().next().unwrap_or_default()
}

/// Cuts a text to `max` bytes, between characters.
pub(super) fn clip(text: &str, max: usize) -> String {
    cut(text, max).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::tool_use::Operation;

    fn fields(input: Value) -> Fields {
        Fields::read(input.to_string().as_bytes()).unwrap()
    }

    fn begins(tool: &str, input: Value) -> (Option<String>, Option<String>) {
        match fields(serde_json::json!({"tool_name": tool, "tool_input": input})).tool_begins() {
            HookEvent::Working { what, skill } => (what, skill),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_tool_does_is_told_in_a_line() {
        let json = |text: &str| serde_json::from_str(text).unwrap();
        let what = |tool, input| begins(tool, json(input)).0.unwrap();
        assert_eq!(what("Bash", r#"{"command":"make all\nmake more","description":"x"}"#), "Bash: make all");
        assert_eq!(what("Edit", r#"{"old_string":"a","file_path":"/src/x.rs"}"#), "Edit: /src/x.rs");
        assert_eq!(what("shell", r#"{"command":["bash","-lc","ls"]}"#), "shell: bash -lc ls");
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
    fn a_tool_that_shows_a_dialog_is_no_work() {
        for tool in [QUESTIONS_TOOL, PLAN_TOOL] {
            let input = serde_json::json!({"tool_name": tool, "tool_input": {"name": "x"}});
            assert_eq!(fields(input).tool_begins(), HookEvent::Asking { tool: tool.to_owned(), plan: None });
        }
    }

    #[test]
    fn a_plan_is_told_with_the_dialog_that_shows_it() {
        let plan = |tool: &str| {
            let input = serde_json::json!({"tool_name": tool, "tool_input": {"plan": "# Plan\n1. do it"}});
            match fields(input).tool_begins() {
                HookEvent::Asking { plan, .. } => plan,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(plan(PLAN_TOOL).as_deref(), Some("# Plan\n1. do it"));
        assert_eq!(plan(QUESTIONS_TOOL), None);
    }

    #[test]
    fn of_a_long_input_the_content_is_cut_off_and_not_the_path() {
        let input = serde_json::json!({"content": "x".repeat(2 * TEXT_MAX), "file_path": "/src/x.rs"});
        let ended = fields(serde_json::json!({"tool_name": "Write", "tool_input": input}));
        let HookEvent::ToolUsed(used) = ended.tool_ended("tool_response", false) else { panic!() };
        assert_eq!(used.input.len(), TEXT_MAX);
        assert_eq!(written_file(&used.tool, &used.input).as_deref(), Some("/src/x.rs"));
    }

    #[test]
    fn the_file_that_a_tool_wrote_is_known_by_its_arguments() {
        let written = |tool, input| written_file(tool, input);
        assert_eq!(
            written("Edit", r#"{"old_string":"a","file_path":"/src/x.rs"}"#).as_deref(),
            Some("/src/x.rs")
        );
        assert_eq!(written("NotebookEdit", r#"{"notebook_path":"a.ipynb"}"#).as_deref(), Some("a.ipynb"));
        assert_eq!(written("write", r#"{"filePath":"b","content":"x"}"#).as_deref(), Some("b"));
        assert_eq!(written("write_file", r#"{"file_path":"c","content":"cut o"#).as_deref(), Some("c"));
        assert_eq!(written("Write", r#"{"file_path":"cut o"#), None, "another file");
        assert_eq!(written("Read", r#"{"file_path":"d"}"#), None);
        assert_eq!(written("Write", r#"{"file_path":3}"#), None);
    }

    #[test]
    fn a_permission_without_a_telling_argument_shows_all_of_them() {
        let asked = fields(serde_json::json!({"tool_name": "mcp__x", "tool_input": {"n": 3}})).permission();
        assert_eq!(
            asked,
            HookEvent::Permission { tool: "mcp__x".into(), text: r#"{"n":3}"#.into(), wait_ms: 0 }
        );
    }

    #[test]
    fn a_tool_is_used_as_its_permission_was_asked_for() {
        let long = "é".repeat(TEXT_MAX);
        for command in ["make all\nmake more", &long] {
            let input = serde_json::json!({"tool_input": {"command": command, "description": "x"}});
            let HookEvent::Permission { text, .. } = fields(input.clone()).permission() else { panic!() };
            let HookEvent::ToolUsed(used) = fields(input).tool_ended("none", false) else { panic!() };
            assert!(used.input.len() <= TEXT_MAX);
            let operation = Operation::read(&used.input);
            assert!(operation.resembles(&text) && !operation.resembles("make"));
            assert_eq!(operation.is_asked_by(&text), command != long, "both are cut");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clip("aé", 2), "a");
        assert_eq!(clip("aé", 3), "aé");
        let long = serde_json::json!({"p": "é".repeat(PROMPT_MAX)});
        match fields(long).prompt("p", None) {
            Some(HookEvent::Prompt { text, cut: true, .. }) => assert_eq!(text.len(), PROMPT_MAX),
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
