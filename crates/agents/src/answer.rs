//! What a hook prints to answer a request for a permission.

use protocol::hook::Decision;
use serde::Serialize;

use crate::kind::Adapter;

/// The event whose hook may answer.
pub const PERMISSION_REQUEST: &str = "PermissionRequest";
/// What the agent is told where nobody said why not.
const NO: &str = "Denied with `poolctl approve --deny`.";

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
#[serde(tag = "behavior", rename_all = "lowercase")]
enum Behavior<'a> {
    Allow,
    Deny { message: &'a str },
}

/// What the hook of this event prints for a decision; none where printing cannot answer: Gemini CLI has no such hook, and
/// other programs have none that is known.
#[must_use]
pub fn decision(adapter: Adapter, event: &str, decision: &Decision) -> Option<Vec<u8>> {
    if !matches!(adapter, Adapter::Claude | Adapter::Codex) || event != PERMISSION_REQUEST {
        return None;
    }
    let decision = match decision.allow {
        true => Behavior::Allow,
        false => Behavior::Deny { message: decision.reason.as_deref().unwrap_or(NO) },
    };
    let printed = Printed { hook_specific_output: Output { hook_event_name: event, decision } };
    serde_json::to_vec(&printed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(adapter: Adapter, event: &str, allow: bool, reason: Option<&str>) -> Option<String> {
        let answer = Decision { allow, reason: reason.map(str::to_owned) };
        decision(adapter, event, &answer).map(|bytes| String::from_utf8(bytes).unwrap())
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
            assert!(printed(adapter, PERMISSION_REQUEST, false, None).unwrap().contains(NO));
            assert_eq!(printed(adapter, "PreToolUse", true, None), None);
        }
    }

    #[test]
    fn nothing_is_printed_where_it_would_not_answer() {
        for adapter in [Adapter::Gemini, Adapter::None] {
            assert_eq!(printed(adapter, PERMISSION_REQUEST, true, None), None);
        }
    }
}
