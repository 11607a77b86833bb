//! Generic reports: those of programs without an adapter, and of agents whose hooks the pool itself writes.

use protocol::hook::{HookEvent, Notice, ToolUse};

use super::fields::{Fields, clip};
use super::{Report, claude};

pub(super) fn report(fields: &Fields) -> Option<Report> {
    let event = fields.word("event")?;
    let signal = signal(&event, fields);
    Some(Report { event, conversation: fields.id("conversation"), transcript: None, signal })
}

fn signal(event: &str, fields: &Fields) -> Option<HookEvent> {
    let text = || clip(fields.text("text").unwrap_or_default(), protocol::activity::ASK_MAX);
    match event {
        "started" => Some(HookEvent::Started { source: claude::start(&text()) }),
        "prompt" => fields.prompt("text", None),
        "working" => Some(HookEvent::Working { what: fields.word("text"), skill: None }),
        "tool" => Some(HookEvent::ToolUsed(Box::new(ToolUse {
            id: None,
            tool: fields.word_or_default("text"),
            input: fields.json("input"),
            response: fields.json("response"),
            failed: fields.is_true("failed"),
            cwd: None,
        }))),
        "permission" => {
            let text = fields.operation("input").unwrap_or_else(|| fields.question("text"));
            Some(HookEvent::Permission { tool: fields.word_or_default("tool"), text, wait_ms: 0 })
        }
        "attention" => Some(HookEvent::Notified { kind: Notice::Question, text: fields.question("text") }),
        "idle" => Some(HookEvent::TurnOver { turn: None, said: fields.long("text") }),
        "interrupted" => Some(HookEvent::Interrupted),
        "error" => Some(HookEvent::TurnFailed { error: text(), limited: false, until: None }),
        "ended" => Some(HookEvent::Ended { reason: text() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Adapter;
    use crate::payload::parse;

    #[test]
    fn a_question_that_is_cut_says_so() {
        let long = "x".repeat(9000);
        for event in ["permission", "attention"] {
            let whole = format!(r#"{{"event":"{event}","text":"npm test #{long}; rm -rf x"}}"#);
            for (written, end) in [
                (whole.as_str(), " more bytes; see its terminal)"),
                (&whole[..99], "... (the rest is cut off; see its terminal)"),
            ] {
                let signal = parse(Adapter::None, written.as_bytes()).unwrap().signal;
                let Some(HookEvent::Permission { text, .. } | HookEvent::Notified { text, .. }) = signal
                else {
                    panic!("{event}")
                };
                assert!(text.starts_with("npm test #xx") && text.ends_with(end), "{text}");
                assert!(text.len() <= protocol::activity::ASK_MAX);
            }
        }
    }

    #[test]
    fn a_permission_is_for_all_arguments_of_the_tool() {
        let asked = |input: &str| {
            let json = format!(r#"{{"event":"permission","tool":"edit","text":"/x","input":{input}}}"#);
            match parse(Adapter::Opencode, json.as_bytes()).unwrap().signal {
                Some(HookEvent::Permission { text, .. }) => text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(asked(r#"{"filePath":"/x","newString":"evil"}"#), "/x\n{\"newString\":\"evil\"}");
        for none in ["{}", "null", "3"] {
            assert_eq!(asked(none), "/x");
        }
    }

    #[test]
    fn every_event_of_a_script_has_a_meaning() {
        let said = |json: &str| parse(Adapter::None, json.as_bytes()).unwrap();
        let prompt = said(r#"{"event":"prompt","text":"do it","conversation":"c1"}"#);
        assert_eq!(prompt.conversation.as_deref(), Some("c1"));
        assert_eq!(prompt.signal, Some(HookEvent::Prompt { text: "do it".into(), cut: false, turn: None }));
        let events = [
            "started",
            "working",
            "tool",
            "permission",
            "attention",
            "idle",
            "interrupted",
            "error",
            "ended",
        ];
        for event in events {
            assert!(said(&format!(r#"{{"event":"{event}"}}"#)).signal.is_some(), "{event}");
        }
        assert_eq!(said(r#"{"event":"prompt"}"#).signal, None, "a prompt has a text");
        assert_eq!(said(r#"{"event":"danced"}"#).signal, None);
        assert_eq!(parse(Adapter::None, br#"{"text":"x"}"#), None);
    }
}
