//! Prompts as the agents receive them: `prompts/*.jsonl` records texts that were typed into Claude Code
//! 2.1.197 and Codex 0.169.0 without escaping, and the text that the prompt hook reported; null if no hook
//! was called.

use agents::Adapter::{self, Claude, Codex, Gemini};
use agents::prompt::{TextMatch, compare, escape, is_blank, is_command};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Trial {
    typed: String,
    received: Option<String>,
}

fn trials(adapter: Adapter, name: &str) -> Vec<(Adapter, Trial)> {
    let path = format!("{}/tests/prompts/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| (adapter, serde_json::from_str(line).unwrap())).collect()
}

fn all() -> Vec<(Adapter, Trial)> {
    let mut all = trials(Claude, "claude");
    all.extend(trials(Codex, "codex"));
    assert!(all.len() > 150, "{}", all.len());
    all
}

/// True if a text is typed as it is, without the blanks around it.
fn is_unescaped(adapter: Adapter, text: &str) -> bool {
    let blank = |c: char| c.is_whitespace() || c == '\u{feff}';
    escape(adapter, text) == text.trim_matches(blank)
}

#[test]
fn w17_what_did_not_arrive_as_it_was_typed_is_typed_in_another_way() {
    for (adapter, trial) in all() {
        let arrived = trial
            .received
            .as_ref()
            .map_or(TextMatch::Different, |received| compare(adapter, &trial.typed, received, false));
        let kept =
            is_blank(&trial.typed) || arrived == TextMatch::Exact || !is_unescaped(adapter, &trial.typed);
        assert!(kept, "{adapter:?}: {:?} was received as {:?}", trial.typed, trial.received);
    }
}

#[test]
fn w17_what_is_typed_in_another_way_is_one_that_arrived() {
    let all = all();
    let mut proved = 0;
    for (adapter, trial) in all.iter().filter(|(_, trial)| !is_blank(&trial.typed)) {
        let typed = escape(*adapter, &trial.typed);
        let same = |(other, one): &&(Adapter, Trial)| other == adapter && one.typed == typed;
        let Some((_, again)) = all.iter().find(same) else { continue };
        let received =
            again.received.as_ref().unwrap_or_else(|| panic!("{adapter:?}: {typed:?} was not received"));
        assert_eq!(
            compare(*adapter, &trial.typed, received, false),
            TextMatch::Exact,
            "{adapter:?}: {typed:?}"
        );
        proved += usize::from(typed != trial.typed);
    }
    assert!(proved > 30, "{proved}");
}

#[test]
fn what_no_hook_told_of_is_a_command() {
    for (adapter, trial) in all() {
        let typed = &trial.typed;
        if is_blank(typed) {
            assert_eq!(trial.received, None);
            continue;
        }
        // Codex's list of skills took the Enter: not one of its commands.
        let listed = adapter == Codex && typed.ends_with("$x");
        assert!(trial.received.is_some() || listed || is_command(adapter, typed), "{adapter:?}: {typed:?}");
        let careful = adapter == Codex && typed == "/ foo";
        assert!(trial.received.is_none() || careful || !is_command(adapter, typed), "{adapter:?}: {typed:?}");
        assert!(!is_command(adapter, &escape(adapter, typed)), "{adapter:?}: {typed:?}");
    }
}

#[test]
fn what_ends_claude_arrives_as_a_prompt() {
    for word in ["exit", " quit ", ":q", ":q!", ":wq", ":wq!\n"] {
        let typed = escape(Claude, word);
        assert!(typed.ends_with("\n\n\n"), "{typed:?}");
        assert_eq!(compare(Claude, word, &typed, false), TextMatch::Exact);
        assert!(is_command(Claude, word), "{word}");
    }
    assert_eq!(escape(Codex, "exit"), "exit");
}

#[test]
fn w17_quotes_dollars_and_lines_are_typed_as_they_are() {
    for text in [
        "fix Bob's \"thing\"",
        "echo $HOME `x` $(y) \\n %s",
        "one\ntwo\n\nthree",
        "-- --help",
        "#1; ls",
        "日本語 👩‍👩‍👧",
    ] {
        for adapter in [Claude, Codex, Gemini, Adapter::None] {
            assert_eq!(escape(adapter, text), text);
        }
    }
    assert_eq!(escape(Adapter::None, "!ls @x "), "!ls @x ");
}

#[test]
fn a_draft_around_the_text_is_told_from_another_text() {
    assert_eq!(compare(Claude, "next prompt", "SLOW esc earlynext prompt", false), TextMatch::Surrounded);
    assert_eq!(compare(Claude, "next prompt", "next", false), TextMatch::Different);
    assert_eq!(compare(Claude, "next prompt", "", false), TextMatch::Different);
    assert_eq!(compare(Claude, "", "anything", false), TextMatch::Different);
    assert_eq!(compare(Codex, "a\tb", "a    b", false), TextMatch::Altered);
    assert_eq!(compare(Claude, "tab\there", "tabhere", false), TextMatch::Altered);
    assert_eq!(compare(Claude, "next prompt", "ext prompt", false), TextMatch::Altered);
    assert_eq!(compare(Claude, "a\tb", "a    b", false), TextMatch::Exact);
    assert_eq!(compare(Codex, "e\u{301}", "é", false), TextMatch::Different);
    assert_eq!(compare(Claude, "e\u{301}", "é", false), TextMatch::Exact);
}

#[test]
fn of_a_text_that_was_cut_all_that_there_is_is_compared() {
    let long = "line of text é\n".repeat(30_000);
    for end in [300_001, 300_002, 299_990] {
        let end = (0..=end).rev().find(|end| long.is_char_boundary(*end)).unwrap();
        let received = &long[..end];
        assert_eq!(compare(Claude, &long, received, true), TextMatch::Exact);
        assert_eq!(compare(Claude, &long, received, false), TextMatch::Altered);
        assert_eq!(compare(Claude, &long, &format!("draft{received}"), true), TextMatch::Surrounded);
        assert_eq!(compare(Claude, &format!("x{long}"), received, true), TextMatch::Altered);
    }
    // A combining mark may be cut off its letter.
    assert_eq!(compare(Claude, "abce\u{301}d", "abce", true), TextMatch::Exact);
    assert_eq!(compare(Claude, "anything", "", true), TextMatch::Different);
}

/// Texts with everything that is special to an agent.
fn odd() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[!/@$#&?:\\\\ \t\n\"'a-c]{0,6}",
        Just("exit".to_owned()),
        Just(":q!".to_owned()),
        Just("\u{feff}".to_owned()),
        Just("\u{a0}".to_owned()),
        Just("e\u{301}".to_owned()),
        any::<String>(),
    ];
    proptest::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_typed_is_typed_so_again(text in odd()) {
        for adapter in [Claude, Codex, Gemini, Adapter::None] {
            let once = escape(adapter, &text);
            prop_assert_eq!(escape(adapter, &once), once);
        }
    }

    #[test]
    fn what_is_typed_is_the_text_and_no_command(text in odd()) {
        for adapter in [Claude, Codex, Gemini, Adapter::None] {
            let typed = escape(adapter, &text);
            prop_assert_eq!(compare(adapter, &text, &typed, false), TextMatch::Exact);
            prop_assert!(!is_command(adapter, &typed), "{:?}", typed);
            prop_assert!(is_blank(&text) == is_blank(&typed));
        }
    }

    #[test]
    fn a_text_is_in_what_it_is_in(text in odd(), before in odd(), after in odd()) {
        // Separators, so that a combining mark of one part does not join the other.
        let received = format!("{before}|{text}|{after}");
        let same = compare(Codex, &text, &received, false);
        prop_assert!(same == TextMatch::Surrounded || is_blank(&text), "{:?}", same);
    }
}
