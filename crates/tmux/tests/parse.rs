//! Parsers of listings: they accept only canonical input, and never panic.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::tmux::{TmuxPane, TmuxSession};
use protocol::{PaneId, Tag, TmuxSessionId, WindowId};
use tmux::TmuxError;
use tmux::format::{self, sessions};

/// Parses panes of sessions of which none is a pool's.
fn panes(text: &[u8], hidden: Option<TmuxSessionId>) -> Result<BTreeMap<PaneId, TmuxPane>, TmuxError> {
    format::panes(text, hidden, &BTreeMap::new())
}

fn session_line(id: TmuxSessionId, session: &TmuxSession) -> String {
    let TmuxSession { name, created_at, attached, pooled, made_for, renamed } = session;
    let sign = match (pooled, renamed) {
        (false, _) => "-",
        (true, false) => "+",
        (true, true) => "*",
    };
    let tag = made_for.map(|tag| tag.to_string()).unwrap_or_default();
    format!("S\t{id}\t{created_at}\t{attached}\t{sign}{tag}\t{name}\n")
}

fn pane_line(id: PaneId, pane: &TmuxPane) -> String {
    let number = |value: Option<i32>| value.map(|n| n.to_string()).unwrap_or_default();
    let tag = match (pane.tag, pane.detached) {
        (Some(tag), _) => format!("+{tag}"),
        (None, true) => "=".to_owned(),
        (None, false) => "-".to_owned(),
    };
    let (dead, mode) = (u8::from(pane.dead), u8::from(pane.in_mode));
    let (status, signal) = (number(pane.exit_status), number(pane.exit_signal));
    let TmuxPane { session, window, pid, width, height, .. } = pane;
    format!(
        "P\t{session}\t{window}\t{id}\t{pid}\t{dead}\t{status}\t{signal}\t{mode}\t{width}\t{height}\t{tag}\n"
    )
}

prop_compose! {
    fn any_pane()(
        session in 0..4u32, window: u32, tag: Option<[u8; 16]>, pid: u32, dead: bool,
        exit_status: Option<i32>, exit_signal: Option<i32>, in_mode: bool, width: u16, height: u16,
        detached: bool,
    ) -> TmuxPane {
        TmuxPane {
            session: TmuxSessionId(session), window: WindowId(window), tag: tag.map(Tag), process: None, pid,
            dead, exited: false, exit_status, exit_signal, in_mode, width, height, current_command: None,
            current_dir: None, detached: detached && tag.is_none(),
        }
    }
}

prop_compose! {
    fn any_session()(
        name in "[ -~é]{1,20}", created_at: u64, attached: u32, pooled: bool, tag: Option<[u8; 16]>,
        renamed: bool,
    ) -> TmuxSession {
        let made_for = tag.filter(|_| pooled).map(Tag);
        TmuxSession { name, created_at, attached, pooled, made_for, renamed: renamed && pooled }
    }
}

/// Generates lines that look like a listing, valid or slightly wrong.
fn nearly_pane() -> impl Strategy<Value = String> {
    let field = prop_oneof![
        "[0-9]{0,3}",
        "[$%@+-]?[0-9]{1,11}",
        Just("P".to_owned()),
        Just(String::new()),
        Just("-".to_owned()),
        Just("=".to_owned()),
        "\\+[0-9a-f\\n]{31,33}",
        ".{0,4}",
    ];
    prop::collection::vec(field, 10..14).prop_map(|fields| fields.join("\t") + "\n")
}

proptest! {
    #[test]
    fn panes_round_trip(listed in prop::collection::btree_map(any::<u32>().prop_map(PaneId), any_pane(), 0..20)) {
        let text: String = listed.iter().map(|(id, pane)| pane_line(*id, pane)).collect();
        prop_assert_eq!(panes(text.as_bytes(), None).unwrap(), listed);
    }

    #[test]
    fn sessions_round_trip(
        listed in prop::collection::btree_map(any::<u32>().prop_map(TmuxSessionId), any_session(), 0..20),
    ) {
        let text: String = listed.iter().map(|(id, session)| session_line(*id, session)).collect();
        prop_assert_eq!(sessions(text.as_bytes()).unwrap(), listed);
    }

    #[test]
    fn what_is_accepted_has_one_spelling(text in nearly_pane()) {
        if let Ok(listed) = panes(text.as_bytes(), None) {
            prop_assert_eq!(listed.len(), 1);
            let (id, pane) = listed.iter().next().unwrap();
            if pane.tag.is_some() || text.ends_with("\t-\n") || pane.detached {
                let pid_of_none = text.replace("\t-1\t", "\t0\t").replace("\t\t0\t", "\t0\t0\t");
                prop_assert!([&text, &pid_of_none].contains(&&pane_line(*id, pane)), "{:?}", text);
            }
        }
    }

    #[test]
    fn a_cut_listing_is_refused(pane in any_pane(), cut in 1..20usize) {
        let text = pane_line(PaneId(1), &pane);
        prop_assert!(panes(&text.as_bytes()[..text.len() - cut], None).is_err());
    }
}

const GOOD: &str = "P\t$1\t@2\t%3\t44\t0\t\t\t0\t80\t24\t-\n";

