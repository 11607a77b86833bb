//! Describes the use of a tool for people: its most telling argument, and the others that count.

use std::borrow::Cow;

use protocol::activity::ASK_MAX;
use protocol::bounds::{cut, cut_question};
use serde_json::{Map, Value};

use super::repair_json::{Repaired, repair_json};
use crate::shell_word::quoted;

/// The arguments of tools that summarise their use, the most telling first.
pub(super) const TELLING: [&str; 12] = [
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

/// Arguments that change nothing about what is done, each behind the telling argument beside which it is left out.
const HARMLESS: [(&str, &str); 4] = [
    ("command", "description"),
    ("command", "timeout"),
    ("command", "timeout_ms"),
    // The file in which Claude Code keeps a plan.
    ("plan", "planFilePath"),
];

/// The end of a question whose payload was cut off.
pub(super) const CUT_OFF: &str = "... (the rest is cut off; see its terminal)";

/// The bytes of a telling argument that a request has, however long the mark is at which the request was cut.
const COMPARED: usize = ASK_MAX - 64;

/// Returns the most telling argument of a tool; of a command that is a list, its words.
pub(super) fn summary(input: &Value) -> Option<Cow<'_, str>> {
    most_telling(input.as_object()?, &TELLING).map(|(_, text)| text)
}

/// Describes the use of a tool for the person who permits it: the most telling argument (the first of `keys`), and in
/// a line of their own all others that count, as JSON.
pub(super) fn describe(input: &Value, keys: &[&'static str]) -> String {
    let Some(map) = input.as_object() else { return input.to_string() };
    let Some((key, text)) = most_telling(map, keys) else { return json(map.iter()) };
    let is_other = |(name, value): &(&String, &Value)| {
        name.as_str() != key && !value.is_null() && !HARMLESS.contains(&(key, name.as_str()))
    };
    let mut others = map.iter().filter(is_other).peekable();
    if others.peek().is_none() { text.into_owned() } else { format!("{text}\n{}", json(others)) }
}

fn most_telling<'a>(
    map: &'a Map<String, Value>,
    keys: &[&'static str],
) -> Option<(&'static str, Cow<'a, str>)> {
    keys.iter().find_map(|key| Some((*key, words(map.get(*key)?)?)))
}

fn words(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.as_str().into()),
        Value::Array(parts) if !parts.is_empty() => {
            let words: Option<Vec<&str>> = parts.iter().map(Value::as_str).collect();
            Some(words?.into_iter().map(quoted).collect::<Vec<_>>().join(" ").into())
        }
        _ => None,
    }
}

/// Writes members as a JSON object, the short ones first: a long one may be cut off. The order does not depend on the
/// order in which an agent reports them.
fn json<'a>(members: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    let mut written: Vec<String> =
        members.map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
    written.sort_unstable();
    written.sort_by_key(String::len);
    format!("{{{}}}", written.join(","))
}

/// A tool that was used, to be compared with requests for the permission to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The most telling argument.
    telling: Option<String>,
    /// The text that a request for it has.
    text: String,
    /// The arguments that a request shows; none if they are not known in full.
    arguments: Option<Map<String, Value>>,
}

impl Operation {
    /// Reads the arguments as JSON, which may have been cut off.
    pub fn read(input: &str) -> Self {
        let repaired = || {
            repair_json(input.as_bytes()).map(|Repaired { map, cut, .. }| Value::Object(cut.unwrap_or(map)))
        };
        let whole: Option<Value> = serde_json::from_str(input).ok();
        let arguments = whole.as_ref().and_then(Value::as_object).map(shown);
        let input = whole.or_else(repaired).unwrap_or_default();
        Self {
            telling: summary(&input).map(Cow::into_owned),
            text: cut_question(&describe(&input, &TELLING)),
            arguments,
        }
    }

    /// True if the request with this text is for the same arguments.
    pub fn is_asked_by(&self, request: &str) -> bool {
        self.text == request
    }

    /// True if the request with this text may be for this. Some agents report fewer arguments with the use of a tool
    /// than with the request, or the other way round: all arguments of one of both are those of the other. If one of
    /// both was cut, the most telling argument decides.
    pub fn resembles(&self, request: &str) -> bool {
        let is_cut = request.len() > COMPARED || request.ends_with(CUT_OFF);
        match &self.arguments {
            Some(used) if !is_cut => self.telling.as_deref() == Some(request) || self.agrees(used, request),
            _ => self.begins(request),
        }
    }

