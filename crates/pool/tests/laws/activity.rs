//! An agent's activity, by the best evidence.

use std::time::Duration;

use agents::screen::{Composer, Dialog, USAGE_LIMIT};
use pool::agent::{
    AgentObservation, LONG_SILENCE, ScreenReading, ShellMark, TerminalMarks, WindowTitle,
    activity_under_bell, current_activity, derive_activity, waits_for_person,
};
use proptest::prelude::*;
use protocol::hook::{HookEvent, Notice};
use protocol::{
    Activity, ActivityState, AgentEvent, AskKind, Event, Lifecycle, MessageState, Reason, Source, Timestamp,
};

use crate::stage::{START, Stage, signal};
use ActivityState::{Attention, Busy, Error, Idle, Unknown};

fn at(ms: u64) -> Timestamp {
    Timestamp(START + ms)
}

/// A mark that a shell wrote at this time, one byte a millisecond.
fn mark(ms: u64) -> ShellMark {
    ShellMark { end: ms, at: at(ms) }
}

/// A reading at this time of a composer that takes a prompt.
fn ready(ms: u64) -> ScreenReading {
    let composer = Composer::Empty;
    ScreenReading { at: at(ms), composer, works: Some(false), ..ScreenReading::default() }
}

fn dialog(name: &str) -> Option<Dialog> {
    Some(Dialog { name: name.to_owned(), text: "trust it?".to_owned(), is_startup: true })
}

impl Stage {
    /// Applies the activity derived from an observation.
    fn see(&mut self, seen: &AgentObservation) -> Option<Activity> {
        let event = derive_activity(self.pool(), self.session(), seen, self.now())?;
        self.world.emit(event.clone());
        let Event::Agent(AgentEvent::ActivityChanged { activity, .. }) = event else { panic!() };
        Some(activity)
    }

    fn at(mut self, ms: u64) -> Self {
        self.world.now = START + ms;
        self
    }

    fn shown(&self) -> Activity {
        current_activity(self.pool(), self.session())
    }
}

fn quiet(since: u64) -> AgentObservation {
    AgentObservation {
        quiet_since: Some(at(since)),
        idle_quiet: Duration::from_secs(2),
        ..AgentObservation::default()
    }
}

/// The activity derived from an observation of a program without hooks.
fn guessed(seen: &AgentObservation, now: u64) -> (ActivityState, Source, u64) {
    // An unknown activity is no news.
    let Some(found) = Stage::new("shell").at(now).see(seen) else { return (Unknown, Source::Nothing, 0) };
    (found.state, found.source, found.since.0 - START)
}

#[test]
fn a_permission_that_is_answered_at_the_terminal_is_over_once_the_agent_works_on() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    let (tool, text) = ("Bash".to_owned(), "make".to_owned());
    stage.says(HookEvent::Permission { tool, text, wait_ms: 0 });
    assert!(stage.ask().is_some_and(|ask| !ask.answerable));
    let works = |ms| ScreenReading { works: Some(true), ..ready(ms) };
    let look = |screen| AgentObservation { screen: Some(screen), ..quiet(9000) };
    let mut stage = stage.at(2900);
    assert_eq!(stage.see(&look(works(2900))), None, "its dialog may not be drawn yet");
    let mut stage = stage.at(5000);
    let asks = ScreenReading { dialog: dialog("permission"), ..works(4000) };
    assert_eq!(stage.see(&look(asks)), None);
    let queued = AgentObservation { has_queued_asks: true, ..look(works(4000)) };
    assert_eq!(stage.see(&queued), None, "it may work on what another request was for");
    assert_eq!(stage.see(&look(works(4000))).map(|shown| shown.state), Some(Busy));
    assert_eq!(stage.ask(), None);
}

