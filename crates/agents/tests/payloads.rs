//! Payloads of hooks, recorded from Claude Code 2.1.197, Codex 0.169.0 and Gemini CLI 0.61.0.

use agents::Adapter;
use agents::payload::{Report, parse};
use proptest::prelude::*;
use protocol::hook::{HookEvent, Notice, PROMPT_MAX, Start, ToolUse};
use serde_json::{Value, json};

macro_rules! recorded {
    ($($name:ident: $adapter:ident $file:literal;)*) => {
        $(const $name: (Adapter, &[u8]) = (Adapter::$adapter, include_bytes!(concat!("payloads/", $file, ".json")));)*
        const ALL: &[(Adapter, &[u8])] = &[$($name),*];
    };
}

recorded! {
    CLAUDE_IDLE: Claude "claude-Notification-idle_prompt";
    CLAUDE_ASKS: Claude "claude-Notification-permission_prompt";
    CLAUDE_PERMISSION: Claude "claude-PermissionRequest";
    CLAUDE_USED: Claude "claude-PostToolUse";
    CLAUDE_USES: Claude "claude-PreToolUse";
    CLAUDE_GONE: Claude "claude-SessionEnd-other";
    CLAUDE_EXIT: Claude "claude-SessionEnd-prompt_input_exit";
    CLAUDE_RESUMED: Claude "claude-SessionStart-resume";
    CLAUDE_STARTED: Claude "claude-SessionStart-startup";
    CLAUDE_STOP: Claude "claude-Stop";
    CLAUDE_LIMITED: Claude "claude-StopFailure-rate_limit";
    CLAUDE_FAILED: Claude "claude-StopFailure-unknown";
    CLAUDE_PROMPT: Claude "claude-UserPromptSubmit";
    CODEX_INTERRUPT: Codex "codex-Interrupt";
    CODEX_PERMISSION: Codex "codex-PermissionRequest";
    CODEX_USED: Codex "codex-PostToolUse";
    CODEX_USES: Codex "codex-PreToolUse";
    CODEX_GONE: Codex "codex-SessionEnd-other";
    CODEX_RESUMED: Codex "codex-SessionStart-resume";
    CODEX_STARTED: Codex "codex-SessionStart-startup";
    CODEX_STOP: Codex "codex-Stop";
    CODEX_PROMPT: Codex "codex-UserPromptSubmit";
    GEMINI_OVER: Gemini "gemini-AfterAgent";
    GEMINI_USED: Gemini "gemini-AfterTool";
    GEMINI_PROMPT: Gemini "gemini-BeforeAgent";
    GEMINI_USES: Gemini "gemini-BeforeTool";
    GEMINI_ASKS: Gemini "gemini-Notification-ToolPermission";
    GEMINI_EXIT: Gemini "gemini-SessionEnd-exit";
    GEMINI_RESUMED: Gemini "gemini-SessionStart-resume";
    GEMINI_STARTED: Gemini "gemini-SessionStart-startup";
}

fn read((adapter, input): (Adapter, &[u8])) -> Report {
    parse(adapter, input).unwrap()
}