    fn agrees(&self, used: &Map<String, Value>, request: &str) -> bool {
        let (head, asked) = read_request(request);
        if self.telling.is_none() && head.is_some() {
            // The text may be that of an argument which only its request shows, or a plan.
            return asked.iter().all(|(name, value)| used.get(name).is_none_or(|used| used == value));
        }
        let is_head = |value: &Value| head.is_some() && words(value).as_deref() == head;
        let is_asked = used.iter().all(|(name, value)| asked.get(name) == Some(value) || is_head(value));
        let is_used = (head.is_none() || used.values().any(is_head))
            && asked.iter().all(|(name, value)| used.get(name) == Some(value));
        is_asked || is_used
    }

    /// True if the request begins with the most telling argument, as far as both are known.
    fn begins(&self, request: &str) -> bool {
        let Some(telling) = &self.telling else { return true };
        let begin = cut(telling, COMPARED);
        let ends = |rest: &str| rest.is_empty() || rest.starts_with("\n{");
        request.strip_prefix(begin).is_some_and(|rest| begin.len() < telling.len() || ends(rest))
    }
}

/// Returns the arguments that the text of a request shows.
fn shown(input: &Map<String, Value>) -> Map<String, Value> {
    let key = most_telling(input, &TELLING).map_or("", |(key, _)| key);
    let is_shown =
        |(name, value): &(&String, &Value)| !value.is_null() && !HARMLESS.contains(&(key, name.as_str()));
    input.iter().filter(is_shown).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Reads the text of a request as [`describe`] wrote it: the most telling argument, and the others.
fn read_request(request: &str) -> (Option<&str>, Map<String, Value>) {
    let (head, others) = match request.rsplit_once('\n') {
        Some((head, others)) => (Some(head), others),
        None => (None, request),
    };
    serde_json::from_str(others).map_or_else(|_| (Some(request), Map::new()), |others| (head, others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_resembles_the_requests_with_its_most_telling_argument() {
        let read = Operation::read;
        let used = read(r#"{"file_path":"/x","content":"a"}"#);
        assert!(used.is_asked_by("/x\n{\"content\":\"a\"}"));
        for (request, resembles) in
            [("/x\n{\"content\":\"b\"}", false), ("/x", true), ("/x y", false), ("/xy", false), ("/", false)]
        {
            assert_eq!((used.resembles(request), used.is_asked_by(request)), (resembles, false), "{request}");
        }
        for input in [r#"{"n":3}"#, "", "[1]", "null"] {
            assert!(read(input).resembles("anything"), "{input}");
        }
        let long = "é".repeat(ASK_MAX);
        let used = read(&format!(r#"{{"command":"{long}"}}"#));
        assert!(used.resembles(&cut_question(&format!("{long}{long}"))), "cut, and not known to be another");
        assert!(!used.resembles("é"));
    }

    #[test]
    fn a_use_does_not_resemble_a_request_for_other_arguments() {
        let resembles = |input: &str, request: &str| Operation::read(input).resembles(request);
        for (input, request, expected) in [
            (r#"{"n":1}"#, r#"{"n":2}"#, false),
            (r#"{"n":1}"#, r#"{"n":1,"m":2}"#, true),
            (r#"{"n":1,"m":2}"#, r#"{"n":1}"#, true),
            (r#"{"n":1}"#, r#"{"m":1}"#, false),
            (r#"{"path":"/x","old":"a","new":"b"}"#, "/x\n{\"new\":\"b\",\"old\":\"c\"}", false),
            (r#"{"path":"/x","old":"a","new":null}"#, "/x\n{\"new\":\"b\",\"old\":\"a\"}", true),
            (r#"{"description":"look","prompt":"a"}"#, "look\n{\"prompt\":\"b\"}", false),
            // The use does not show the description.
            (r#"{"prompt":"a"}"#, "look\n{\"prompt\":\"a\"}", true),
            (r#"{"n":1}"#, "look\n{\"n\":2}", false),
            (r#"{"command":"make","description":"x"}"#, "make\n{\"cwd\":\"/\"}", true),
            (r#"{"command":"cat <<E\n{\"a\":1}","cwd":"/"}"#, "cat <<E\n{\"a\":1}", true),
            // A plan that was changed before it was accepted.
            (r#"{"plan":"b"}"#, "a", true),
        ] {
            assert_eq!(resembles(input, request), expected, "{input} {request}");
        }
        let cut_off = format!("{{\"n\":{CUT_OFF}");
        assert!(resembles(r#"{"n":1}"#, &cut_off) && resembles(r#"{"n":1,"m":"a"#, r#"{"n":2}"#), "cut");
    }
}