#[test]
fn the_better_evidence_counts() {
    let marks = |prompt: Option<u64>, command: Option<u64>, bell: Option<u64>| TerminalMarks {
        prompt: prompt.map(mark),
        command: command.map(mark),
        bell_at: bell.map(at),
        code: None,
    };
    // Output says idle, the foreground says busy, the marks vary: those of a prompt may be another program's.
    let seen = |marks| AgentObservation { marks, own_foreground: Some(false), ..quiet(10) };
    for (marks, expected) in [
        (marks(None, None, Some(60)), (Attention, Source::Terminal, 60)),
        (marks(Some(50), None, None), (Busy, Source::Process, 9000)),
        (marks(Some(50), Some(70), None), (Busy, Source::Terminal, 70)),
        (marks(Some(80), Some(70), None), (Busy, Source::Process, 9000)),
        (marks(Some(50), Some(70), Some(60)), (Busy, Source::Terminal, 70)),
        (marks(Some(50), Some(70), Some(90)), (Attention, Source::Terminal, 90)),
        (marks(Some(95), Some(70), Some(90)), (Busy, Source::Process, 9000)),
        (marks(None, None, None), (Busy, Source::Process, 9000)),
    ] {
        assert_eq!(guessed(&seen(marks.clone()), 9000), expected, "{marks:?}");
    }
    let at_prompt = AgentObservation { own_foreground: Some(true), ..seen(marks(Some(80), Some(70), None)) };
    assert_eq!(guessed(&at_prompt, 9000), (Idle, Source::Terminal, 80));
    let own = AgentObservation { own_foreground: Some(true), ..quiet(8999) };
    assert_eq!(guessed(&own, 9000), (Idle, Source::Process, 9000));
    assert_eq!(guessed(&quiet(7000), 9000), (Idle, Source::Output, 7000));
    assert_eq!(guessed(&quiet(7001), 9000), (Busy, Source::Output, 9000));
}

#[test]
fn what_nothing_tells_is_unknown_and_not_guessed() {
    assert_eq!(guessed(&AgentObservation::default(), 9000), (Unknown, Source::Nothing, 0));
    let agent = AgentObservation { has_known_screen: true, own_foreground: Some(true), ..quiet(0) };
    assert_eq!(guessed(&agent, 9000), (Unknown, Source::Nothing, 0), "of an agent only its screen tells");
}

#[test]
fn of_an_agent_that_said_nothing_yet_the_screen_tells() {
    let holds = Composer::Holds("x".to_owned());
    let look =
        |composer, dialog, works| ScreenReading { at: at(7), composer, dialog, works, background: None };
    let idle = (Idle, Source::Screen, 7);
    let nothing = (Unknown, Source::Nothing, 0);
    for (look, expected) in [
        (look(Composer::Empty, None, Some(false)), idle),
        (look(Composer::Empty, None, None), idle),
        (look(holds, None, Some(false)), idle),
        (look(Composer::Empty, None, Some(true)), (Busy, Source::Screen, 7)),
        (look(Composer::Unknown, None, Some(true)), (Busy, Source::Screen, 7)),
        (look(Composer::Unknown, None, None), nothing),
        (look(Composer::Hidden, None, Some(false)), nothing),
        (look(Composer::Empty, dialog("trust"), Some(true)), (Attention, Source::Screen, 7)),
    ] {
        // Marks of a shell in the same terminal are not the agent's.
        let marks = TerminalMarks { command: Some(mark(5)), ..TerminalMarks::default() };
        let seen = AgentObservation { screen: Some(look.clone()), has_known_screen: true, marks, ..quiet(0) };
        assert_eq!(guessed(&seen, 9000), expected, "{look:?}");
    }
}

#[test]
fn a_dialog_is_one_request_as_long_as_it_stands() {
    let mut stage = Stage::new("claude").at(9000);
    let look = |ms, name| ScreenReading {
        at: at(ms),
        composer: Composer::Hidden,
        dialog: dialog(name),
        ..ScreenReading::default()
    };
    let seen = |ms, name| AgentObservation {
        screen: Some(look(ms, name)),
        has_known_screen: true,
        ..AgentObservation::default()
    };
    let first = stage.see(&seen(1, "trust")).unwrap().ask.unwrap();
    assert_eq!((first.kind, first.answerable), (AskKind::Dialog, false));
    assert_eq!(stage.see(&seen(2, "trust")), None);
    let second = stage.see(&seen(3, "api_key")).unwrap();
    assert_eq!(second.since, at(3));
    assert_ne!(second.ask.unwrap().id, first.id);
}