fn signal(recorded: (Adapter, &[u8])) -> HookEvent {
    read(recorded).signal.unwrap()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn every_report_names_its_event_conversation_and_record() {
    for recorded in ALL {
        let report = read(*recorded);
        let json: serde_json::Value = serde_json::from_slice(recorded.1).unwrap();
        assert_eq!(report.event, json["hook_event_name"]);
        assert_eq!(report.conversation.as_deref(), json["session_id"].as_str());
        assert_eq!(report.transcript.unwrap().to_string_lossy(), json["transcript_path"].as_str().unwrap());
        assert!(report.signal.is_some(), "{}", report.event);
    }
}

#[test]
fn a_prompt_is_told_whole_with_its_turn() {
    let claude = HookEvent::Prompt {
        text: "see @x\n\n\n".into(),
        cut: false,
        turn: some("8da88cca-2cbf-466b-a4e8-21fa21457061"),
    };
    assert_eq!(signal(CLAUDE_PROMPT), claude);
    let turn = some("01a20381-df0d-7f73-b4b7-1e7fa86daf21");
    assert_eq!(signal(CODEX_PROMPT), HookEvent::Prompt { text: "hello there".into(), cut: false, turn });
}

#[test]
fn the_end_of_a_turn_names_it_and_what_was_said_last() {
    let turn = some("8da88cca-2cbf-466b-a4e8-21fa21457061");
    assert_eq!(signal(CLAUDE_STOP), HookEvent::TurnOver { turn, said: some("MOCKREPLY ok") });
    let turn = some("01a20381-df0d-7f73-b4b7-1e7fa86daf21");
    assert_eq!(signal(CODEX_STOP), HookEvent::TurnOver { turn, said: some("MOCKREPLY codex") });
    assert_eq!(signal(CODEX_INTERRUPT), HookEvent::Interrupted);
}

#[test]
fn a_failed_turn_tells_a_limit_from_an_error() {
    let limited = HookEvent::TurnFailed {
        error: "rate_limit: You've hit your session limit · resets 3pm (UTC)".into(),
        limited: true,
        until: None,
    };
    assert_eq!(signal(CLAUDE_LIMITED), limited);
    let failed = HookEvent::TurnFailed {
        error: "unknown: API Error: 400 mock error".into(),
        limited: false,
        until: None,
    };
    assert_eq!(signal(CLAUDE_FAILED), failed);
}

#[test]
fn a_tool_is_told_before_and_after_its_use() {
    let working = HookEvent::Working { what: some("Bash: touch made"), skill: None };
    assert_eq!([signal(CLAUDE_USES), signal(CODEX_USES)], [working.clone(), working]);
    let claude = ToolUse {
        id: some("toolu_1795355309257"),
        tool: "Bash".into(),
        input: r#"{"command":"touch made","description":"make a file"}"#.into(),
        response: r#"{"interrupted":false,"isImage":false,"noOutputExpected":true,"stderr":"","stdout":""}"#
            .into(),
        failed: false,
        cwd: some("/home/user/work"),
    };
    assert_eq!(signal(CLAUDE_USED), HookEvent::ToolUsed(Box::new(claude)));
    let codex = ToolUse {
        id: some("call_1795355703356"),
        tool: "Bash".into(),
        input: r#"{"command":"touch made"}"#.into(),
        response: "\"\"".into(),
        failed: false,
        cwd: some("/home/user/work"),
    };
    assert_eq!(signal(CODEX_USED), HookEvent::ToolUsed(Box::new(codex)));
}

/// Returns the text of Claude Code 2.1.197's permission request for a tool with this input.
fn asked(tool: &str, input: &Value) -> String {
    let said = json!({"hook_event_name": "PermissionRequest", "session_id": "s", "tool_name": tool, "tool_input": input});
    match parse(Adapter::Claude, said.to_string().as_bytes()).unwrap().signal {
        Some(HookEvent::Permission { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn questions_are_shown_as_lines_and_a_plan_as_it_is() {
    let questions = json!({"questions": [
        {"question": "Which\n colour?", "header": "Colour", "multiSelect": false,
            "options": [{"label": "Red", "description": "as a rose"}, {"label": "Dark blue"}]},
        {"question": "Fruits?", "multiSelect": true, "options": [{"label": "Apple"}, {"label": "Pear"}]},
        {"question": "Why?"},
    ]});
    let lines = "Which colour? (Red / Dark blue)\nFruits? (some of Apple / Pear)\nWhy?";
    assert_eq!(asked("AskUserQuestion", &questions), lines);
    for broken in [json!({"questions": []}), json!({}), json!({"questions": [{"question": 7}]})] {
        assert_eq!(asked("AskUserQuestion", &broken), "", "nobody can answer it from outside");
    }
    let long = json!({"questions": vec![json!({"question": "x".repeat(3000)}); 4]});
    let lines = asked("AskUserQuestion", &long);
    assert_eq!(lines.lines().count(), 4, "none is lost");
    assert!(lines.lines().all(|line| line.ends_with(" more bytes; see its terminal)")), "{lines}");
    assert_eq!(asked("ExitPlanMode", &json!({"plan": "# Plan\n1. do it"})), "# Plan\n1. do it");
    assert_eq!(asked("ExitPlanMode", &json!({})), "{}");
}

#[test]
fn a_request_for_a_permission_shows_every_argument_that_counts() {
    for (tool, input, text) in [
        ("Bash", json!({"command": "npm test", "description": "x", "timeout": 5, "y": null}), "npm test"),
        (
            "Bash",
            json!({"command": "npm test", "description": "x", "dangerouslyDisableSandbox": true}),
            "npm test\n{\"dangerouslyDisableSandbox\":true}",
        ),
        ("shell", json!({"command": ["rm", "-rf", "/home/me"]}), "rm -rf /home/me"),
        ("shell", json!({"command": ["sh", "-c", "a; b"], "cwd": "/"}), "sh -c 'a; b'\n{\"cwd\":\"/\"}"),
        ("x", json!({"command": [1], "n": 3}), "{\"n\":3,\"command\":[1]}"),
        (
            "mcp__db__run",
            json!({"description": "list users", "sql": "DROP TABLE users"}),
            "list users\n{\"sql\":\"DROP TABLE users\"}",
        ),
        (
            "Write",
            json!({"file_path": "/x", "content": "long one", "mode": "a"}),
            "/x\n{\"mode\":\"a\",\"content\":\"long one\"}",
        ),
        ("ExitPlanMode", json!({"plan": "do it", "planFilePath": "/p.md"}), "do it"),
        (
            "ExitPlanMode",
            json!({"plan": "do it", "allowedPrompts": [{"prompt": "rm"}]}),
            "do it\n{\"allowedPrompts\":[{\"prompt\":\"rm\"}]}",
        ),
    ] {
        assert_eq!(asked(tool, &input), text);
    }
}

#[test]
fn a_request_for_a_permission_shows_what_would_be_done() {
    let asked = HookEvent::Permission { tool: "Bash".into(), text: "touch made".into(), wait_ms: 0 };
    assert_eq!([signal(CLAUDE_PERMISSION), signal(CODEX_PERMISSION)], [asked.clone(), asked]);
}

#[test]
fn the_beginning_and_end_of_a_conversation_say_why() {
    let starts = [Start::New, Start::Resumed].map(|source| HookEvent::Started { source });
    assert_eq!([signal(CLAUDE_STARTED), signal(CLAUDE_RESUMED)], starts);
    assert_eq!([signal(CODEX_STARTED), signal(CODEX_RESUMED)], starts);
    assert_eq!([signal(GEMINI_STARTED), signal(GEMINI_RESUMED)], starts);
    for (word, source) in [("clear", Start::Cleared), ("compact", Start::Compacted), ("moon", Start::Other)] {
        for adapter in [Adapter::Claude, Adapter::Codex, Adapter::Gemini] {
            let json = json!({"hook_event_name": "SessionStart", "source": word}).to_string();
            let said = parse(adapter, json.as_bytes()).unwrap().signal;
            assert_eq!(said, Some(HookEvent::Started { source }), "{adapter:?} {word}");
        }
        let json = json!({"event": "started", "text": word}).to_string();
        assert_eq!(
            parse(Adapter::None, json.as_bytes()).unwrap().signal,
            Some(HookEvent::Started { source })
        );
    }
    let ended = |reason: &str| HookEvent::Ended { reason: reason.to_owned() };
    assert_eq!([signal(CLAUDE_GONE), signal(CLAUDE_EXIT)], [ended("other"), ended("prompt_input_exit")]);
    assert_eq!(signal(CODEX_GONE), ended("other"));
}

#[test]
fn notices_are_passed_on_by_their_kind() {
    let notice = |kind, text: &str| HookEvent::Notified { kind, text: text.to_owned() };
    assert_eq!(signal(CLAUDE_IDLE), notice(Notice::Idle, "Claude is waiting for your input"));
    assert_eq!(signal(CLAUDE_ASKS), notice(Notice::Permission, "Claude needs your permission"));
    let words = [
        ("auth_success", Some(Notice::LoggedIn)),
        ("elicitation_dialog", Some(Notice::Question)),
        ("agent_completed", None),
        ("elicitation_response", None),
        ("moon", Some(Notice::Question)),
        ("", Some(Notice::Question)),
    ];
    for (word, kind) in words {
        let json = json!({"hook_event_name": "Notification", "notification_type": word, "message": "look"});
        let said = parse(Adapter::Claude, json.to_string().as_bytes()).unwrap().signal;
        assert_eq!(said, kind.map(|kind| notice(kind, "look")), "{word}");
    }
}

#[test]
fn a_compaction_that_was_asked_for_ends_without_a_turn() {
    let said = |json: &str| parse(Adapter::Claude, json.as_bytes()).unwrap().signal;
    let started = HookEvent::Started { source: Start::CompactedOnCommand };
    assert_eq!(said(r#"{"hook_event_name":"PostCompact","trigger":"manual"}"#), Some(started));
    for event in ["PreCompact", "PostCompact"] {
        let json = format!(r#"{{"hook_event_name":"{event}","trigger":"auto"}}"#);
        assert!(matches!(said(&json), Some(HookEvent::Working { .. })), "{event}");
    }
}

#[test]
fn a_subagent_does_not_speak_for_the_session() {
    for adapter in [Adapter::Claude, Adapter::Codex] {
        let said = |event: &str| {
            let json = format!(
                r#"{{"session_id":"c","agent_id":"a","agent_type":"Explore","hook_event_name":"{event}",
                    "prompt":"p","tool_name":"T","source":"startup","trigger":"manual"}}"#
            );
            parse(adapter, json.as_bytes()).unwrap().signal
        };
        for event in ["UserPromptSubmit", "Stop", "StopFailure", "SubagentStop", "Interrupt", "SessionStart"]
        {
            assert_eq!(said(event), None, "{event}");
        }
        for event in ["SessionEnd", "PreCompact", "PostCompact", "Notification"] {
            assert_eq!(said(event), None, "{event}");
        }
        assert_eq!(
            said("SubagentStart"),
            Some(HookEvent::Working { what: some("agent Explore"), skill: None })
        );
        assert!(matches!(said("PreToolUse"), Some(HookEvent::Working { .. })));
        assert!(matches!(said("PostToolUse"), Some(HookEvent::ToolUsed(_))));
        assert!(matches!(said("PermissionRequest"), Some(HookEvent::Permission { .. })));
    }
}

#[test]
fn the_notify_of_codex_names_its_own_thread() {
    let json = br#"{"type":"agent-turn-complete","thread-id":"t1","turn-id":"u1","cwd":"/home/user/work",
        "client":"codex-tui","input-messages":["hello"],"last-assistant-message":"hi"}"#;
    let report = parse(Adapter::Codex, json).unwrap();
    assert_eq!((report.event.as_str(), report.conversation.as_deref()), ("agent-turn-complete", Some("t1")));
    assert_eq!(report.signal, Some(HookEvent::TurnOver { turn: some("u1"), said: some("hi") }));
    assert_eq!(parse(Adapter::Codex, br#"{"type":"something-else"}"#), None);
}

#[test]
fn gemini_is_understood() {
    let prompt = HookEvent::Prompt { text: "hello there\nSLOW one".into(), cut: false, turn: None };
    assert_eq!(signal(GEMINI_PROMPT), prompt);
    let over = HookEvent::TurnOver { turn: None, said: some("MOCKREPLY gemini ") };
    assert_eq!(signal(GEMINI_OVER), over);
    let does = "run_shell_command: touch /home/user/work/made";
    assert_eq!(signal(GEMINI_USES), HookEvent::Working { what: some(does), skill: None });
    let HookEvent::ToolUsed(used) = signal(GEMINI_USED) else { panic!() };
    assert!(used.tool == "run_shell_command" && !used.failed && used.response.contains("Output: (empty)"));
    let failed = br#"{"hook_event_name":"AfterTool","tool_response":{"error":{"message":"no"}}}"#;
    assert!(matches!(signal((Adapter::Gemini, failed)), HookEvent::ToolUsed(used) if used.failed));
    let text = "Tool Confirm Shell Command requires execution".to_owned();
    assert_eq!(signal(GEMINI_ASKS), HookEvent::Notified { kind: Notice::Permission, text });
    assert_eq!(signal(GEMINI_EXIT), HookEvent::Ended { reason: "exit".into() });
    let compresses = br#"{"session_id":"g1","hook_event_name":"PreCompress","trigger":"auto"}"#;
    assert_eq!(read((Adapter::Gemini, compresses)).signal, None, "it tells of this before every answer");
}

/// The turn was interrupted or failed; only the transcript tells which.
#[test]
fn a_turn_of_gemini_without_an_answer_is_not_done() {
    let recorded = include_bytes!("payloads/gemini-AfterAgent-no-answer.json");
    let report = read((Adapter::Gemini, recorded));
    assert_eq!((report.event.as_str(), report.signal), ("AfterAgent", None));
}

#[test]
fn a_long_prompt_is_cut_and_says_so() {
    let text = "é".repeat(PROMPT_MAX);
    let whole =
        format!(r#"{{"session_id":"c","hook_event_name":"UserPromptSubmit","prompt":"{text}","later":"x"}}"#);
    for input in [whole.as_bytes(), &whole.as_bytes()[..PROMPT_MAX + 80]] {
        let report = parse(Adapter::Claude, input).unwrap();
        assert_eq!(report.conversation.as_deref(), Some("c"));
        match report.signal {
            Some(HookEvent::Prompt { text: begun, cut: true, .. }) => {
                assert!(text.starts_with(&begun) && begun.len() >= PROMPT_MAX - 4, "{}", begun.len());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_prompt_that_was_cut_off_says_so() {
    let cut = br#"{"session_id":"c","hook_event_name":"UserPromptSubmit","prompt":"do it\nand th"#;
    let prompt = HookEvent::Prompt { text: "do it\nand th".into(), cut: true, turn: None };
    assert_eq!(parse(Adapter::Claude, cut).unwrap().signal, Some(prompt));
}

proptest! {
    /// A report that is cut anywhere is this report or none: it never has another conversation or text.
    #[test]
    fn a_cut_report_says_nothing_else(which in 0..ALL.len(), part in 0.0..1.0f64) {
        let (adapter, input) = ALL[which];
        let whole = read(ALL[which]);
        let at = (input.len() as f64 * part) as usize;
        if let Some(cut) = parse(adapter, &input[..at]) {
            prop_assert_eq!(cut.event, whole.event);
            prop_assert!(cut.conversation.is_none() || cut.conversation == whole.conversation);
        }
    }

    /// A report with any byte changed is read without a panic.
    #[test]
    fn a_spoilt_report_is_read(which in 0..ALL.len(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (adapter, input) = ALL[which];
        let mut spoilt = input.to_vec();
        let at = at.index(spoilt.len());
        spoilt[at] = byte;
        for adapter in [adapter, Adapter::Gemini, Adapter::None] {
            let _read = parse(adapter, &spoilt);
        }
    }
}
