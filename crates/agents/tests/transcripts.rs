//! Transcripts: `transcripts/*.jsonl` were written by Claude Code 2.1.197 and Codex 0.169.0.

use agents::Adapter::{self, Claude, Codex};
use agents::transcript::{self, RecordedPrompt, TurnOutcome, UsageLimit, tokens, turn_end};
use proptest::prelude::*;
use protocol::Timestamp;

fn record(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/transcripts/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the record up to the last line with these words.
fn until<'a>(record: &'a [u8], words: &str) -> &'a [u8] {
    let text = std::str::from_utf8(record).unwrap();
    let at = text.rfind(words).unwrap_or_else(|| panic!("no {words}"));
    let end = at + text[at..].find('\n').unwrap();
    &record[..=end]
}

fn at(time: &str) -> Option<Timestamp> {
    let time = humantime::parse_rfc3339(time).unwrap();
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap();
    Some(Timestamp(u64::try_from(since.as_millis()).unwrap()))
}

/// Returns the texts of the prompts; queued ones end in `…`.
fn prompts(adapter: Adapter, tail: &[u8]) -> Vec<String> {
    let mark = |prompt: &RecordedPrompt| if prompt.queued { "…" } else { "" };
    let prompts = transcript::prompts(adapter, tail);
    prompts.iter().map(|prompt| format!("{}{}", prompt.text, mark(prompt))).collect()
}

/// Returns the time at which the newest turn was interrupted.
fn interrupted_at(adapter: Adapter, tail: &[u8]) -> Option<Timestamp> {
    turn_end(adapter, tail).filter(|end| end.outcome == TurnOutcome::Interrupted)?.at
}

/// Returns the usage limit at which the newest turn failed.
fn usage_limit(adapter: Adapter, tail: &[u8]) -> Option<UsageLimit> {
    match turn_end(adapter, tail)?.outcome {
        TurnOutcome::Limited(limit) => Some(limit),
        _ => None,
    }
}

#[test]
fn the_prompts_of_both_are_read() {
    let claude = [
        "SLOW one",
        "two…",
        "three…",
        "two",
        "three",
        "SLOW esc early",
        "SLOW esc earlynext prompt",
        "SLOWEND esc mid",
        "SLOWEND again",
        "after esc",
        "SLOWEND q",
        "queued text…",
        "queued text",
    ];
    assert_eq!(prompts(Claude, &record("claude-esc")), claude);
    let codex = prompts(Codex, &record("codex-esc"));
    assert_eq!(codex[..5], ["SLOW one", "two", "three", "SLOW esc early", "next prompt"]);
    let first = &transcript::prompts(Claude, &record("claude-esc"))[0];
    assert_eq!(first.at, at("2026-11-22T13:57:35.382Z"));
    assert_eq!(prompts(Adapter::None, &record("claude-esc")), [""; 0]);
}

#[test]
fn an_interrupted_turn_is_known_until_the_next_prompt() {
    let record = record("claude-esc");
    let stopped = until(&record, "msg_1795355880912");
    assert_eq!(interrupted_at(Claude, stopped), at("2026-11-22T13:58:02.876Z"));
    assert_eq!(interrupted_at(Claude, until(&record, "SLOWEND again")), None);
    assert_eq!(interrupted_at(Claude, until(&record, "SLOWEND esc mid")), None);
    // A queued prompt does not begin a turn.
    let queued = br#"{"type":"queue-operation","operation":"enqueue","content":"later"}"#;
    assert!(interrupted_at(Claude, &[stopped, queued].concat()).is_some());
    // A user may type the same words.
    let written = r#"{"type":"user","message":{"role":"user","content":"[Request interrupted by user]"}}"#;
    assert_eq!(turn_end(Claude, written.as_bytes()), None);
}