#[test]
fn a_bell_asks_for_nobody_in_particular() {
    let marks = TerminalMarks { bell_at: Some(at(1)), ..TerminalMarks::default() };
    let found =
        Stage::new("shell").at(9).see(&AgentObservation { marks, ..AgentObservation::default() }).unwrap();
    assert_eq!(found.ask.as_ref().map(|ask| ask.kind), Some(AskKind::Bell));
    assert!(!waits_for_person(&found));
}

#[test]
fn a_bell_ends() {
    let rang = TerminalMarks { bell_at: Some(at(1000)), ..TerminalMarks::default() };
    let state =
        |now: u64, seen: AgentObservation| Stage::new("shell").at(now).see(&seen).map(|found| found.state);
    let seen = |wrote: u64| AgentObservation { marks: rang.clone(), ..quiet(wrote) };
    assert_eq!(state(9000, seen(1000)), Some(Attention));
    assert_eq!(state(9000, seen(5000)), Some(Attention), "most write something just after it");
    let typed = AgentObservation { delivered_at: Some(at(1500)), ..seen(1000) };
    assert_eq!(state(9000, typed), Some(Idle), "somebody answered");
    assert_eq!(state(40_000, seen(31_500)), Some(Idle), "it goes on by itself");
    let prompt =
        AgentObservation { marks: TerminalMarks { prompt: Some(mark(1001)), ..rang.clone() }, ..quiet(1000) };
    assert_eq!(state(9000, prompt), Some(Idle), "its prompt came back");
    assert_eq!(state(601_000, seen(1000)), Some(Idle), "not for ever");
}

#[test]
fn a_bell_of_after_the_clock_was_set_back_asks_and_ends() {
    let mut stage = Stage::new("shell");
    stage.pass(3_600_000);
    stage.sets_clock(START + 1000);
    stage.pass(10_000);
    let rang = |at_ms: u64| AgentObservation {
        marks: TerminalMarks {
            prompt: Some(mark(3_600_000)),
            bell_at: Some(at(at_ms)),
            ..TerminalMarks::default()
        },
        ..quiet(at_ms)
    };
    let asks = |seen: &AgentObservation| activity_under_bell(stage.pool(), seen, stage.now()).is_some();
    assert!(asks(&rang(5000)), "though its prompt is marked with a later time");
    let answered = AgentObservation { delivered_at: Some(at(6000)), ..rang(5000) };
    assert!(!asks(&answered));
    let before = AgentObservation { quiet_since: Some(at(5000)), ..rang(3_600_000) };
    assert!(asks(&before), "it rang just before the clock was set");
}

#[test]
fn how_a_command_ended_is_said_while_its_prompt_stands() {
    let marks = |code, command| TerminalMarks {
        code,
        prompt: Some(mark(5)),
        command: Some(mark(command)),
        ..TerminalMarks::default()
    };
    let detail = |marks| {
        Stage::new("shell")
            .at(9)
            .see(&AgentObservation { marks, ..AgentObservation::default() })
            .unwrap()
            .detail
    };
    assert_eq!(detail(marks(Some(2), 4)).as_deref(), Some("its last command ended with 2"));
    assert_eq!(detail(marks(Some(0), 4)), None);
    assert_eq!(detail(marks(Some(2), 6)), None);
}

