//! Screens of OpenCode 1.18.33 (`screens/opencode-*.ansi` are captures of it), and prompts for OpenCode and
//! Aider 0.86.2.

use agents::Adapter::{Aider, Opencode};
use agents::prompt::{TextMatch, compare, escape, is_command, make_distinct};
use agents::screen::{self, Composer, Screen};

fn capture(name: &str) -> Screen {
    let path = format!("{}/tests/screens/opencode-{name}.ansi", env!("CARGO_MANIFEST_DIR"));
    Screen::new(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

/// Reads a screen with this cursor: the composer, the name of the dialog, true if the agent is working.
fn seen(name: &str, cursor: (u16, u16)) -> (Composer, Option<String>, Option<bool>) {
    let screen = capture(name);
    let dialog = screen::dialog(Opencode, &screen).map(|dialog| dialog.name);
    (screen::composer(Opencode, &screen, cursor), dialog, screen::is_working(Opencode, &screen))
}

#[test]
fn its_composer_is_read() {
    assert_eq!(
        seen("home", (16, 15)),
        (Composer::Empty, None, Some(false)),
        "a placeholder is nobody's text"
    );
    assert_eq!(seen("idle", (5, 24)), (Composer::Empty, None, Some(false)));
    assert_eq!(seen("busy", (5, 24)), (Composer::Empty, None, Some(true)));
    assert_eq!(seen("escape", (5, 24)), (Composer::Empty, None, Some(true)));
    let holds = |text: &str| (Composer::Holds(text.to_owned()), None, Some(false));
    assert_eq!(seen("draft", (10, 24)), holds("lines"));
    assert_eq!(seen("menu", (6, 24)), holds("/"));
}

#[test]
fn what_stands_over_its_composer_takes_the_keys() {
    assert_eq!(
        seen("help", (100, 29)),
        (Composer::Hidden, None, Some(false)),
        "its cursor is not in the composer"
    );
    assert_eq!(seen("shell", (5, 24)).0, Composer::Hidden, "its shell would take the line");
    let asks = seen("permission", (98, 28));
    assert_eq!(asks, (Composer::Hidden, Some("permission".to_owned()), None));
    let text = screen::dialog(Opencode, &capture("permission")).unwrap().text;
    assert!(text.starts_with("△ Permission required"), "{text}");
}

#[test]
fn what_would_make_it_leave_arrives_as_a_prompt() {
    for word in ["exit", "quit", ":q"] {
        let typed = escape(Opencode, word);
        assert!(is_command(Opencode, word) && !is_command(Opencode, &typed), "{typed:?}");
        assert_eq!(compare(Opencode, word, &typed, false), TextMatch::Exact);
    }
    assert_eq!(escape(Opencode, "/help"), " /help");
    assert_eq!(escape(Opencode, "read @package.json"), "read @package.json ");
    assert_eq!(compare(Opencode, "a\tb", "a    b", false), TextMatch::Altered, "it keeps tabs");
}

/// Aider does not record a prompt that is equal to the previous one.
#[test]
fn the_same_prompt_is_typed_for_aider_as_another() {
    let typed = |n| make_distinct(Aider, b"go on".to_vec(), n);
    assert!((0..60).all(|n| typed(n) != typed(60) && typed(n) != b"go on"));
    let taken = String::from_utf8(typed(3)).unwrap();
    assert_eq!(compare(Aider, "go on", &taken, false), TextMatch::Exact);
    assert_eq!(make_distinct(Opencode, b"go on".to_vec(), 3), b"go on");
}

#[test]
fn what_aider_would_take_for_a_command_arrives_as_a_prompt() {
    for (text, typed) in [("/add x", " /add x"), ("!ls", " !ls"), ("{", " {"), ("exit", "exit")] {
        assert_eq!(escape(Aider, text), typed);
        assert_eq!(compare(Aider, text, typed, false), TextMatch::Exact);
    }
}
