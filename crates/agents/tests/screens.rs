//! Screens of Claude Code 2.1.197 and Codex 0.169.0: `screens/*.ansi` are captures made with
//! `tmux capture-pane -p -e`.

use agents::Adapter::{self, Claude, Codex};
use agents::screen::{self, Composer, Screen};
use proptest::prelude::*;

/// A capture, the cursor in it, and the expected state.
struct Case {
    name: &'static str,
    cursor: (u16, u16),
    composer: Composer,
    dialog: Option<(&'static str, bool)>,
    works: Option<bool>,
}

fn empty(name: &'static str, cursor: (u16, u16), works: Option<bool>) -> Case {
    Case { name, cursor, composer: Composer::Empty, dialog: None, works }
}

fn holds(name: &'static str, cursor: (u16, u16), text: &str, works: Option<bool>) -> Case {
    Case { name, cursor, composer: Composer::Holds(text.to_owned()), dialog: None, works }
}

fn hidden(name: &'static str, cursor: (u16, u16), dialog: &'static str, is_startup: bool) -> Case {
    Case { name, cursor, composer: Composer::Hidden, dialog: Some((dialog, is_startup)), works: None }
}

fn covered(name: &'static str, cursor: (u16, u16), works: Option<bool>) -> Case {
    Case { name, cursor, composer: Composer::Hidden, dialog: None, works }
}

fn capture(name: &str) -> Screen {
    let path = format!("{}/tests/screens/{name}.ansi", env!("CARGO_MANIFEST_DIR"));
    Screen::new(&std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}")))
}

fn check(adapter: Adapter, cases: &[Case]) {
    let mut wrong = Vec::new();
    for case in cases {
        let screen = capture(case.name);
        let composer = screen::composer(adapter, &screen, case.cursor);
        let dialog = screen::dialog(adapter, &screen);
        let named = dialog.as_ref().map(|dialog| (dialog.name.as_str(), dialog.is_startup));
        let works = screen::is_working(adapter, &screen);
        if (&composer, named, works) != (&case.composer, case.dialog, case.works) {
            wrong.push(format!("{}: {composer:?}, {named:?}, {works:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_composer_of_claude_is_read() {
    check(
        Claude,
        &[
            empty("claude-idle", (2, 6), Some(false)),
            empty("claude-no-login", (2, 6), Some(false)),
            empty("claude-help", (2, 6), None),
            empty("claude-busy", (2, 10), Some(true)),
            empty("claude-queued", (2, 12), Some(true)),
            empty("claude-after", (2, 18), Some(false)),
            empty("claude-interrupted", (2, 23), Some(false)),
            empty("claude-ctrl-c", (2, 23), None),
            empty("claude-limit", (2, 29), Some(false)),
            empty("claude-limited", (2, 11), Some(false)),
            empty("claude-small", (2, 11), Some(false)),
            holds("claude-draft", (16, 6), "half a thought", None),
            holds("claude-lines", (9, 8), "third", None),
            holds("claude-one-letter", (3, 6), "x", None),
            holds("claude-one-letter-home", (2, 6), "z", None),
            holds("claude-cursor-home", (2, 6), "ab", None),
            holds("claude-pasted", (28, 6), "[Pasted text #1 +30 lines]", None),
            holds("claude-bash", (2, 6), "!", None),
            holds("claude-menu", (3, 6), "/", None),
            holds("claude-quoting", (49, 24), "x words in it: Do you want to proceed? ❯ 1. Yes", None),
        ],
    );
}

#[test]
fn the_dialogs_of_claude_are_known() {
    check(
        Claude,
        &[
            hidden("claude-trust", (1, 13), "trust", true),
            hidden("claude-key", (2, 9), "api_key", true),
            hidden("claude-bypass", (2, 13), "bypass", true),
            hidden("claude-resume", (2, 8), "resume", true),
            hidden("claude-permission", (1, 29), "permission", false),
            hidden("claude-permission-small", (1, 8), "permission", false),
            hidden("claude-usage-limit", (2, 15), "usage_limit", false),
            hidden("claude-model", (2, 23), "menu", false),
            hidden("claude-rewind", (0, 39), "menu", false),
        ],
    );
}

#[test]
fn the_composer_of_codex_is_read() {
    check(
        Codex,
        &[
            empty("codex-idle", (2, 36), None),
            empty("codex-busy", (2, 36), Some(true)),
            empty("codex-queued", (2, 36), Some(true)),
            empty("codex-after", (2, 36), Some(false)),
            empty("codex-interrupted", (2, 36), Some(false)),
            empty("codex-limit", (2, 36), Some(false)),
            empty("codex-rewind", (2, 36), Some(false)),
            holds("codex-draft", (16, 36), "half a thought", None),
            holds("codex-lines", (9, 36), "third", None),
            holds("codex-one-letter", (3, 36), "x", None),
            holds("codex-one-letter-home", (2, 36), "z", None),
            holds("codex-option", (15, 36), "1. Yes, do it", None),
            holds("codex-pasted", (29, 36), "[Pasted Content 1600 chars]", None),
            holds("codex-menu", (3, 37), "/", None),
            holds("codex-bash", (2, 36), "!", None),
        ],
    );
}

/// Codex shows a composer before its startup dialogs.
#[test]
fn codex_is_not_ready_while_it_starts() {
    let starting = Case { composer: Composer::Unknown, ..empty("codex-loading", (2, 37), None) };
    check(Codex, &[starting]);
}

#[test]
fn the_choices_of_a_dialog_are_read_with_their_numbers() {
    let dialog = screen::dialog(Adapter::Codex, &capture("codex-rate-limits")).unwrap();
    assert_eq!(dialog.name, screen::USAGE_LIMIT);
    let numbers: Vec<u8> = screen::choices(&dialog.text).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3]);
    assert_eq!(screen::choices(&dialog.text)[1].1, "Keep current model");
    assert_eq!(
        screen::choices("● 1. Keep trying\n2. Stop\n1.5 is no number\n12. nor this"),
        [(1, "Keep trying"), (2, "Stop")]
    );
}

#[test]
fn the_dialogs_of_codex_are_known() {
    check(
        Codex,
        &[
            hidden("codex-trust", (1, 37), "trust", true),
            hidden("codex-login", (1, 37), "login", true),
            hidden("codex-hooks", (1, 37), "hooks", true),
            hidden("codex-resume", (96, 37), "resume", true),
            hidden("codex-permission", (120, 39), "permission", false),
            hidden("codex-permission-small", (44, 15), "permission", false),
            hidden("codex-question", (90, 48), "question", false),
            hidden("codex-question-second", (87, 48), "question", false),
            hidden("codex-question-notes", (4, 46), "question", false),
            hidden("codex-rate-limits", (0, 49), "usage_limit", false),
            hidden("codex-model", (120, 39), "menu", false),
            hidden("codex-small", (41, 15), "menu", false),
        ],
    );
}

/// Dialogs of the first run and of a start, also in terminals so narrow that only the end of a dialog is
/// visible.
#[test]
fn what_claude_begins_with_is_known() {
    check(
        Claude,
        &[
            hidden("claude-theme", (1, 8), "theme", true),
            hidden("claude-theme-narrow", (1, 0), "theme", true),
            hidden("claude-theme-command", (2, 6), "theme", true),
            hidden("claude-login", (1, 7), "login", true),
            hidden("claude-login-narrow", (1, 8), "login", true),
            hidden("claude-login-code", (0, 13), "login", true),
            hidden("claude-login-error", (0, 6), "login", true),
            hidden("claude-login-command", (2, 18), "login", true),
            hidden("claude-resume-summary", (2, 18), "resume", true),
            hidden("claude-resume-narrow", (2, 8), "resume", true),
            hidden("claude-mcp", (2, 7), "mcp", true),
            hidden("claude-mcp-several", (2, 8), "mcp", true),
            hidden("claude-mcp-narrow", (2, 11), "mcp", true),
            hidden("claude-imports", (2, 13), "imports", true),
            hidden("claude-settings-broken", (2, 9), "settings", true),
            hidden("claude-settings-narrow", (2, 10), "settings", true),
            hidden("claude-config-broken", (2, 10), "settings", true),
            hidden("claude-trust-narrow", (1, 11), "trust", true),
            hidden("claude-bypass-narrow", (2, 11), "bypass", true),
        ],
    );
}

/// Views that a user opens.
#[test]
fn what_is_opened_in_claude_is_no_composer() {
    check(
        Claude,
        &[
            hidden("claude-config", (6, 7), "menu", false),
            hidden("claude-help-command", (8, 1), "menu", false),
            hidden("claude-agents", (10, 18), "menu", false),
            hidden("claude-plugin", (11, 15), "menu", false),
            hidden("claude-diff", (0, 23), "menu", false),
            hidden("claude-doctor", (0, 23), "menu", false),
            hidden("claude-tasks", (0, 23), "menu", false),
            hidden("claude-btw", (0, 23), "menu", false),
            hidden("claude-mobile", (10, 0), "menu", false),
            hidden("claude-stats", (38, 0), "menu", false),
            hidden("claude-transcript", (0, 7), "menu", false),
            hidden("claude-sessions", (2, 21), "menu", false),
            hidden("claude-sessions-reply", (4, 37), "menu", false),
        ],
    );
}

/// Keys would go to a search, to a draft higher than the screen, or to another conversation.
#[test]
fn where_claude_takes_no_prompt_its_composer_is_hidden() {
    check(
        Claude,
        &[
            covered("claude-history", (18, 14), None),
            covered("claude-history-typed", (21, 14), None),
            covered("claude-history-none", (39, 8), None),
            covered("claude-vim-search", (18, 8), None),
            covered("claude-vim-visual", (2, 6), None),
            covered("claude-suspended", (0, 9), None),
            covered("claude-long-draft", (2, 20), None),
            covered("claude-long-draft-up", (2, 5), None),
            covered("claude-resume-none-narrow", (0, 15), None),
        ],
    );
}

/// The composer's modes, other parts of the screen beside a free composer, and drafts.
#[test]
fn the_composer_of_claude_is_read_in_all_its_modes() {
    check(
        Claude,
        &[
            empty("claude-plan", (2, 6), None),
            empty("claude-auto-mode", (2, 15), None),
            empty("claude-shortcuts", (2, 6), None),
            empty("claude-stashed", (2, 6), Some(false)),
            empty("claude-vim-insert", (2, 6), None),
            holds("claude-vim-normal", (10, 6), "some text", None),
            empty("claude-vim-normal-empty", (2, 6), Some(false)),
            empty("claude-fullscreen", (2, 21), Some(false)),
            empty("claude-narrow", (2, 7), Some(false)),
            empty("claude-narrower", (2, 5), Some(false)),
            empty("claude-narrowest", (2, 1), None),
            Case { composer: Composer::Unknown, ..empty("claude-too-narrow", (2, 1), None) },
            holds("claude-menu-typed", (5, 6), "/mo", None),
            holds("claude-files", (3, 6), "@", None),
            holds("claude-bash-typed", (7, 6), "!\u{a0}ls -l", None),
            holds("claude-history-up", (12, 18), "queued two", None),
            holds(
                "claude-draft-rule",
                (62, 6),
                "────────────────────────────────────────────────────────────",
                None,
            ),
            holds("claude-draft-own-look", (42, 8), "────────────────────────────────────────", None),
            Case { composer: Composer::Unknown, ..empty("claude-screen-reader", (0, 5), None) },
        ],
    );
}

/// Dialogs of the first run and of a start, also in terminals so narrow that only the end of a dialog is
/// visible.
#[test]
fn what_codex_begins_with_is_known() {
    check(
        Codex,
        &[
            hidden("codex-login-other", (1, 23), "login", true),
            hidden("codex-login-narrow", (1, 15), "login", true),
            hidden("codex-update", (1, 23), "update", true),
            hidden("codex-update-narrow", (1, 15), "update", true),
            hidden("codex-model-upgrade", (1, 23), "model", true),
            hidden("codex-model-upgrade-narrow", (1, 15), "model", true),
            hidden("codex-directory", (1, 23), "directory", true),
            hidden("codex-resume-none", (1, 23), "resume", true),
            hidden("codex-resume-narrow", (1, 15), "resume", true),
            hidden("codex-resume-command", (1, 23), "resume", true),
            hidden("codex-trust-narrow", (1, 15), "trust", true),
        ],
    );
}

/// Views that a user opens.
#[test]
fn what_is_opened_in_codex_is_no_composer() {
    check(
        Codex,
        &[
            hidden("codex-diff", (1, 23), "menu", false),
            hidden("codex-experimental", (94, 36), "menu", false),
            hidden("codex-hooks-command", (80, 23), "menu", false),
            hidden("codex-keymap", (80, 23), "menu", false),
            hidden("codex-statusline", (80, 23), "menu", false),
            hidden("codex-plugins", (80, 23), "menu", false),
            hidden("codex-warnings", (61, 23), "menu", false),
            hidden("codex-fork", (1, 23), "menu", false),
            hidden("codex-sessions", (47, 23), "menu", false),
            hidden("codex-history", (20, 23), "menu", false),
            hidden("codex-history-typed", (23, 23), "menu", false),
            hidden("codex-history-none", (35, 39), "menu", false),
            hidden("codex-rename", (2, 21), "menu", false),
            hidden("codex-rename-vim", (2, 21), "menu", false),
            hidden("codex-review-custom", (2, 21), "menu", false),
            hidden("codex-feedback", (2, 21), "menu", false),
            hidden("codex-worktree", (80, 23), "menu", false),
        ],
    );
}

/// Keys would go to a search, to a draft higher than the screen, or to another conversation.
#[test]
fn where_codex_takes_no_prompt_its_composer_is_hidden() {
    check(
        Codex,
        &[
            covered("codex-memories", (26, 37), None),
            covered("codex-memories-small", (76, 16), None),
            covered("codex-archive", (26, 37), None),
            covered("codex-feedback-consent", (96, 28), None),
            covered("codex-long-draft", (9, 22), None),
            covered("codex-long-draft-up", (9, 15), None),
            covered("codex-side", (2, 20), Some(false)),
            covered("codex-side-narrow", (2, 11), Some(false)),
            covered("codex-blanks", (5, 36), None),
        ],
    );
}

/// The composer's modes, other parts of the screen beside a free composer, and drafts.
#[test]
fn the_composer_of_codex_is_read_in_all_its_modes() {
    check(
        Codex,
        &[
            empty("codex-update-note", (2, 20), None),
            empty("codex-plan", (2, 20), None),
            empty("codex-shortcuts", (2, 20), None),
            empty("codex-presets", (2, 21), None),
            holds("codex-vim-normal", (10, 36), "some text", None),
            empty("codex-narrow", (2, 8), None),
            empty("codex-narrower", (2, 6), None),
            empty("codex-narrowest", (2, 2), None),
            holds("codex-menu-typed", (5, 21), "/mo", None),
            holds("codex-files", (3, 21), "@", None),
            holds("codex-bash-typed", (7, 20), "! ls -l", None),
            holds("codex-draft-blank", (2, 18), "above", None),
            holds("codex-draft-own-look", (12, 20), "gpt · /x", None),
            holds("codex-busy-draft", (18, 36), "draft while busy", Some(true)),
        ],
    );
}

#[test]
fn a_dialog_says_what_is_asked() {
    let asked = |adapter, name| screen::dialog(adapter, &capture(name)).unwrap().text;
    let claude = asked(Claude, "claude-permission");
    let begin = "Bash command\ntouch made\nmake a file\nDo you want to proceed?\n❯ 1. Yes\n";
    assert!(claude.starts_with(begin), "{claude}");
    let codex = asked(Codex, "codex-permission");
    let begin =
        "Would you like to run the following command?\nEnvironment: local\nReason: need\n$ touch made";
    assert!(codex.starts_with(begin), "{codex}");
    let codex = asked(Codex, "codex-question");
    assert!(codex.starts_with("Question 1/2 (2 unanswered)\nWhich colour?\n› 1. Red"), "{codex}");
    assert!(asked(Claude, "claude-trust").contains("/home/user/work"));
}

#[test]
fn a_dialog_that_is_cut_says_so() {
    let asks = "Do you want to proceed?\n❯ 1. Yes\n  2. No\nEsc to cancel";
    let text = |command: &str| {
        let shown = Screen::new(format!("Bash command\n{command}\n{asks}").as_bytes());
        screen::dialog(Claude, &shown).unwrap().text
    };
    assert!(text("make").ends_with("Esc to cancel"));
    let long = text(&"make ".repeat(1000));
    assert!(long.len() <= protocol::activity::ASK_MAX && long.starts_with("Bash command\nmake make"));
    assert!(long.ends_with(" more bytes; see its terminal)"), "{long}");
}

#[test]
fn what_somebody_writes_is_no_dialog() {
    let rule = "─".repeat(40);
    let screen = Screen::new(format!("{rule}\n❯ 1. Yes\n  Do you want to? Esc to cancel\n{rule}").as_bytes());
    assert_eq!(screen::dialog(Claude, &screen), None);
    let composer = screen::composer(Claude, &screen, (0, 0));
    assert_eq!(composer, Composer::Holds("Do you want to? Esc to cancel".to_owned()));
}

#[test]
fn without_colours_a_placeholder_is_text() {
    // Without colours a placeholder cannot be told from typed text, which the pool must not type over.
    let plain: Vec<_> = capture("codex-idle").lines().map(str::to_owned).collect();
    let screen = Screen::new(plain.join("\n").as_bytes());
    let composer = screen::composer(Codex, &screen, (2, 36));
    assert_eq!(composer, Composer::Holds("Ask Codex to do anything".to_owned()));
}

#[test]
fn another_programs_screen_tells_nothing() {
    for text in ["", "$ ", "$ ls\nfile\n$ ", "❯ ls\n", "Esc to cancel? no\nyes\n$ "] {
        let screen = Screen::new(text.as_bytes());
        for adapter in [Claude, Codex, Adapter::Gemini, Adapter::None] {
            assert_eq!(screen::composer(adapter, &screen, (0, 0)), Composer::Unknown, "{text:?}");
            assert_eq!(screen::dialog(adapter, &screen), None);
            assert_eq!(screen::is_working(adapter, &screen), None, "{text:?}");
        }
    }
}

#[test]
fn a_colours_numbers_are_not_attributes() {
    let holds = |line: &str, text: &str| {
        let composer = screen::composer(Codex, &Screen::new(line.as_bytes()), (2, 0));
        assert_eq!(composer, Composer::Holds(text.to_owned()), "{line:?}");
    };
    // Neither a foreground of 2 nor a background of three numbers with 2 and 7 among them is dim or inverted.
    holds("› \u{1b}[38;5;2mgreen\u{1b}[48;2;2;7;2m too\u{1b}[0m\n\nhints", "green too");
    holds("› \u{1b}[2mnot this\u{1b}[22m but this\n\nhints", "but this");
    holds("› \u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\\u{1b}(B\n\nhints", "link");
}

fn read_all(capture: &[u8], cursor: (u16, u16)) {
    let screen = Screen::new(capture);
    for adapter in [Claude, Codex, Adapter::Gemini, Adapter::None] {
        let composer = screen::composer(adapter, &screen, cursor);
        let dialog = screen::dialog(adapter, &screen);
        assert!(composer == Composer::Hidden || dialog.is_none());
        assert!(dialog.is_none_or(|dialog| dialog.text.len() <= protocol::activity::ASK_MAX));
        let _ = screen::is_working(adapter, &screen);
    }
}

fn line() -> impl Strategy<Value = String> {
    let theirs = proptest::sample::select(vec![
        "────────────",
        "❯ ",
        "› ",
        "! ",
        "",
        "  ",
        "Esc to cancel",
        "Do you want to proceed? 1. Yes",
        "  esc to interrupt",
        "• Working (1s • esc to interrupt)",
        "\u{1b}[2mfaint",
        "\u{1b}[7mx\u{1b}[0m",
        "enter select · esc back",
        "\u{1b}[",
        "\u{1b}]8;;",
    ]);
    prop_oneof![theirs.prop_map(str::to_owned), any::<String>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_screen_can_be_read(capture in any::<Vec<u8>>(), cursor in any::<(u16, u16)>()) {
        read_all(&capture, cursor);
    }

    #[test]
    fn any_screen_like_theirs_can_be_read(
        lines in proptest::collection::vec(line(), 0..12), cursor in (0u16..5, 0u16..12),
    ) {
        read_all(lines.join("\n").as_bytes(), cursor);
    }
}

#[test]
fn what_runs_in_the_background_is_read() {
    let background = |adapter, name| screen::background(adapter, &capture(name));
    assert_eq!(background(Claude, "claude-background").as_deref(), Some("1 shell"));
    assert_eq!(background(Codex, "codex-background").as_deref(), Some("1 background terminal running"));
    for name in ["claude-idle", "claude-busy", "claude-draft", "claude-after", "claude-limit", "claude-tasks"]
    {
        assert_eq!(background(Claude, name), None, "{name}");
    }
    for name in ["codex-idle", "codex-busy", "codex-draft", "codex-after"] {
        assert_eq!(background(Codex, name), None, "{name}");
    }
}