#[test]
fn what_its_hook_says_is_not_corrected_by_worse_evidence() {
    for (said, state) in [
        (signal::prompt(), Busy),
        (signal::over(), Idle),
        (signal::asks("Bash", 0), Attention),
        (signal::failed(None), Error),
        (signal::ended(), Unknown),
    ] {
        let mut stage = Stage::new("claude");
        stage.says(said);
        assert_eq!(stage.state(), state);
        stage.pass(60_000);
        let marks =
            TerminalMarks { command: Some(mark(50)), bell_at: Some(at(70)), ..TerminalMarks::default() };
        let seen =
            AgentObservation { marks, own_foreground: Some(false), has_known_screen: true, ..quiet(30_000) };
        assert_eq!(stage.see(&seen), None);
        let seen =
            AgentObservation { screen: Some(ScreenReading { works: Some(true), ..ready(59_000) }), ..seen };
        let is_left = state == Attention;
        assert_eq!(
            stage.see(&seen).is_some(),
            is_left,
            "a screen that says that it works tells of an answer only"
        );
    }
}

/// The activity of an agent that has worked since 0 and whose last hook report came at `heard`, observed at
/// `now`.
fn corrected(heard: u64, seen: &AgentObservation, now: u64) -> Option<(ActivityState, Source, u64)> {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    stage.world.now = START + heard;
    stage.says(signal::works("Bash"));
    stage.says(signal::works("Bash"));
    let found = stage.at(now).see(seen)?;
    Some((found.state, found.source, found.since.0 - START))
}

#[test]
fn a_screen_corrects_a_hook_only_after_silence_and_only_to_idle() {
    let seen = |quiet_since: u64, look: ScreenReading| AgentObservation {
        screen: Some(look),
        has_known_screen: true,
        ..quiet(quiet_since)
    };
    let idle = |ms| Some((Idle, Source::Screen, ms));
    assert_eq!(LONG_SILENCE.as_millis(), 10_000);
    // The last hook report came at 1000; output ended at 2000.
    assert_eq!(corrected(1000, &seen(2000, ready(11_999)), 12_000), idle(11_999));
    assert_eq!(corrected(1000, &seen(2000, ready(11_998)), 11_999), None, "it was silent for too short");
    assert_eq!(corrected(2000, &seen(1000, ready(11_998)), 11_999), None, "so were its hooks");
    assert_eq!(corrected(2000, &seen(1000, ready(11_999)), 12_000), idle(11_999));
    assert_eq!(corrected(1000, &seen(2000, ready(2000)), 12_000), None, "it was looked at before");
    let unknown = AgentObservation { quiet_since: None, ..seen(0, ready(11_999)) };
    assert_eq!(corrected(1000, &unknown, 12_000), None);
    let works = ScreenReading { works: Some(true), ..ready(11_999) };
    assert_eq!(corrected(1000, &seen(2000, works), 12_000), None);
    let always = AgentObservation { composer_while_busy: true, ..seen(2000, ready(11_999)) };
    assert_eq!(corrected(1000, &always, 12_000), None, "its composer is there while it works, too");
    let asks = ScreenReading { dialog: dialog("permission"), ..ready(11_999) };
    assert_eq!(corrected(1000, &seen(2000, asks), 12_000), None);
    for (composer, expected) in [
        (Composer::Holds("SLOW".to_owned()), idle(11_999)),
        (Composer::Hidden, None),
        (Composer::Unknown, None),
    ] {
        let look = ScreenReading { composer: composer.clone(), ..ready(11_999) };
        assert_eq!(corrected(1000, &seen(2000, look), 12_000), expected, "{composer:?}");
    }
}

#[test]
fn an_agent_that_outlives_its_conversation_is_idle_once_its_screen_shows_that() {
    let seen = |look, outlives_conversation| AgentObservation {
        screen: Some(look),
        has_known_screen: true,
        outlives_conversation,
        ..quiet(0)
    };
    let found = |seen: &AgentObservation| {
        let mut stage = Stage::new("codex");
        stage.says(signal::prompt());
        stage.says(signal::ended());
        stage.at(20_000).see(seen).map(|found| (found.state, found.source))
    };
    assert_eq!(found(&seen(ready(19_000), true)), Some((Idle, Source::Screen)));
    assert_eq!(found(&seen(ready(19_000), false)), None, "it may have ended with its conversation");
    let hidden = ScreenReading { composer: Composer::Hidden, ..ready(19_000) };
    assert_eq!(found(&seen(hidden, true)), None, "another program may show what it likes");
}

