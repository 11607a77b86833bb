//! What arrives of texts: `texts/*.jsonl` says what was typed into the real agents (Claude Code 2.1.197, Codex 0.169.0)
//! as it stands, and what their prompt hooks told then; null where none did.

use agents::Adapter::{self, Claude, Codex, Gemini};
use agents::text::{Same, compare, is_blank, is_command, literal};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Trial {
    typed: String,
    heard: Option<String>,
}

fn trials(adapter: Adapter, name: &str) -> Vec<(Adapter, Trial)> {
    let path = format!("{}/tests/texts/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| (adapter, serde_json::from_str(line).unwrap())).collect()
}

fn all() -> Vec<(Adapter, Trial)> {
    let mut all = trials(Claude, "claude");
    all.extend(trials(Codex, "codex"));
    assert!(all.len() > 150, "{}", all.len());
    all
}

/// Whether what is typed for a text is the text, but for blanks around it.
fn is_left(adapter: Adapter, text: &str) -> bool {
    let blank = |c: char| c.is_whitespace() || c == '\u{feff}';
    literal(adapter, text) == text.trim_matches(blank)
}

#[test]
fn w17_what_did_not_arrive_as_it_was_typed_is_typed_in_another_way() {
    for (adapter, trial) in all() {
        let arrived =
            trial.heard.as_ref().map_or(Same::No, |heard| compare(adapter, &trial.typed, heard, false));
        let kept = is_blank(&trial.typed) || arrived == Same::Exact || !is_left(adapter, &trial.typed);
        assert!(kept, "{adapter:?}: {:?} was heard as {:?}", trial.typed, trial.heard);
    }
}

#[test]
fn w17_what_is_typed_in_another_way_is_one_that_arrived() {
    let all = all();
    let mut proved = 0;
    for (adapter, trial) in all.iter().filter(|(_, trial)| !is_blank(&trial.typed)) {
        let typed = literal(*adapter, &trial.typed);
        let same = |(other, one): &&(Adapter, Trial)| other == adapter && one.typed == typed;
        let Some((_, again)) = all.iter().find(same) else { continue };
        let heard = again.heard.as_ref().unwrap_or_else(|| panic!("{adapter:?}: {typed:?} was not heard"));
        assert_eq!(compare(*adapter, &trial.typed, heard, false), Same::Exact, "{adapter:?}: {typed:?}");
        proved += usize::from(typed != trial.typed);
    }
    assert!(proved > 30, "{proved}");
}

#[test]
fn what_no_hook_told_of_is_a_command() {
    for (adapter, trial) in all() {
        let typed = &trial.typed;
        if is_blank(typed) {
            assert_eq!(trial.heard, None);
            continue;
        }
        // Nor did Codex's list of skills, which took the Enter: that is none of its commands.
        let listed = adapter == Codex && typed.ends_with("$x");
        assert!(trial.heard.is_some() || listed || is_command(adapter, typed), "{adapter:?}: {typed:?}");
        let careful = adapter == Codex && typed == "/ foo";
        assert!(trial.heard.is_none() || careful || !is_command(adapter, typed), "{adapter:?}: {typed:?}");
        assert!(!is_command(adapter, &literal(adapter, typed)), "{adapter:?}: {typed:?}");
    }
}

#[test]
fn what_ends_claude_arrives_as_a_prompt() {
    for word in ["exit", " quit ", ":q", ":q!", ":wq", ":wq!\n"] {
        let typed = literal(Claude, word);
        assert!(typed.ends_with("\n\n\n"), "{typed:?}");
        assert_eq!(compare(Claude, word, &typed, false), Same::Exact);
        assert!(is_command(Claude, word), "{word}");
    }
    assert_eq!(literal(Codex, "exit"), "exit");
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
            assert_eq!(literal(adapter, text), text);
        }
    }
    assert_eq!(literal(Adapter::None, "!ls @x "), "!ls @x ");
}

#[test]
fn a_draft_around_the_text_is_told_from_another_text() {
    assert_eq!(compare(Claude, "next prompt", "SLOW esc earlynext prompt", false), Same::Within);
    assert_eq!(compare(Claude, "next prompt", "next", false), Same::No);
    assert_eq!(compare(Claude, "next prompt", "", false), Same::No);
    assert_eq!(compare(Claude, "", "anything", false), Same::No);
    assert_eq!(compare(Codex, "a\tb", "a    b", false), Same::Altered);
    assert_eq!(compare(Claude, "tab\there", "tabhere", false), Same::Altered);
    assert_eq!(compare(Claude, "next prompt", "ext prompt", false), Same::Altered);
    assert_eq!(compare(Claude, "a\tb", "a    b", false), Same::Exact);
    assert_eq!(compare(Codex, "e\u{301}", "é", false), Same::No);
    assert_eq!(compare(Claude, "e\u{301}", "é", false), Same::Exact);
}

#[test]
fn of_a_text_that_was_cut_all_that_there_is_is_compared() {
    let long = "line of text é\n".repeat(30_000);
    for end in [300_001, 300_002, 299_990] {
        let end = (0..=end).rev().find(|end| long.is_char_boundary(*end)).unwrap();
        let heard = &long[..end];
        assert_eq!(compare(Claude, &long, heard, true), Same::Exact);
        assert_eq!(compare(Claude, &long, heard, false), Same::Altered);
        assert_eq!(compare(Claude, &long, &format!("draft{heard}"), true), Same::Within);
        assert_eq!(compare(Claude, &format!("x{long}"), heard, true), Same::Altered);
    }
    // A mark may be cut off its letter.
    assert_eq!(compare(Claude, "abce\u{301}d", "abce", true), Same::Exact);
    assert_eq!(compare(Claude, "anything", "", true), Same::No);
}

/// Texts with all that is anything to an agent.
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
            let once = literal(adapter, &text);
            prop_assert_eq!(literal(adapter, &once), once);
        }
    }

    #[test]
    fn what_is_typed_is_the_text_and_no_command(text in odd()) {
        for adapter in [Claude, Codex, Gemini, Adapter::None] {
            let typed = literal(adapter, &text);
            prop_assert_eq!(compare(adapter, &text, &typed, false), Same::Exact);
            prop_assert!(!is_command(adapter, &typed), "{:?}", typed);
            prop_assert!(is_blank(&text) == is_blank(&typed));
        }
    }

    #[test]
    fn a_text_is_in_what_it_is_in(text in odd(), before in odd(), after in odd()) {
        // Letters apart from it, so that no mark of one joins the other.
        let heard = format!("{before}|{text}|{after}");
        let same = compare(Codex, &text, &heard, false);
        prop_assert!(same == Same::Within || is_blank(&text), "{:?}", same);
    }
}
