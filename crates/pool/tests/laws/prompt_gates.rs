//! The gates of a prompt, and the steps until something confirms it.

use std::time::Duration;

use agents::Confirm;
use agents::screen::{Composer, Dialog, Patterns, USAGE_LIMIT};
use pool::agent::ScreenReading;
use pool::prompt::{
    LINE_MAX, NextStep, PaneSnapshot, Unconfirmed, enter_delay, line_gate, pane_gate, record_gate,
    usage_limit_dialog,
};
use pool::{Agent, Settings, prompt};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::message::BODY_MAX;
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, AskKind, Event, MessageId, MessageState, Source, Timestamp,
};

use crate::stage::{KINDS, START, Stage, agent, settings};

const SOURCES: [Source; 8] = [
    Source::Hook,
    Source::Transcript,
    Source::Terminal,
    Source::Process,
    Source::Output,
    Source::Screen,
    Source::Queue,
    Source::Nothing,
];

/// A session of this kind whose agent has this activity.
fn doing(kind: &str, activity: Activity) -> Stage {
    let mut stage = Stage::new(kind);
    let (session, tag) = (stage.id, Some(stage.tag()));
    let activity = Activity { tag, since: Timestamp(START), ..activity };
    stage.world.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: true }));
    stage
}

fn why(stage: &Stage) -> Option<String> {
    let blocked = record_gate(stage.pool(), &settings(), stage.session(), stage.now()).err()?;
    assert!(!blocked.needs_person(), "{blocked}: it ends by itself");
    Some(blocked.to_string())
}

fn asks(kind: AskKind) -> Option<Ask> {
    Some(Ask { id: 1, kind, text: "?".to_owned(), tool: None, answerable: false })
}

/// True if a prompt waits for a busy agent, by source and way of confirmation.
fn waits(source: Source, confirm: Confirm) -> bool {
    match (source, confirm) {
        (Source::Hook | Source::Transcript, _)
        | (Source::Screen, Confirm::Hook)
        | (Source::Terminal | Source::Process, Confirm::Prompt) => true,
        (Source::Terminal | Source::Process | Source::Screen, _)
        | (Source::Output | Source::Queue | Source::Nothing, _) => false,
    }
}

/// The reason for which a prompt waits for an agent that reports when it is ready, if only its screen looks
/// ready.
fn unready(kind: &str, source: Source) -> Option<String> {
    let says = agent(kind).confirm == Confirm::Hook && agent(kind).is_told_its_conversation();
    (says && source == Source::Screen).then(|| "its agent is not ready yet".to_owned())
}

#[test]
fn a_prompt_waits_for_what_is_known_to_be_busy() {
    for kind in KINDS {
        for source in SOURCES {
            let stage = doing(kind, Activity { state: ActivityState::Busy, source, ..Activity::default() });
            let told = match source {
                Source::Process => "its shell runs a command".to_owned(),
                _ => format!("its agent is busy ({})", source.as_str()),
            };
            let expected = waits(source, agent(kind).confirm).then_some(told);
            assert_eq!(why(&stage), expected, "{kind} {source:?}");
        }
    }
}

#[test]
fn a_prompt_waits_for_a_person_but_not_for_a_bell() {
    use AskKind::{Bell, Dialog, Message, Permission, Question};
    for kind in KINDS {
        for source in SOURCES {
            for ask in [Permission, Question, Dialog, Message, Bell] {
                let state = ActivityState::Attention;
                let stage = doing(kind, Activity { state, source, ask: asks(ask), ..Activity::default() });
                let expected = (ask != Bell).then(|| format!("it waits for a person: {}", ask.as_str()));
                let expected = expected.or_else(|| unready(kind, source));
                assert_eq!(why(&stage), expected, "{kind} {source:?} {ask:?}");
            }
        }
    }
}

#[test]
fn nothing_waits_for_what_is_idle_or_failed() {
    for kind in KINDS {
        for source in SOURCES {
            for state in [ActivityState::Idle, ActivityState::Error] {
                let stage = doing(kind, Activity { state, source, ..Activity::default() });
                assert_eq!(why(&stage), unready(kind, source), "{kind} {source:?} {state:?}");
            }
        }
    }
}

#[test]
fn only_an_agent_with_hooks_is_waited_for_before_it_is_ready_and_not_for_ever() {
    for kind in KINDS {
        let mut stage = doing(kind, Activity::default());
        let hooked = agent(kind).confirm == Confirm::Hook;
        let expected = hooked.then(|| "its agent is not ready yet".to_owned());
        assert_eq!(why(&stage), expected, "{kind}");
        stage.pass(29_999);
        assert_eq!(why(&stage), expected, "{kind}");
        stage.pass(1);
        assert_eq!(why(&stage), None, "{kind}");
    }
}