#[test]
fn a_question_that_no_hook_tells_of_is_seen_after_silence_and_over_when_it_works_again() {
    let seen =
        |look: ScreenReading| AgentObservation { screen: Some(look), has_known_screen: true, ..quiet(2000) };
    let asks =
        |at: u64| ScreenReading { dialog: dialog("question"), composer: Composer::Hidden, ..ready(at) };
    assert_eq!(corrected(1000, &seen(asks(6999)), 7000), Some((Attention, Source::Screen, 6999)));
    assert_eq!(corrected(1000, &seen(asks(6998)), 6999), None, "it was silent for too short");
    let works = |at: u64| ScreenReading { works: Some(true), composer: Composer::Hidden, ..ready(at) };
    for (next, expected) in [
        (asks(14_000), (Attention, Source::Screen, 6999)),
        (works(14_000), (Busy, Source::Screen, 6999)),
        (ready(14_000), (Idle, Source::Screen, 14_000)),
    ] {
        let mut stage = Stage::new("codex");
        stage.says(signal::prompt());
        let mut stage = stage.at(7000);
        stage.see(&seen(asks(6999)));
        let ask = stage.ask().unwrap();
        assert_eq!((ask.kind, ask.answerable), (AskKind::Question, false));
        let mut stage = stage.at(14_001);
        stage.see(&seen(next));
        let now = stage.activity();
        assert_eq!((now.state, now.source, now.since.0 - START), expected);
        assert_eq!(now.ask.is_some(), now.state == Attention);
        // A report counts at once.
        stage.says(signal::works("Bash"));
        assert_eq!((stage.state(), stage.ask()), (Busy, None));
    }
    // The title tells at once that a question is open, and that it is over.
    let asking = |ms: u64, title| AgentObservation { quiet_since: Some(at(6990)), title, ..seen(asks(ms)) };
    let titled = |ms: u64, title| corrected(6980, &asking(ms, title), 7000);
    assert_eq!(titled(6999, WindowTitle::Asks(at(6998))), Some((Attention, Source::Screen, 6999)));
    assert_eq!(titled(6998, WindowTitle::Asks(at(6998))), None, "it was looked at before");
    assert_eq!(titled(6999, WindowTitle::Other(at(6998))), None);
    let mut stage = Stage::new("codex");
    stage.says(signal::prompt());
    let mut stage = stage.at(7000);
    stage.see(&asking(6999, WindowTitle::Asks(at(6998))));
    assert_eq!(stage.see(&asking(6999, WindowTitle::Other(at(6999)))), None, "that was read before");
    stage.see(&asking(6999, WindowTitle::Other(at(7000))));
    assert_eq!((stage.state(), stage.ask()), (Busy, None));
    // The next of several questions is another one; the agent's record may tell an interruption.
    stage.see(&asking(7001, WindowTitle::Asks(at(7000))));
    let first = stage.ask().unwrap();
    let other = Dialog { text: "how many?".to_owned(), ..dialog("question").unwrap() };
    let next = |ms: u64| ScreenReading { dialog: Some(other.clone()), ..asks(ms) };
    stage.see(&AgentObservation { screen: Some(next(7002)), ..asking(7002, WindowTitle::Asks(at(7000))) });
    let second = stage.ask().unwrap();
    assert_eq!((second.text.as_str(), first.id == second.id), ("how many?", false));
    let mut over = stage.at(7100);
    over.see(&AgentObservation { screen: Some(next(7002)), ..asking(7002, WindowTitle::Other(at(7050))) });
    assert_eq!(over.state(), Busy);
    over.see(&AgentObservation {
        interrupted_at: Some(at(7040)),
        ..asking(7002, WindowTitle::Other(at(7050)))
    });
    assert_eq!((over.state(), over.activity().source), (Idle, Source::Transcript));
    // A request whose hook waits is not another request when it is seen on the screen.
    let mut stage = Stage::new("claude");
    stage.says(signal::asks("Bash", 60_000));
    let mut stage = stage.at(7000);
    assert_eq!(stage.see(&seen(asks(6999))), None);
    assert_eq!(stage.see(&seen(works(6999))), None);
}

