//! Terminal marks in output that comes in pieces of any size.

use agents::terminal_marks::{Mark, Scanner, title_wants_attention};
use proptest::prelude::*;

fn marks(output: &[u8]) -> Vec<Mark> {
    Scanner::new().feed(output)
}

/// Returns the newest mark of each kind in output that comes in these pieces.
fn newest<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Mark> {
    let mut scanner = Scanner::new();
    let mut all: Vec<Mark> = Vec::new();
    for piece in pieces {
        for mark in scanner.feed(piece) {
            all.retain(|earlier| std::mem::discriminant(earlier) != std::mem::discriminant(&mark));
            all.push(mark);
        }
    }
    all
}

#[test]
fn prompts_and_commands_of_shells_are_told() {
    let run = b"\x1b]133;A\x07$ \x1b]133;B\x07make\r\n\x1b]133;C\x07...\r\n\x1b]133;D;2\x07";
    assert_eq!(
        marks(run),
        [Mark::PromptStart, Mark::PromptEnd, Mark::CommandStart, Mark::CommandEnd(Some(2))]
    );
    assert_eq!(marks(b"\x1b]133;A;cl=m;aid=7\x1b\\"), [Mark::PromptStart]);
    assert_eq!(marks(b"\x1b]133;D\x07"), [Mark::CommandEnd(None)]);
    assert_eq!(marks(b"\x1b]133;D;0;aid=7\x07"), [Mark::CommandEnd(Some(0))]);
    assert_eq!(marks(b"\x1b]133;D;what\x07"), [Mark::CommandEnd(None)]);
    assert_eq!(marks(b"\x1b]133;Z\x07\x1b]133\x07\x1b]1337;A\x07"), []);
}

#[test]
fn codex_says_in_its_title_that_it_waits_for_a_person() {
    use agents::Adapter::{Claude, Codex};
    let title = marks(b"\x1b]0;[ . ] Action Required | main\x07");
    assert_eq!(title, [Mark::Title("[ . ] Action Required | main".to_owned())]);
    assert!(title_wants_attention(Codex, "[ ! ] Action Required | main"));
    assert!(
        !title_wants_attention(Codex, "main")
            && !title_wants_attention(Claude, "[ ! ] Action Required | main")
    );
}

#[test]
fn titles_and_the_alternate_screen_are_told() {
    assert_eq!(marks("\x1b]0;✳ task; more\x07".as_bytes()), [Mark::Title("✳ task; more".to_owned())]);
    assert_eq!(marks(b"\x1b]2;t\x1b\\"), [Mark::Title("t".to_owned())]);
    assert_eq!(
        marks(b"\x1b]7;file://host/home/user\x07\x1b]1;icon\x07\x1b]8;;http://x\x07\x1b]52;c;eA==\x07"),
        []
    );
    assert_eq!(marks(b"\x1b[?1049h"), [Mark::Alternate(true)]);
    assert_eq!(marks(b"\x1b[?2004;1049;25h\x1b[?47l"), [Mark::Alternate(false)]);
    assert_eq!(marks(b"\x1b[?2004h"), [Mark::BracketedPaste(true)]);
    assert_eq!(marks(b"\x1b[?1004;2004l"), [Mark::BracketedPaste(false)]);
    assert_eq!(marks(b"\x1b[?1049h\x1bc"), [Mark::Alternate(false)]);
    assert_eq!(marks(b"\x1b[1049h\x1b[?104h\x1b[?1049m"), []);
}

#[test]
fn the_bell_is_told_where_it_is_one() {
    assert_eq!(marks(b"a\x07b"), [Mark::Bell]);
    assert_eq!(marks(b"\x1b[3\x071m"), [Mark::Bell], "a terminal rings within a control sequence too");
    assert_eq!(marks(b"\x1b]0;t\x07"), [Mark::Title("t".to_owned())]);
    assert_eq!(marks(b"\x1bPtmux;\x07\x1b\\\x1b_x\x07\x1b\\\x1bkname\x1b\\"), []);
    // Letters whose bytes look like eight-bit control characters.
    assert_eq!(marks("Ý\u{9d}0;x\u{9b}?1049h".as_bytes()), []);
}

#[test]
fn what_is_given_up_is_not_told() {
    assert_eq!(marks(b"\x1b]0;t\x18\x07"), [Mark::Bell]);
    assert_eq!(marks(b"\x1b]0;t\x1b[?1049h"), [Mark::Alternate(true)]);
    assert_eq!(marks(b"\x1b[?10\x1b[?1049h"), [Mark::Alternate(true)]);
    assert_eq!(marks(b"\x1b]0;\xff\xfe\x07"), []);
    assert_eq!(marks(b"\x1b\x1b]0;t\x07"), [Mark::Title("t".to_owned())]);
    assert_eq!(marks(b"\x1b(\x1b]0;t\x07"), [Mark::Title("t".to_owned())]);
}

#[test]
fn the_newest_of_each_kind_in_a_piece() {
    let many = "\x1b]0;a\x07\x07\x1b]133;A\x07\x1b]0;b\x07\x07".repeat(10_000);
    assert_eq!(marks(many.as_bytes()), [Mark::PromptStart, Mark::Title("b".to_owned()), Mark::Bell]);
}

#[test]
fn what_is_too_long_is_left_out_and_not_kept() {
    let mut scanner = Scanner::new();
    assert_eq!(scanner.feed(b"\x1b]0;"), []);
    for _ in 0..1000 {
        assert_eq!(scanner.feed(&[b'x'; 1024]), []);
    }
    assert!(format!("{scanner:?}").len() < 40_000);
    assert_eq!(scanner.feed(b"\x07\x1b]0;t\x07"), [Mark::Title("t".to_owned())]);
    let control = format!("\x1b[?{}1049h", "1;".repeat(100));
    assert_eq!(marks(control.as_bytes()), []);
    assert_eq!(marks(b"\x1b[?1049h"), [Mark::Alternate(true)]);
}

/// Output with everything that is special to a terminal.
fn output() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\x1b]".to_vec()),
        Just(b"\x1b[".to_vec()),
        Just(b"\x1bP".to_vec()),
        Just(b"\x1b\\".to_vec()),
        Just(b"\x07".to_vec()),
        Just(b"\x1b".to_vec()),
        Just(b"\x18".to_vec()),
        Just(b"0;title".to_vec()),
        Just(b"133;A".to_vec()),
        Just(b"133;D;1".to_vec()),
        Just(b"?1049h".to_vec()),
        Just(b"?47l".to_vec()),
        Just(b"7;file://x".to_vec()),
        any::<Vec<u8>>(),
        Just(b"\x1bc".to_vec()),
        Just("é".as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_does_not_matter_in_which_pieces_it_comes(output in output(), size in 1usize..9) {
        prop_assert_eq!(newest(output.chunks(size)), marks(&output));
        prop_assert!(marks(&output).len() <= 8);
    }
}