#[test]
fn a_prompt_waits_until_a_limit_is_over() {
    for state in ActivityState::ALL {
        let limited_until = Some(Timestamp(START + 9000));
        let ask = asks(AskKind::Bell);
        let (source, confirm) = (Source::Output, "claude");
        let mut stage = doing(confirm, Activity { state, source, ask, limited_until, ..Activity::default() });
        assert_eq!(why(&stage).as_deref(), Some("its agent has reached its usage limit, for 9 s more"));
        stage.pass(9000);
        let unready = state == ActivityState::Unknown;
        assert_eq!(why(&stage).is_some(), unready, "{state:?}");
    }
}

#[test]
fn an_agent_that_ended_its_conversation_and_begins_no_other_needs_a_person() {
    let ended = Activity { state: ActivityState::Unknown, source: Source::Hook, ..Activity::default() };
    let mut stage = doing("claude", ended);
    let needs_person = |stage: &Stage| {
        record_gate(stage.pool(), &settings(), stage.session(), stage.now()).unwrap_err().needs_person()
    };
    assert!(!needs_person(&stage), "as long as a command for a fresh context may take");
    stage.pass(10_000);
    assert!(needs_person(&stage));
}

#[test]
fn what_an_earlier_incarnation_did_holds_nothing_back() {
    let busy = Activity { state: ActivityState::Busy, source: Source::Hook, ..Activity::default() };
    let mut stage = doing("none", busy);
    assert!(why(&stage).is_some());
    stage.again();
    assert_eq!(why(&stage), None);
}

#[test]
fn i3_a_prompt_in_doubt_holds_the_next_back() {
    let mut stage = doing("none", Activity::default());
    let id = stage.typed();
    stage.moves(id, MessageState::InDoubt);
    assert_eq!(why(&stage).as_deref(), Some("it waits for a person: message"));
}

fn seen(composer: Composer, dialog: Option<&str>) -> ScreenReading {
    let named = |name: &str| Dialog { name: name.to_owned(), text: "?".to_owned(), is_startup: false };
    ScreenReading { at: Timestamp(START), composer, dialog: dialog.map(named), works: None, background: None }
}

/// The reason for which a prompt is not typed, in one word.
fn reason(kind: &str, waits_for_screen: bool, pane: &PaneSnapshot) -> Option<&'static str> {
    let agent = Agent { waits_for_screen, ..agent(kind) };
    let blocked = pane_gate(&settings(), &agent, pane).err()?;
    let why = blocked.to_string();
    let words = [
        "copy mode",
        "typing",
        "not read",
        "full-screen",
        "dialog",
        "holds text",
        "not visible",
        "does not show",
        "does not take pastes",
        "unfinished line",
        "it works",
    ];
    let word = *words.iter().find(|word| why.contains(**word)).unwrap_or_else(|| panic!("{why}"));
    assert_eq!(
        blocked.needs_person(),
        !["typing", "does not take pastes", "it works"].contains(&word),
        "{why}"
    );
    Some(word)
}

#[test]
fn i3_nothing_is_typed_into_a_terminal_that_somebody_or_something_else_has() {
    let free = PaneSnapshot::default();
    let of = |look| PaneSnapshot { screen: Some(look), ..PaneSnapshot::default() };
    let typed = |ms| PaneSnapshot { typed_ago: Some(Duration::from_millis(ms)), ..PaneSnapshot::default() };
    let unread = |bytes| PaneSnapshot { unread: Some(bytes), ..PaneSnapshot::default() };
    let full = PaneSnapshot { alternate: true, ..PaneSnapshot::default() };
    let said_idle = |ms| PaneSnapshot {
        said_idle_ago: Some(Duration::from_millis(ms)),
        ..of(seen(Composer::Unknown, None))
    };
    let held = || Composer::Holds("draft".to_owned());
    let unfinished = PaneSnapshot { holds_unfinished_line: true, ..PaneSnapshot::default() };
    for (pane, claude, none) in [
        (free.clone(), None, None),
        (PaneSnapshot { in_mode: true, ..free }, Some("copy mode"), Some("copy mode")),
        (typed(0), Some("typing"), Some("typing")),
        (typed(2999), Some("typing"), Some("typing")),
        (typed(3000), None, None),
        (unread(0), None, None),
        (unread(1), Some("not read"), Some("not read")),
        (full, Some("full-screen"), Some("full-screen")),
        (unfinished, Some("unfinished line"), Some("unfinished line")),
        (of(seen(Composer::Empty, None)), None, None),
        (of(ScreenReading { works: Some(false), ..seen(Composer::Empty, None) }), None, None),
        (of(ScreenReading { works: Some(true), ..seen(Composer::Empty, None) }), Some("it works"), None),
        (of(seen(Composer::Unknown, None)), Some("does not show"), None),
        (said_idle(2999), Some("does not show"), None),
        (said_idle(3000), None, None),
        (
            PaneSnapshot { takes_pastes: Some(false), ..of(seen(Composer::Empty, None)) },
            Some("does not take pastes"),
            None,
        ),
        (PaneSnapshot { takes_pastes: Some(true), ..of(seen(Composer::Empty, None)) }, None, None),
        (of(seen(Composer::Hidden, None)), Some("not visible"), None),
        (of(seen(held(), None)), Some("holds text"), None),
        (of(seen(Composer::Empty, Some("trust"))), Some("dialog"), None),
        (of(seen(held(), Some("trust"))), Some("dialog"), None),
    ] {
        let editor = PaneSnapshot { alternate: true, ..pane.clone() };
        let idle = pane.said_idle_ago.is_some()
            && pane.screen.as_ref().is_some_and(|l| l.composer == Composer::Unknown);
        assert!(!idle || reason("claude", false, &editor) == Some("does not show"), "{editor:?}");
        assert_eq!(reason("claude", true, &pane), claude, "{pane:?}");
        assert_eq!(reason("none", true, &pane), none, "{pane:?}");
        let screen = |why: Option<&'static str>| why.filter(|why| *why != "full-screen");
        assert_eq!(reason("claude", false, &pane), screen(claude), "an agent that draws one: {pane:?}");
    }
}