#[test]
fn a_described_dialog_that_no_hook_tells_of_is_a_question_and_one_that_it_told_of_is_no_other() {
    let seen = |look: ScreenReading| AgentObservation {
        screen: Some(look),
        has_known_screen: true,
        is_described: true,
        ..quiet(2000)
    };
    let menu = |at: u64| ScreenReading { dialog: dialog("menu"), composer: Composer::Hidden, ..ready(at) };
    assert_eq!(corrected(1000, &seen(menu(6999)), 7000), Some((Attention, Source::Screen, 6999)));
    let known = AgentObservation { is_described: false, ..seen(menu(6999)) };
    assert_eq!(corrected(1000, &known, 7000), None, "that may be a menu of its user's");
    for (text, is_same) in [("trust it?", true), ("another?", false)] {
        let mut stage = Stage::new("claude");
        stage.says(signal::prompt());
        stage.says(HookEvent::Notified { kind: Notice::Question, text: text.to_owned() });
        let told = stage.ask().unwrap();
        let mut stage = stage.at(7000);
        stage.see(&seen(menu(6999)));
        assert_eq!(stage.ask().unwrap().id == told.id, is_same, "{text}");
        assert_eq!(stage.ask().unwrap().text, "trust it?");
    }
}

#[test]
fn a_question_on_its_screen_that_its_hook_told_of_is_over_once_the_screen_shows_none() {
    let seen = |look: ScreenReading| AgentObservation {
        screen: Some(look),
        has_known_screen: true,
        is_described: true,
        asks_on_screen: true,
        ..quiet(2990)
    };
    let asking = || {
        let mut stage = Stage::new("claude");
        stage.says(signal::prompt());
        stage.world.now = START + 1000;
        stage.says(HookEvent::Notified { kind: Notice::Question, text: "trust it?".to_owned() });
        assert_eq!(stage.state(), Attention);
        stage.at(3000)
    };
    let looks = |composer, dialog, ms| ScreenReading { composer, dialog, works: None, ..ready(ms) };
    let gone = |ms| looks(Composer::Unknown, None, ms);
    for (look, expected) in [
        (gone(2999), Busy),
        (gone(999), Attention),
        (looks(Composer::Hidden, dialog("menu"), 2999), Attention),
        // Its hook reports that it waits.
        (looks(Composer::Empty, None, 2999), Attention),
    ] {
        let mut stage = asking();
        stage.see(&seen(look.clone()));
        assert_eq!(stage.state(), expected, "{look:?}");
        assert_eq!(stage.ask().is_some(), expected == Attention);
    }
    let mut stage = asking();
    stage.see(&AgentObservation { asks_on_screen: false, ..seen(gone(2999)) });
    assert_eq!(stage.state(), Attention, "its hook may ask what no description tells");
}

#[test]
fn a_dialog_about_the_usage_limit_in_a_turn_is_a_question_where_nothing_answers_it() {
    let shown = |at: u64| ScreenReading {
        dialog: dialog(USAGE_LIMIT),
        composer: Composer::Hidden,
        works: None,
        ..ready(at)
    };
    let seen = |look: ScreenReading, leaves_limit_dialog| AgentObservation {
        screen: Some(look),
        has_known_screen: true,
        leaves_limit_dialog,
        ..quiet(2000)
    };
    assert_eq!(corrected(1000, &seen(shown(6999), false), 7000), None, "its answer is configured");
    assert_eq!(corrected(1000, &seen(shown(6998), true), 6999), None, "it was silent for too short");
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    let mut stage = stage.at(7000);
    stage.see(&seen(shown(6999), true));
    assert_eq!((stage.state(), stage.ask().unwrap().kind), (Attention, AskKind::Question));
    let mut stage = stage.at(20_000);
    assert_eq!(stage.see(&seen(shown(19_000), true)), None, "it stands");
    let works = ScreenReading { works: Some(true), composer: Composer::Hidden, ..ready(19_500) };
    let again = stage.see(&AgentObservation { quiet_since: Some(at(19_900)), ..seen(works, true) });
    assert_eq!(again.map(|again| again.state), Some(Busy), "it was answered");
}

