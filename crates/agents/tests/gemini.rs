//! Screens, transcripts and prompts of Gemini CLI 0.61.0: `screens/gemini-*.ansi` are captures of it,
//! `transcripts/gemini-esc.jsonl` is a record that it wrote.

use agents::Adapter::Gemini;
use agents::prompt::{TextMatch, compare, ends_with_line, escape, is_command};
use agents::screen::{self, Composer, Screen};
use agents::transcript::{self, TurnOutcome, turn_end};

fn capture(name: &str) -> Screen {
    let path = format!("{}/tests/screens/gemini-{name}.ansi", env!("CARGO_MANIFEST_DIR"));
    Screen::new(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

fn composer(name: &str) -> Composer {
    screen::composer(Gemini, &capture(name), (0, 0))
}

#[test]
fn a_composer_with_nothing_but_its_placeholder_is_empty() {
    let works = [
        ("resumed", Some(false)),
        ("dull", Some(false)),
        ("no-focus", Some(false)),
        ("busy", Some(true)),
        ("queued", Some(true)),
        ("after", Some(false)),
        ("interrupted", None),
        ("error", Some(false)),
        ("help", Some(false)),
        ("yolo", Some(false)),
        ("small", None),
    ];
    for (name, works) in works {
        let screen = capture(name);
        assert_eq!(composer(name), Composer::Empty, "{name}");
        assert_eq!(screen::dialog(Gemini, &screen), None, "{name}");
        assert_eq!(screen::is_working(Gemini, &screen), works, "{name}");
    }
}

#[test]
fn what_is_written_in_the_composer_is_seen() {
    let holds = [
        ("draft", "half a thought"),
        ("dull-draft", "half"),
        ("lines", "third"),
        ("wrapped", "that it has to be wrapped here"),
        ("pasted", "[Pasted Text: 31 lines]"),
        ("menu", "/"),
        ("bash", "!   Type your shell command"),
        ("search", "(r:)    Type your message or @path/to/file"),
    ];
    for (name, text) in holds {
        assert_eq!(composer(name), Composer::Holds(text.to_owned()), "{name}");
    }
}

/// Gemini CLI shows a composer before its startup dialogs, and before it takes up its conversation.
#[test]
fn it_is_not_ready_while_it_starts() {
    for name in ["starting", "starting-dull", "resuming"] {
        let screen = capture(name);
        assert_eq!(composer(name), Composer::Hidden, "{name}");
        assert_eq!(
            (screen::is_working(Gemini, &screen), screen::dialog(Gemini, &screen)),
            (None, None),
            "{name}"
        );
    }
}

#[test]
fn a_conversation_that_it_does_not_find_is_told_by_its_output() {
    let none: &[u8] = b"Error resuming session: No previous sessions found for this project.\r\n";
    let other = b"Error resuming session: Invalid session identifier \"a989\".\r\n  Searched for sessions";
    for output in [none, other] {
        assert!(transcript::says_conversation_missing(Gemini, output));
    }
    let fault = b"Error resuming session: EACCES: permission denied";
    assert!(!transcript::says_conversation_missing(Gemini, fault), "that proves nothing");
}

#[test]
fn its_dialogs_are_known() {
    let dialogs = [
        ("trust", "trust", true),
        ("login", "login", true),
        ("permission", "permission", false),
        ("permission-small", "permission", false),
        ("usage-limit", "usage_limit", false),
        ("model", "menu", false),
        ("theme", "menu", false),
    ];
    for (name, dialog, is_startup) in dialogs {
        let screen = capture(name);
        let found = screen::dialog(Gemini, &screen).unwrap_or_else(|| panic!("{name}"));
        assert_eq!((found.name.as_str(), found.is_startup), (dialog, is_startup), "{name}");
        assert_eq!(composer(name), Composer::Hidden, "{name}");
        assert_eq!(screen::is_working(Gemini, &screen), None, "{name}");
    }
}

#[test]
fn a_dialog_says_what_is_asked() {
    let text = screen::dialog(Gemini, &capture("permission")).unwrap().text;
    let all = "? Shell  touch /home/user/w/made\ntouch /home/user/w/made\nAllow execution of [Shell]?\n● 1. Allow once\n\
               2. Allow for this session\n3. No, suggest changes (esc)";
    assert_eq!(text, all);
}

const RECORD: &[u8] = include_bytes!("transcripts/gemini-esc.jsonl");

/// Returns the record up to the last line with these words.
fn until(words: &str) -> &'static [u8] {
    let text = std::str::from_utf8(RECORD).unwrap();
    let at = text.rfind(words).unwrap_or_else(|| panic!("no {words}"));
    &RECORD[..=at + text[at..].find('\n').unwrap()]
}

#[test]
fn its_record_tells_of_prompts_and_of_what_broke_them_off() {
    let prompts: Vec<_> = transcript::prompts(Gemini, RECORD).into_iter().map(|prompt| prompt.text).collect();
    assert_eq!(prompts, ["hello\nthere – é", "SLOW one", "ERROR now", "SLOWEND two", "after"]);
    assert_eq!(turn_end(Gemini, RECORD), None, "only a hook reports the end of an answer");
    assert_eq!(transcript::tokens(Gemini, RECORD), Some(15));
    let outcome = |words| turn_end(Gemini, until(words)).map(|end| end.outcome);
    assert_eq!(outcome("\"SLOW one\""), None);
    assert_eq!(outcome("Request cancelled."), Some(TurnOutcome::Interrupted));
    let error = r#"[API Error: {"error":{"code":400,"status":"INVALID_ARGUMENT","message":"mock error"}}]"#;
    assert_eq!(outcome("This request failed."), Some(TurnOutcome::Failed(error.to_owned())));
    assert!(turn_end(Gemini, until("Request cancelled.")).unwrap().at.is_some());
}

#[test]
fn no_prompt_is_a_command() {
    for text in ["/clear", " \n/clear", "\u{200b} /clear", "/foo/bar.txt is a path", "/"] {
        assert!(is_command(Gemini, text), "{text:?}");
        let typed = escape(Gemini, text);
        assert!(typed.starts_with("\u{2060}/") && !is_command(Gemini, &typed), "{typed:?}");
        assert_eq!(compare(Gemini, text, &typed, false), TextMatch::Exact);
    }
    for text in ["// a comment", "/* another */", "see /clear", " !echo hi"] {
        assert!(!is_command(Gemini, text), "{text:?}");
    }
}

#[test]
fn a_long_text_that_was_pasted_is_known_in_its_place() {
    assert!(ends_with_line(&"1\n".repeat(30), "[Pasted Text: 31 lines]"));
    assert!(!ends_with_line("short", "[Pasted Text: 31 lines]"));
    assert!(
        ends_with_line("zero\u{200b}width\u{200d}joiner", "zerowidthjoiner"),
        "what has no width is not shown"
    );
}