#[test]
fn i3_an_empty_composer_from_before_the_last_prompt_takes_no_other() {
    let gate = |agent: &Agent, ms: u64| {
        let screen = Some(seen(Composer::Empty, None));
        let unheard_ago = Some(Duration::from_millis(ms));
        pane_gate(&settings(), agent, &PaneSnapshot { screen, unheard_ago, ..PaneSnapshot::default() })
    };
    let described = |works: bool| {
        let pattern = |text: &str| text.parse().ok();
        let works = pattern("^works").filter(|_| works);
        let screen = Patterns { composer: pattern("^> (.*)"), works, ..Patterns::default() };
        Agent { screen, ..agent("none") }
    };
    let silent = Agent { confirm: Confirm::None, hooks: false, ..agent("claude") };
    // Hooks do not report every command that is typed.
    for agent in [silent, agent("claude"), described(true)] {
        let blocked = gate(&agent, 1000).unwrap_err();
        assert!(!blocked.needs_person(), "{blocked}");
        assert_eq!(blocked.ends_in(), Some(Duration::from_secs(2)));
        assert_eq!(gate(&agent, 3000), Ok(()), "it does not work");
    }
    assert_eq!(gate(&described(false), 0), Ok(()), "its screen never shows that it works");
}

#[test]
fn i3_no_key_answers_the_usage_limit_in_a_terminal_that_somebody_or_something_else_has() {
    let shows = |dialog| PaneSnapshot { screen: Some(seen(Composer::Hidden, dialog)), ..Default::default() };
    let limit = || shows(Some(USAGE_LIMIT));
    let typed = |ms| PaneSnapshot { typed_ago: Some(Duration::from_millis(ms)), ..limit() };
    for (pane, is_answered) in [
        (limit(), true),
        (typed(3000), true),
        (typed(2999), false),
        (PaneSnapshot { in_mode: true, ..limit() }, false),
        (PaneSnapshot { unread: Some(1), ..limit() }, false),
        (PaneSnapshot { holds_unfinished_line: true, ..limit() }, false),
        (shows(Some("permission")), false),
        (shows(None), false),
        (PaneSnapshot::default(), false),
    ] {
        let found = usage_limit_dialog(&settings(), &agent("claude"), &pane);
        let found = found.map(|(_, dialog)| dialog.name.as_str());
        assert_eq!(found, is_answered.then_some(USAGE_LIMIT), "{pane:?}");
    }
}

#[test]
fn a_bare_command_is_asked_before_its_screen_is_typed_into() {
    let stage = Stage::new("nobody configured this");
    assert!(settings().agent_of(stage.session()).waits_for_screen);
}

#[test]
fn enter_comes_after_a_pause_by_length() {
    let ms = |bytes: u32| enter_delay(bytes).as_millis();
    assert_eq!((ms(0), ms(4000), ms(24_000), ms(u32::MAX)), (150, 250, 750, 750));
    let largest = u32::try_from(BODY_MAX).unwrap();
    assert!((0..largest).step_by(997).all(|bytes| enter_delay(bytes) <= enter_delay(bytes + 1)));
}