#[test]
fn its_own_record_tells_at_once_that_it_was_interrupted() {
    let seen = |interrupted: u64| AgentObservation {
        interrupted_at: Some(at(interrupted)),
        has_known_screen: true,
        ..AgentObservation::default()
    };
    assert_eq!(corrected(10, &seen(20), 30), Some((Idle, Source::Transcript, 20)));
    assert_eq!(corrected(10, &seen(0), 30), None, "that was the turn before");
    let mut stage = Stage::new("claude");
    stage.says(signal::over());
    assert_eq!(stage.at(30).see(&seen(20)), None, "it is idle anyhow");
}

#[test]
fn an_interruption_of_before_the_clock_was_set_back_ends_no_later_turn() {
    let mut stage = Stage::new("claude");
    let interrupted_at = Some(stage.now());
    stage.pass(1000);
    stage.sets_clock(START / 2);
    stage.says(signal::prompt());
    stage.pass(1000);
    let seen = AgentObservation { interrupted_at, has_known_screen: true, ..AgentObservation::default() };
    assert_eq!(stage.see(&seen), None);
    let interrupted_at = Some(stage.now());
    stage.pass(1000);
    assert_eq!(stage.see(&AgentObservation { interrupted_at, ..seen }).map(|seen| seen.state), Some(Idle));
}

#[test]
fn hooks_of_an_earlier_incarnation_say_nothing() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    stage.again();
    let mut stage = stage.at(10);
    assert_eq!(stage.shown().state, Unknown);
    let seen =
        AgentObservation { screen: Some(ready(9)), has_known_screen: true, ..AgentObservation::default() };
    assert_eq!(stage.see(&seen).map(|a| (a.state, a.source)), Some((Idle, Source::Screen)));
}

#[test]
fn what_does_not_run_does_nothing() {
    use Lifecycle::{Draining, Failed, Live, Lost, Parked, Starting, Stopped};
    for lifecycle in [Starting, Live, Draining, Parked, Stopped, Lost, Failed] {
        let mut stage = Stage::new("claude");
        stage.says(signal::prompt());
        stage.is(lifecycle, Some(Reason::Exited));
        let runs = matches!(lifecycle, Live | Draining);
        assert_eq!(stage.shown().state, if runs { Busy } else { Unknown }, "{lifecycle:?}");
        let seen = AgentObservation {
            interrupted_at: Some(at(9)),
            has_known_screen: true,
            ..AgentObservation::default()
        };
        assert_eq!(stage.at(10).see(&seen).is_some(), lifecycle == Live, "{lifecycle:?}");
    }
}

#[test]
fn a_prompt_in_doubt_is_shown_before_all_but_what_its_agent_asks() {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    stage.says(signal::notified(Notice::Idle));
    stage.pass(5);
    stage.moves(id, MessageState::InDoubt);
    let activity = stage.shown();
    let ask = activity.ask.clone().unwrap();
    assert_eq!((activity.state, activity.source, activity.since), (Attention, Source::Queue, at(5)));
    assert_eq!((ask.kind, ask.id, ask.answerable), (AskKind::Message, id.0, false));
    let how = format!("poolctl queue resolve {} {id} --as", stage.session().name);
    assert!(ask.text.contains(&how) && waits_for_person(&activity), "{}", ask.text);
    stage.says(signal::asks("Bash", 60_000));
    assert_eq!(stage.shown().ask.map(|ask| (ask.kind, ask.answerable)), Some((AskKind::Permission, true)));
    stage.says(signal::used("Bash"));
    assert_eq!(stage.shown().ask.map(|ask| ask.kind), Some(AskKind::Message));
    stage.says(signal::over());
    stage.moves(id, MessageState::Done);
    assert_eq!(stage.shown().state, Idle);
    stage.is(Lifecycle::Parked, Some(Reason::Parked));
    assert_eq!(stage.shown().state, Unknown);
}