#[test]
fn hostile_lines_spoil_the_listing() {
    assert!(panes(GOOD.as_bytes(), None).is_ok());
    let spoilt = [
        GOOD.replace("$1", "1"),
        GOOD.replace("$1", "$01"),
        GOOD.replace("%3", "% 3"),
        GOOD.replace("44", "+44"),
        GOOD.replace("44", "-2"),
        GOOD.replace("\t80", "\t70000"),
        GOOD.replace('P', "Q"),
        GOOD.replace("\t-", ""),
        GOOD.replace("\t-\n", "\t-x\n"),
        GOOD.replace("\t-\n", "\t=x\n"),
        GOOD.replace("\t-\n", "\t+short\n"),
        GOOD.replace("\t-\n", "\t-\n\n"),
        GOOD.replace("44\t0", "44\t2"),
        GOOD.replace("80", "80\t80"),
        GOOD.replace("%3", "%99999999999"),
    ];
    for text in spoilt {
        assert!(panes(format!("{GOOD}{text}").replacen("%3", "%4", 1).as_bytes(), None).is_err(), "{text:?}");
    }
    for text in [
        "S\t$1\t5\t0 \t-\tx\n",
        "S\t$1\t5\t\t-\tx\n",
        "S\t$1\t5\t0\t-\t\n",
        "S\t$1\t5\t0\t-\n",
        "S\t$1\t5\t0\t2\tx\n",
        "S\t$1\t-5\t0\t-\tx\n",
        "S\t$1\t5\t0\t-\tx",
        "x\n",
        "\n",
    ] {
        assert!(sessions(text.as_bytes()).is_err(), "{text:?}");
    }
}

/// Its name where the system has names of signals, as macOS does.
#[test]
fn the_signal_of_a_dead_pane_has_a_number_or_a_name_and_spoils_nothing() {
    for (written, signal) in [("", None), ("9", Some(9)), ("kill", Some(9)), ("HUP", Some(1)), ("rt-1", None)]
    {
        let text = GOOD.replace("44\t0\t\t\t", &format!("44\t1\t\t{written}\t"));
        assert_eq!(panes(text.as_bytes(), None).unwrap()[&PaneId(3)].exit_signal, signal, "{written:?}");
    }
}

#[test]
fn one_pane_in_two_sessions_is_one_pane() {
    let other = GOOD.replace("$1", "$0");
    let listed = panes(format!("{GOOD}{other}").as_bytes(), None).unwrap();
    assert_eq!(listed[&PaneId(3)].session, TmuxSessionId(0));
    let pooled = sessions(b"S\t$0\t5\t0\t-\ttheirs\nS\t$1\t5\t0\t+\tours\n").unwrap();
    let listed = format::panes(format!("{GOOD}{other}").as_bytes(), None, &pooled).unwrap();
    assert_eq!(listed[&PaneId(3)].session, TmuxSessionId(1), "the pool's own");
    let differing = other.replace("44", "45");
    assert!(panes(format!("{GOOD}{differing}").as_bytes(), None).is_err());
    for (clients, attached) in [("2", 2), ("0 0 3 0", 3), ("1 1", 1), ("0 1 2", 3)] {
        let line = format!("S\t$1\t5\t{clients}\t-\tx\n");
        assert_eq!(sessions(line.as_bytes()).unwrap()[&TmuxSessionId(1)].attached, attached, "{clients}");
    }
    assert!(sessions(b"S\t$1\t5\t0\t-\tx\nS\t$1\t5\t0\t-\tx\n").is_err());
}

#[test]
fn an_option_cannot_forge_a_pane() {
    let forged = "P\t$1\t@2\t%9\t1\t0\t\t\t0\t1\t1\t-\n";
    let value: String = format!("x\n{forged}").chars().chain("padding".chars()).take(32).collect();
    let listed = panes(GOOD.replace("\t-\n", &format!("\t+{value}\n")).as_bytes(), None).unwrap();
    assert_eq!(listed.keys().collect::<Vec<_>>(), [&PaneId(3)]);
    assert_eq!(listed[&PaneId(3)].tag, None);
    let escaped = GOOD.replace("\t-\n", &format!("\t+{}\\012\n", "y".repeat(31)));
    assert_eq!(panes(escaped.as_bytes(), None).unwrap()[&PaneId(3)].tag, None);
}

#[test]
fn what_only_the_hidden_session_shows_is_not_there() {
    let hidden = GOOD.replace("$1", "$0");
    let alone = GOOD.replace("$1", "$0").replace("%3", "%4").replace('-', "=");
    let text = format!("{hidden}{alone}{GOOD}");
    let left = panes(text.as_bytes(), Some(TmuxSessionId(0))).unwrap();
    assert_eq!(left.iter().map(|(id, pane)| (id.0, pane.session.0)).collect::<Vec<_>>(), [(3, 1)]);
    assert!(panes(text.as_bytes(), None).unwrap()[&PaneId(4)].detached);
    // A pane of the pool is: in another session, if one shows it too.
    let tagged = |line: &str| line.replace("\t-\n", &format!("\t+{}\n", "5a".repeat(16)));
    for (text, session) in [(tagged(&hidden), 0), (tagged(&format!("{hidden}{GOOD}")), 1)] {
        let left = panes(text.as_bytes(), Some(TmuxSessionId(0))).unwrap();
        assert_eq!(left[&PaneId(3)].session, TmuxSessionId(session));
    }
}
