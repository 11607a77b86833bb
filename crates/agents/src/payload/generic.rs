//! Reports in a form of our own: of programs that the pool does not know, and of agents whose hooks the pool itself writes.

use protocol::hook::{Signal, ToolUse};

use super::Report;
use super::fields::{Fields, clip};

pub(super) fn report(fields: &Fields) -> Option<Report> {
    let event = fields.word("event")?;
    let signal = signal(&event, fields);
    Some(Report { event, conversation: fields.id("conversation"), transcript: None, signal })
}

fn signal(event: &str, fields: &Fields) -> Option<Signal> {
    let text = || clip(fields.text("text").unwrap_or_default(), protocol::activity::ASK_MAX);
    match event {
        "started" => Some(Signal::Started { source: text() }),
        "prompt" => fields.prompt("text", None),
        "working" => Some(Signal::Working { what: fields.word("text"), skill: None }),
        "tool" => Some(Signal::ToolUsed(Box::new(ToolUse {
            id: None,
            tool: fields.word_or_nothing("text"),
            input: fields.json("input"),
            response: fields.json("response"),
            failed: fields.is_true("failed"),
            cwd: None,
        }))),
        "permission" => {
            Some(Signal::Permission { tool: fields.word_or_nothing("tool"), text: text(), wait_ms: 0 })
        }
        "attention" => Some(Signal::Notified { kind: "attention".to_owned(), text: text() }),
        "idle" => Some(Signal::TurnOver { turn: None, said: fields.long("text") }),
        "interrupted" => Some(Signal::Interrupted),
        "error" => Some(Signal::TurnFailed { error: text(), limited: false, until: None }),
        "ended" => Some(Signal::Ended { reason: text() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Adapter;
    use crate::payload::parse;

    #[test]
    fn every_event_of_a_script_has_a_meaning() {
        let said = |json: &str| parse(Adapter::None, json.as_bytes()).unwrap();
        let prompt = said(r#"{"event":"prompt","text":"do it","conversation":"c1"}"#);
        assert_eq!(prompt.conversation.as_deref(), Some("c1"));
        assert_eq!(prompt.signal, Some(Signal::Prompt { text: "do it".into(), cut: false, turn: None }));
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