#[test]
fn an_interrupted_turn_of_codex_names_itself() {
    let record = record("codex-esc");
    let stopped = until(&record, r#""type":"turn_aborted""#);
    let end = turn_end(Codex, stopped).unwrap();
    assert_eq!((end.outcome, end.at), (TurnOutcome::Interrupted, interrupted_at(Codex, stopped)));
    assert!(end.turn.is_some_and(|turn| turn.len() == 36));
    assert_eq!(interrupted_at(Codex, &record), None);
}

#[test]
fn the_end_of_a_turn_is_known() {
    for (adapter, name) in [(Claude, "claude-esc"), (Codex, "codex-esc"), (Codex, "codex-limit")] {
        assert_eq!(
            turn_end(adapter, &record(name)).map(|end| end.outcome),
            Some(TurnOutcome::Done),
            "{name}"
        );
    }
    assert_eq!(turn_end(Claude, until(&record("claude-esc"), "after esc")), None);
    assert_eq!(turn_end(Codex, until(&record("codex-esc"), "task_started")), None);
}

#[test]
fn a_usage_limit_is_known_until_the_next_prompt() {
    let claude = record("claude-limit");
    let met = until(&claude, r#""error":"rate_limit""#);
    let found = usage_limit(Claude, met).unwrap();
    assert_eq!(found.until, None);
    assert!(found.text.starts_with("API Error: Request rejected (429)"), "{}", found.text);
    assert_eq!(usage_limit(Claude, until(&claude, "ERROR now")), None);
    let outcome = turn_end(Claude, until(&claude, "API Error: 400 mock error")).unwrap().outcome;
    assert_eq!(outcome, TurnOutcome::Failed("API Error: 400 mock error".to_owned()));

    let codex = record("codex-limit");
    let met = until(&codex, "usage_limit_exceeded");
    assert!(usage_limit(Codex, met).unwrap().text.contains("try again at 2:59 PM"));
    assert_eq!(usage_limit(Codex, until(&codex, "ERROR now")), None);
    assert!(matches!(turn_end(Codex, until(&codex, "mock error")).unwrap().outcome, TurnOutcome::Failed(_)));
}

#[test]
fn when_a_limit_ends_is_told() {
    let text = "You've hit your session limit · resets 3:14pm (UTC)".to_owned();
    let found = usage_limit(Claude, &record("claude-session-limit"));
    assert_eq!(found, Some(UsageLimit { until: at("2026-11-22T15:14:00Z"), text }));

    let count = |used: f64| {
        format!(
            r#"{{"type":"event_msg","payload":{{"type":"token_count","rate_limits":{{"primary":{{"used_percent":{used},"resets_at":1795360000}},"secondary":{{"used_percent":100.0,"resets_at":1795350000}}}}}}}}
{{"type":"event_msg","payload":{{"type":"task_complete","turn_id":"t","error":{{"message":"m","codex_error_info":"usage_limit_exceeded"}}}}}}
"#
        )
    };
    assert_eq!(
        usage_limit(Codex, count(100.0).as_bytes()).unwrap().until,
        Some(Timestamp(1_795_360_000_000))
    );
    assert_eq!(usage_limit(Codex, count(40.0).as_bytes()).unwrap().until, Some(Timestamp(1_795_350_000_000)));
}

#[test]
fn tokens_are_those_of_the_newest_answer() {
    assert_eq!(tokens(Claude, &record("claude-esc")), Some(15));
    assert_eq!(tokens(Codex, &record("codex-esc")), Some(2));
    assert_eq!(tokens(Claude, &record("codex-esc")), None);
    assert_eq!(tokens(Adapter::None, &record("codex-esc")), None);
    let answer = |input, side| {
        format!(
            r#"{{"type":"assistant","isSidechain":{side},"message":{{"usage":{{"input_tokens":{input},"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":4000}}}}}}
"#
        )
    };
    let both = answer(1, false) + &answer(7, true);
    assert_eq!(tokens(Claude, both.as_bytes()), Some(4321), "not those of a subagent");
}

#[test]
fn what_waited_is_told_of_again_when_it_is_taken_into_the_turn() {
    let lines = [
        r#"{"type":"queue-operation","operation":"enqueue","timestamp":"2026-11-22T14:28:18.651Z","content":"mid turn"}"#,
        r#"{"type":"assistant","message":{}}"#,
        r#"{"type":"queue-operation","operation":"remove","timestamp":"2026-11-22T14:28:25.157Z"}"#,
        r#"{"attachment":{"type":"queued_command","prompt":"mid turn","commandMode":"prompt"},"type":"attachment"}"#,
        r#"{"attachment":{"type":"queued_command","prompt":"<x/>","commandMode":"task-notification"},"type":"attachment"}"#,
        r#"{"attachment":{"type":"skill_listing","content":"x"},"type":"attachment"}"#,
    ];
    assert_eq!(prompts(Claude, lines.join("\n").as_bytes()), ["mid turn…", "mid turn"]);
}

#[test]
fn commands_and_results_of_tools_are_no_prompts() {
    let lines = [
        r#"{"type":"user","message":{"content":"<command-name>/model</command-name>"}}"#,
        r#"{"type":"user","message":{"content":"<local-command-stdout>x</local-command-stdout>"}}"#,
        r#"{"type":"user","message":{"content":[{"type":"tool_result","content":"x"}]}}"#,
        r#"{"type":"user","isMeta":true,"message":{"content":"x"}}"#,
        r#"{"type":"user","isSidechain":true,"message":{"content":"x"}}"#,
        r#"{"type":"user","isCompactSummary":true,"message":{"content":"x"}}"#,
        r#"{"type":"queue-operation","operation":"remove","content":"x"}"#,
        r#"{"type":"user","message":{"content":[{"type":"text","text":"with a picture"},{"type":"image"}]}}"#,
    ];
    assert_eq!(prompts(Claude, lines.join("\n").as_bytes()), ["with a picture"]);
}

#[test]
fn a_record_may_be_read_from_anywhere() {
    for (adapter, name) in [(Claude, "claude-esc"), (Codex, "codex-limit")] {
        let record = record(name);
        let all = prompts(adapter, &record);
        for start in (0..record.len()).step_by(127) {
            let tail = prompts(adapter, &record[start..]);
            assert!(all.ends_with(&tail), "from {start}");
            assert_eq!(
                turn_end(adapter, &record).is_some(),
                turn_end(adapter, &record[start..]).is_some() || tail.is_empty()
            );
        }
        for end in (0..record.len()).step_by(127) {
            assert!(all.starts_with(&prompts(adapter, &record[..end])), "to {end}");
        }
    }
}

/// Lines of the agents' form with any content.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just("user"),
        Just("assistant"),
        Just("event_msg"),
        Just("queue-operation"),
        Just("enqueue"),
        Just("task_complete"),
        Just("item_completed"),
        Just("system"),
        Just("turn_duration"),
        Just("rate_limit"),
        Just("usage_limit_exceeded"),
    ];
    let leaf = prop_oneof![
        word.prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        any::<bool>().prop_map(serde_json::Value::from),
    ];
    let name = prop_oneof![
        Just("type"),
        Just("message"),
        Just("content"),
        Just("payload"),
        Just("item"),
        Just("text"),
        Just("usage"),
        Just("error"),
        Just("info"),
        Just("last_token_usage"),
        Just("total_tokens"),
        Just("input_tokens"),
        Just("output_tokens"),
        Just("timestamp"),
        Just("operation"),
        Just("rate_limits"),
        Just("primary"),
        Just("resets_at"),
        Just("used_percent"),
        Just("isApiErrorMessage"),
        Just("subtype"),
    ];
    let value = leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            proptest::collection::vec((name.clone(), inner), 0..7).prop_map(|pairs| {
                let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value));
                serde_json::Value::Object(pairs.collect())
            }),
        ]
    });
    proptest::collection::vec(value, 0..6)
        .prop_map(|values| values.iter().flat_map(|value| format!("{value}\n").into_bytes()).collect())
}

fn read_all(tail: &[u8]) {
    for adapter in [Claude, Codex, Adapter::Gemini, Adapter::None] {
        drop(transcript::prompts(adapter, tail));
        drop((turn_end(adapter, tail), tokens(adapter, tail)));
    }
}

#[test]
fn deep_nesting_is_skipped() {
    let deep = [vec![b'['; 100_000], b"\n".to_vec(), vec![b'{'; 1000]].concat();
    read_all(&deep);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_lines_can_be_read(tail in lines()) {
        read_all(&tail);
    }
}