/// A reading of the screen after a prompt was typed, and whether a hook reported.
fn looks() -> impl Strategy<Value = (Option<ScreenReading>, bool)> {
    let text = || Composer::Holds("text".to_owned());
    let draft = Composer::Holds("a draft".to_owned());
    let composers = vec![text(), text(), text(), draft, Composer::Empty, Composer::Hidden, Composer::Unknown];
    let look = (prop::sample::select(composers), prop::sample::select(vec![None, None, Some("permission")]));
    let look = prop::option::weighted(0.9, look.prop_map(|(composer, dialog)| seen(composer, dialog)));
    (look, prop::bool::weighted(0.2))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn enter_is_pressed_again_only_where_the_text_stands_and_it_always_ends(all in vec(looks(), 20)) {
        let (mut unconfirmed, mut enters, mut waited) = (Unconfirmed::default(), 0, Duration::ZERO);
        let mut end = None;
        for (n, (look, busy)) in all.iter().enumerate() {
            let pause = unconfirmed.pause();
            prop_assert!(pause >= Duration::from_millis(900) && pause <= Duration::from_secs(8), "{pause:?}");
            waited += pause;
            let stands = look.as_ref().is_some_and(|look| {
                look.dialog.is_none() && look.composer == Composer::Holds("text".to_owned())
            });
            let pane = PaneSnapshot { screen: look.clone(), ..PaneSnapshot::default() };
            prop_assert_eq!(prompt::stands_in_composer(&settings(), ("my text", Duration::ZERO), &pane), stands);
            match unconfirmed.next(stands, *busy) {
                NextStep::PressEnter => {
                    prop_assert!(stands && !busy);
                    enters += 1;
                }
                NextStep::Wait => prop_assert!(!stands || *busy || enters == 5),
                NextStep::LeaveToPerson(why) => {
                    prop_assert_eq!(why.contains("press Enter"), stands);
                    end = Some(n + 1);
                    break;
                }
            }
        }
        prop_assert!(enters <= 5);
        let looks = end.expect("it is left to a person some time");
        prop_assert!((7..=12).contains(&looks), "{looks}");
        prop_assert!(waited <= Duration::from_secs(90), "{waited:?}");
    }
}

#[test]
fn enter_helps_at_once_where_the_text_stands() {
    let mut unconfirmed = Unconfirmed::default();
    assert_eq!(unconfirmed.next(true, false), NextStep::PressEnter);
    assert_eq!(unconfirmed.next(true, true), NextStep::Wait, "a hook spoke");
    assert_eq!(unconfirmed.next(false, false), NextStep::Wait);
    assert_eq!(unconfirmed, Unconfirmed { checks: 3, enters: 1 });
}

const TYPED: &str = "one line\nanother\nand the end";

#[test]
fn enter_is_never_pressed_on_what_may_mean_another_thing() {
    let pane = |composer, dialog, works| {
        let look = ScreenReading { works, ..seen(composer, dialog) };
        PaneSnapshot { screen: Some(look), ..PaneSnapshot::default() }
    };
    let text = || Composer::Holds("and the end".to_owned());
    let stands =
        |pane: &PaneSnapshot| prompt::stands_in_composer(&settings(), (TYPED, Duration::from_secs(60)), pane);
    assert!(stands(&pane(text(), None, None)));
    let folded = pane(Composer::Holds("[Pasted text #2 +30 lines]".to_owned()), None, None);
    assert!(stands(&folded));
    assert!(!prompt::stands_in_composer(&settings(), ("hi", Duration::ZERO), &folded), "that is no long one");
    assert!(!stands(&pane(Composer::Holds("somebody's draft".to_owned()), None, None)));
    assert!(!stands(&pane(text(), Some("permission"), None)), "Enter would say yes");
    assert!(!stands(&pane(text(), None, Some(true))), "it works already");
    let typing = |ago| PaneSnapshot { typed_ago: Some(Duration::from_secs(ago)), ..pane(text(), None, None) };
    assert!(!stands(&typing(30)), "somebody has typed since");
    assert!(stands(&typing(62)));
    let unread = |bytes| PaneSnapshot { unread: Some(bytes), ..pane(text(), None, None) };
    assert!(!stands(&unread(1)), "that may be Enter");
    assert!(stands(&unread(0)));
}

#[test]
fn the_table_of_an_agent_is_that_of_its_kind() {
    let all: Settings = settings();
    for kind in KINDS {
        assert_eq!(*all.agent_of(Stage::new(kind).session()), agent(kind));
    }
}

#[test]
fn a_line_that_a_terminal_would_cut_is_not_typed() {
    let whole = "x".repeat(LINE_MAX);
    for (text, fits) in
        [(whole.clone(), true), (format!("{whole}\n{whole}\r"), true), (format!("a\n{whole}x"), false)]
    {
        let gate = |cuts_lines| line_gate((MessageId(1), text.as_bytes()), cuts_lines);
        assert!(gate(Some(false)).is_ok(), "programs that read each key take it");
        assert_eq!(gate(Some(true)).is_ok(), fits);
        assert_eq!(gate(Some(true)).err().and_then(|why| why.prompt()), (!fits).then_some(MessageId(1)));
    }
}