fn seen() -> impl Strategy<Value = AgentObservation> {
    let time = || prop::option::of((0_u64..30_000).prop_map(at));
    let place = || prop::option::of((0_u64..30_000).prop_map(mark));
    let marks = (place(), place(), time(), prop::option::of(0..3))
        .prop_map(|(prompt, command, bell_at, code)| TerminalMarks { prompt, command, bell_at, code });
    let composers = [Composer::Empty, Composer::Hidden, Composer::Unknown, Composer::Holds("x".to_owned())];
    let dialogs = prop::sample::select(vec![None, Some("trust"), Some("question")]);
    let look = (0_u64..30_000, prop::sample::select(composers.to_vec()), dialogs, any::<Option<bool>>());
    let look = look.prop_map(|(ms, composer, asks, works)| {
        let dialog = asks.and_then(dialog);
        ScreenReading { at: at(ms), composer, dialog, works, background: None }
    });
    let flags = (any::<Option<bool>>(), any::<bool>());
    let title = prop_oneof![
        Just(WindowTitle::Unread),
        (0_u64..30_000).prop_map(|ms| WindowTitle::Asks(at(ms))),
        (0_u64..30_000).prop_map(|ms| WindowTitle::Other(at(ms))),
    ];
    (time(), marks, time(), (prop::option::of(look), title), flags).prop_map(
        |(quiet_since, marks, interrupted_at, (screen, title), (own_foreground, is_known))| {
            AgentObservation {
                delivered_at: None,
                attended_at: None,
                quiet_since,
                idle_quiet: Duration::from_secs(2),
                marks,
                own_foreground,
                interrupted_at,
                screen,
                title,
                composer_while_busy: false,
                is_described: false,
                asks_on_screen: false,
                leaves_limit_dialog: false,
                has_known_screen: is_known,
                outlives_conversation: is_known,
                has_queued_asks: false,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    /// Arbitrary observations in arbitrary order.
    #[test]
    fn since_stays_while_the_state_does_and_the_same_is_no_news(
        hooked in any::<bool>(), all in prop::collection::vec((seen(), 0_u64..9000), 1..12),
    ) {
        let mut stage = Stage::new("claude");
        if hooked {
            stage.says(signal::prompt());
        }
        for (seen, passed) in all {
            stage.pass(passed);
            let before = stage.activity();
            let found = stage.see(&seen);
            let after = stage.activity();
            prop_assert_eq!(found.is_none(), before == after);
            prop_assert_eq!(stage.see(&seen).map(|again| again.since), None, "the same again");
            prop_assert!(after.since.0 >= START || after.tag.is_none());
            if before.tag == after.tag && before.state == after.state && before.ask == after.ask {
                prop_assert_eq!(before.since, after.since);
            }
            if hooked {
                let asks = after.ask.as_ref().is_some_and(|ask| ask.kind == AskKind::Question);
                prop_assert_eq!(after.state == Attention, asks && after.source == Source::Screen);
                prop_assert!([Busy, Idle, Attention].contains(&after.state), "{:?}", after.state);
                let works = [Busy, Attention].contains(&before.state);
                prop_assert!(works || after == before, "only a hook makes it busy again");
            } else {
                let by_screen = matches!(after.source, Source::Screen | Source::Nothing);
                // Without any evidence the activity stays as it was.
                let nothing = found.is_none();
                prop_assert!(nothing || by_screen == (seen.has_known_screen || after.state == Unknown));
                prop_assert_eq!(after.ask.is_some(), after.state == Attention);
            }
        }
    }
}
