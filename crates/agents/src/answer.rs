//! The output of a hook that answers a permission request or questions.

use protocol::hook::Decision;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::adapter::Adapter;
use crate::payload::QUESTIONS_TOOL;

/// The event of Claude Code and Codex whose hook may answer.
pub(crate) const PERMISSION_REQUEST: &str = "PermissionRequest";
/// The message to the agent for a denial without a reason.
const DENIED: &str = "Denied with `poolctl approve --deny`.";

/// The event of a generic report whose hook may answer.
const PERMISSION: &str = "permission";

/// The answer to a generic report.
#[derive(Serialize)]
struct Plain<'a> {
    allow: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed<'a> {
    hook_specific_output: Output<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    hook_event_name: &'a str,
    decision: Behavior<'a>,
}

#[derive(Serialize)]
#[serde(tag = "behavior", rename_all = "lowercase", rename_all_fields = "camelCase")]
enum Behavior<'a> {
    Allow {
        #[serde(skip_serializing_if = "Option::is_none")]
        updated_input: Option<Value>,
    },
    Deny {
        message: &'a str,
    },
}

/// Returns the output that tells the agent a decision, for the hook of `event` with `input`. None if the hook
/// cannot answer (Gemini CLI and Aider have no such hook), or if the answers do not fit the questions in the
/// input.
pub fn decision_output(adapter: Adapter, event: &str, decision: &Decision, input: &[u8]) -> Option<Vec<u8>> {
    if matches!(adapter, Adapter::Opencode | Adapter::None)
        && event == PERMISSION
        && decision.answers.is_empty()
    {
        let plain = Plain { allow: decision.allow, reason: decision.reason.as_deref() };
        return serde_json::to_vec(&plain).ok();
    }
    if !matches!(adapter, Adapter::Claude | Adapter::Codex) || event != PERMISSION_REQUEST {
        return None;
    }
    let decision = match decision.allow {
        true if decision.answers.is_empty() => Behavior::Allow { updated_input: None },
        true => Behavior::Allow { updated_input: Some(answered(input, &decision.answers)?) },
        false => Behavior::Deny { message: decision.reason.as_deref().unwrap_or(DENIED) },
    };
    let printed = Printed { hook_specific_output: Output { hook_event_name: event, decision } };
    serde_json::to_vec(&printed).ok()
}

/// Returns the input of the tool that asks, completed with an answer to each question, as Claude Code
/// (2.1.197) expects it.
fn answered(input: &[u8], answers: &[String]) -> Option<Value> {
    let input: Value = serde_json::from_slice(input).ok()?;
    let is_questions = input.get("tool_name")?.as_str()? == QUESTIONS_TOOL;
    let mut tool_input = input.get("tool_input").filter(|_| is_questions)?.as_object()?.clone();
    let text = |question: &Value| Some(question.get("question")?.as_str()?.to_owned());
    let questions = tool_input.get("questions")?.as_array()?.iter().map(text).collect::<Option<Vec<_>>>()?;
    if questions.len() != answers.len() {
        return None;
    }
    let answers: Map<_, _> =
        questions.into_iter().zip(answers.iter().map(|answer| Value::from(answer.as_str()))).collect();
    tool_input.insert("answers".to_owned(), Value::Object(answers));
    Some(Value::Object(tool_input))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(adapter: Adapter, event: &str, allow: bool, reason: Option<&str>) -> Option<String> {
        let answer = Decision { allow, reason: reason.map(str::to_owned), answers: Vec::new() };
        decision_output(adapter, event, &answer, b"{}").map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn both_agents_are_answered_in_the_same_words() {
        let allow =
            r#"{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow"}}}"#;
        let deny = r#"{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"not \"now\""}}}"#;
        for adapter in [Adapter::Claude, Adapter::Codex] {
            assert_eq!(printed(adapter, PERMISSION_REQUEST, true, Some("fine")).as_deref(), Some(allow));
            assert_eq!(
                printed(adapter, PERMISSION_REQUEST, false, Some("not \"now\"")).as_deref(),
                Some(deny)
            );
            assert!(printed(adapter, PERMISSION_REQUEST, false, None).unwrap().contains(DENIED));
            assert_eq!(printed(adapter, "PreToolUse", true, None), None);
        }
    }

    #[test]
    fn nothing_is_printed_where_it_would_not_answer() {
        for adapter in [Adapter::Gemini, Adapter::Opencode, Adapter::Aider, Adapter::None] {
            assert_eq!(printed(adapter, PERMISSION_REQUEST, true, None), None);
        }
        assert_eq!(printed(Adapter::Aider, PERMISSION, true, None), None);
    }

    #[test]
    fn a_generic_report_is_answered_in_the_generic_form() {
        for adapter in [Adapter::Opencode, Adapter::None] {
            let said = |allow, reason| printed(adapter, PERMISSION, allow, reason);
            assert_eq!(said(true, None).as_deref(), Some(r#"{"allow":true}"#));
            assert_eq!(said(false, Some("no")).as_deref(), Some(r#"{"allow":false,"reason":"no"}"#));
        }
    }

    #[test]
    fn questions_are_answered_in_their_order() {
        let answer = |answers: &[&str], input: &str| {
            let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
            let answer = Decision { allow: true, reason: None, answers };
            let printed = decision_output(Adapter::Claude, PERMISSION_REQUEST, &answer, input.as_bytes())?;
            Some(serde_json::from_slice::<Value>(&printed).unwrap()["hookSpecificOutput"]["decision"].clone())
        };
        let asks = r#"{"tool_name": "AskUserQuestion", "tool_input": {"questions": [
            {"question": "Which?", "options": []}, {"question": "How many?"}], "x": 1}}"#;
        let wanted = serde_json::json!({"behavior": "allow", "updatedInput": {
            "questions": [{"question": "Which?", "options": []}, {"question": "How many?"}], "x": 1,
            "answers": {"Which?": "the \"blue\" one", "How many?": "2"}}});
        assert_eq!(answer(&["the \"blue\" one", "2"], asks), Some(wanted));
        assert_eq!(answer(&["yes"], &asks.replace("AskUserQuestion", "Bash")), None);
        assert_eq!(answer(&["yes"], "{"), None);
        assert_eq!(answer(&["yes"], asks), None, "to which of them?");
    }
}
