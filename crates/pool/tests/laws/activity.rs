//! What an agent does, by the best evidence that there is.

use std::time::Duration;

use agents::screen::{Composer, Dialog};
use pool::activity::{Look, Marks, SILENCE, Seen, Title, asks, judged, shown};
use proptest::prelude::*;
use protocol::activity::{AskKind, Source};
use protocol::event::AgentEvent;
use protocol::hook::Notice;
use protocol::session::Reason;
use protocol::{Activity, ActivityState, Event, Lifecycle, MessageState, Timestamp};

use crate::stage::{START, Stage, signal};
use ActivityState::{Attention, Busy, Error, Idle, Unknown};

const SILENT: u64 = 5000;

fn at(ms: u64) -> Timestamp {
    Timestamp(START + ms)
}

/// A composer that takes a prompt, seen then.
fn ready(ms: u64) -> Look {
    Look { at: at(ms), composer: Composer::Empty, dialog: None, works: Some(false), background: None }
}

fn dialog(name: &str) -> Option<Dialog> {
    Some(Dialog { name: name.to_owned(), text: "trust it?".to_owned(), is_startup: true })
}

impl Stage {
    /// What is seen of it is taken in.
    fn see(&mut self, seen: &Seen) -> Option<Activity> {
        let event = judged(self.pool(), self.session(), seen, self.now())?;
        self.world.emit(event.clone());
        let Event::Agent(AgentEvent::ActivityChanged { activity, .. }) = event else { panic!() };
        Some(activity)
    }

    fn at(mut self, ms: u64) -> Self {
        self.world.now = START + ms;
        self
    }

    fn shown(&self) -> Activity {
        shown(self.pool(), self.session())
    }
}

fn quiet(since: u64) -> Seen {
    Seen { quiet_since: Some(at(since)), idle_quiet: Duration::from_secs(2), ..Seen::default() }
}

/// What is seen of a program without hooks, and what that comes to.
fn guessed(seen: &Seen, now: u64) -> (ActivityState, Source, u64) {
    // That nothing is known is no news.
    let Some(found) = Stage::new("shell").at(now).see(seen) else { return (Unknown, Source::Nothing, 0) };
    (found.state, found.source, found.since.0 - START)
}

#[test]
fn the_better_evidence_counts() {
    let marks = |prompt: Option<u64>, command: Option<u64>, bell: Option<u64>| Marks {
        prompt_at: prompt.map(at),
        command_at: command.map(at),
        bell_at: bell.map(at),
        code: None,
    };
    // Output says idle, the foreground says busy, the terminal says what it says.
    let seen = |marks| Seen { marks, own_foreground: Some(false), ..quiet(10) };
    for (marks, expected) in [
        (marks(None, None, Some(60)), (Attention, Source::Terminal, 60)),
        (marks(Some(50), None, None), (Idle, Source::Terminal, 50)),
        (marks(Some(50), Some(70), None), (Busy, Source::Terminal, 70)),
        (marks(Some(80), Some(70), None), (Idle, Source::Terminal, 80)),
        (marks(Some(50), Some(70), Some(60)), (Busy, Source::Terminal, 70)),
        (marks(Some(50), Some(70), Some(90)), (Attention, Source::Terminal, 90)),
        (marks(Some(95), Some(70), Some(90)), (Idle, Source::Terminal, 95)),
        (marks(None, None, None), (Busy, Source::Process, 9000)),
    ] {
        assert_eq!(guessed(&seen(marks.clone()), 9000), expected, "{marks:?}");
    }
    let own = Seen { own_foreground: Some(true), ..quiet(8999) };
    assert_eq!(guessed(&own, 9000), (Idle, Source::Process, 9000));
    assert_eq!(guessed(&quiet(7000), 9000), (Idle, Source::Output, 7000));
    assert_eq!(guessed(&quiet(7001), 9000), (Busy, Source::Output, 9000));
}

#[test]
fn what_nothing_tells_is_unknown_and_not_guessed() {
    assert_eq!(guessed(&Seen::default(), 9000), (Unknown, Source::Nothing, 0));
    let agent = Seen { is_known: true, own_foreground: Some(true), ..quiet(0) };
    assert_eq!(guessed(&agent, 9000), (Unknown, Source::Nothing, 0), "of an agent only its screen tells");
}

#[test]
fn of_an_agent_that_said_nothing_yet_the_screen_tells() {
    let holds = Composer::Holds("x".to_owned());
    let look = |composer, dialog, works| Look { at: at(7), composer, dialog, works, background: None };
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
        // The shell's marks in the same terminal are not its own.
        let marks = Marks { command_at: Some(at(5)), ..Marks::default() };
        let seen = Seen { screen: Some(look.clone()), is_known: true, marks, ..quiet(0) };
        assert_eq!(guessed(&seen, 9000), expected, "{look:?}");
    }
}

#[test]
fn a_dialog_is_one_request_as_long_as_it_stands() {
    let mut stage = Stage::new("claude").at(9000);
    let look = |ms, name| Look {
        at: at(ms),
        composer: Composer::Hidden,
        dialog: dialog(name),
        works: None,
        background: None,
    };
    let seen = |ms, name| Seen { screen: Some(look(ms, name)), is_known: true, ..Seen::default() };
    let first = stage.see(&seen(1, "trust")).unwrap().ask.unwrap();
    assert_eq!((first.kind, first.answerable), (AskKind::Dialog, false));
    assert_eq!(stage.see(&seen(2, "trust")), None);
    let second = stage.see(&seen(3, "api_key")).unwrap();
    assert_eq!(second.since, at(3));
    assert_ne!(second.ask.unwrap().id, first.id);
}

#[test]
fn a_bell_asks_for_nobody_in_particular() {
    let marks = Marks { bell_at: Some(at(1)), ..Marks::default() };
    let found = Stage::new("shell").at(9).see(&Seen { marks, ..Seen::default() }).unwrap();
    assert_eq!(found.ask.as_ref().map(|ask| ask.kind), Some(AskKind::Bell));
    assert!(!asks(&found));
}

#[test]
fn a_bell_ends() {
    let rang = Marks { bell_at: Some(at(1000)), ..Marks::default() };
    let state = |now: u64, seen: Seen| Stage::new("shell").at(now).see(&seen).map(|found| found.state);
    let seen = |wrote: u64| Seen { marks: rang.clone(), ..quiet(wrote) };
    assert_eq!(state(9000, seen(1000)), Some(Attention));
    assert_eq!(state(9000, seen(5000)), Some(Attention), "most write something just after it");
    let typed = Seen { worked_at: Some(at(1500)), ..seen(1000) };
    assert_eq!(state(9000, typed), Some(Idle), "somebody answered");
    assert_eq!(state(40_000, seen(31_500)), Some(Idle), "it goes on by itself");
    let prompt = Seen { marks: Marks { prompt_at: Some(at(1001)), ..rang.clone() }, ..quiet(1000) };
    assert_eq!(state(9000, prompt), Some(Idle), "its prompt came back");
    assert_eq!(state(601_000, seen(1000)), Some(Idle), "not for ever");
}

#[test]
fn how_a_command_ended_is_said_while_its_prompt_stands() {
    let marks = |code, command| Marks {
        code,
        prompt_at: Some(at(5)),
        command_at: Some(at(command)),
        ..Marks::default()
    };
    let detail = |marks| Stage::new("shell").at(9).see(&Seen { marks, ..Seen::default() }).unwrap().detail;
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
        let marks = Marks { command_at: Some(at(50)), bell_at: Some(at(70)), ..Marks::default() };
        let seen = Seen { marks, own_foreground: Some(false), is_known: true, ..quiet(30_000) };
        assert_eq!(stage.see(&seen), None);
        let seen = Seen { screen: Some(Look { works: Some(true), ..ready(59_000) }), ..seen };
        assert_eq!(stage.see(&seen), None, "nor by a screen that says that it works");
    }
}

/// An agent that works since 0, of which the last hook was heard at `heard`, looked at `now`.
fn corrected(heard: u64, seen: &Seen, now: u64) -> Option<(ActivityState, Source, u64)> {
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
    let seen =
        |quiet_since: u64, look: Look| Seen { screen: Some(look), is_known: true, ..quiet(quiet_since) };
    let idle = |ms| Some((Idle, Source::Screen, ms));
    assert_eq!(SILENCE.as_millis(), u128::from(SILENT));
    // The hook was heard at 1000; output ended at 2000.
    assert_eq!(corrected(1000, &seen(2000, ready(6999)), 7000), idle(6999));
    assert_eq!(corrected(1000, &seen(2000, ready(6998)), 6999), None, "it was silent for too short");
    assert_eq!(corrected(2000, &seen(1000, ready(6998)), 6999), None, "so were its hooks");
    assert_eq!(corrected(2000, &seen(1000, ready(6999)), 7000), idle(6999));
    assert_eq!(corrected(1000, &seen(2000, ready(2000)), 7000), None, "it was looked at before");
    assert_eq!(corrected(1000, &Seen { quiet_since: None, ..seen(0, ready(6999)) }, 7000), None);
    let works = Look { works: Some(true), ..ready(6999) };
    assert_eq!(corrected(1000, &seen(2000, works), 7000), None);
    let always = Seen { keeps_composer: true, ..seen(2000, ready(6999)) };
    assert_eq!(corrected(1000, &always, 7000), None, "its composer is there while it works, too");
    let asks = Look { dialog: dialog("permission"), ..ready(6999) };
    assert_eq!(corrected(1000, &seen(2000, asks), 7000), None);
    for (composer, expected) in [
        (Composer::Holds("SLOW".to_owned()), idle(6999)),
        (Composer::Hidden, None),
        (Composer::Unknown, None),
    ] {
        let look = Look { composer: composer.clone(), ..ready(6999) };
        assert_eq!(corrected(1000, &seen(2000, look), 7000), expected, "{composer:?}");
    }
}

#[test]
fn a_question_that_no_hook_tells_of_is_seen_after_silence_and_over_when_it_works_again() {
    let seen = |look: Look| Seen { screen: Some(look), is_known: true, ..quiet(2000) };
    let asks = |at: u64| Look { dialog: dialog("question"), composer: Composer::Hidden, ..ready(at) };
    assert_eq!(corrected(1000, &seen(asks(6999)), 7000), Some((Attention, Source::Screen, 6999)));
    assert_eq!(corrected(1000, &seen(asks(6998)), 6999), None, "it was silent for too short");
    let works = |at: u64| Look { works: Some(true), composer: Composer::Hidden, ..ready(at) };
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
        // What it says itself counts at once.
        stage.says(signal::works("Bash"));
        assert_eq!((stage.state(), stage.ask()), (Busy, None));
    }
    // Its title says so at once, and that it is over.
    let asking = |ms: u64, title| Seen { quiet_since: Some(at(6990)), title, ..seen(asks(ms)) };
    let titled = |ms: u64, title| corrected(6980, &asking(ms, title), 7000);
    assert_eq!(titled(6999, Title::Asks(at(6998))), Some((Attention, Source::Screen, 6999)));
    assert_eq!(titled(6998, Title::Asks(at(6998))), None, "it was looked at before");
    assert_eq!(titled(6999, Title::Other(at(6998))), None);
    let mut stage = Stage::new("codex");
    stage.says(signal::prompt());
    let mut stage = stage.at(7000);
    stage.see(&asking(6999, Title::Asks(at(6998))));
    assert_eq!(stage.see(&asking(6999, Title::Other(at(6999)))), None, "that was read before");
    stage.see(&asking(6999, Title::Other(at(7000))));
    assert_eq!((stage.state(), stage.ask()), (Busy, None));
    // The next of several questions is another one; its record may say that it was interrupted.
    stage.see(&asking(7001, Title::Asks(at(7000))));
    let first = stage.ask().unwrap();
    let other = Dialog { text: "how many?".to_owned(), ..dialog("question").unwrap() };
    let next = |ms: u64| Look { dialog: Some(other.clone()), ..asks(ms) };
    stage.see(&Seen { screen: Some(next(7002)), ..asking(7002, Title::Asks(at(7000))) });
    let second = stage.ask().unwrap();
    assert_eq!((second.text.as_str(), first.id == second.id), ("how many?", false));
    let mut over = stage.at(7100);
    over.see(&Seen { screen: Some(next(7002)), ..asking(7002, Title::Other(at(7050))) });
    assert_eq!(over.state(), Busy);
    over.see(&Seen { interrupted_at: Some(at(7040)), ..asking(7002, Title::Other(at(7050))) });
    assert_eq!((over.state(), over.activity().source), (Idle, Source::Transcript));
    // What its hook waits for is not another thing for being seen.
    let mut stage = Stage::new("claude");
    stage.says(signal::asks("Bash", 60_000));
    let mut stage = stage.at(7000);
    assert_eq!(stage.see(&seen(asks(6999))), None);
    assert_eq!(stage.see(&seen(works(6999))), None);
}

#[test]
fn its_own_record_tells_at_once_that_it_was_interrupted() {
    let seen =
        |interrupted: u64| Seen { interrupted_at: Some(at(interrupted)), is_known: true, ..Seen::default() };
    assert_eq!(corrected(10, &seen(20), 30), Some((Idle, Source::Transcript, 20)));
    assert_eq!(corrected(10, &seen(0), 30), None, "that was the turn before");
    let mut stage = Stage::new("claude");
    stage.says(signal::over());
    assert_eq!(stage.at(30).see(&seen(20)), None, "it is idle anyhow");
}

#[test]
fn hooks_of_an_earlier_incarnation_say_nothing() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    stage.again();
    let mut stage = stage.at(10);
    assert_eq!(stage.shown().state, Unknown);
    let seen = Seen { screen: Some(ready(9)), is_known: true, ..Seen::default() };
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
        let seen = Seen { interrupted_at: Some(at(9)), is_known: true, ..Seen::default() };
        assert_eq!(stage.at(10).see(&seen).is_some(), lifecycle == Live, "{lifecycle:?}");
    }
}

#[test]
fn a_prompt_in_doubt_is_shown_before_all_else() {
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
    assert!(ask.text.contains(&how) && asks(&activity), "{}", ask.text);
    stage.moves(id, MessageState::Done);
    assert_eq!(stage.shown().state, Idle);
    stage.is(Lifecycle::Parked, Some(Reason::Parked));
    assert_eq!(stage.shown().state, Unknown);
}

fn seen() -> impl Strategy<Value = Seen> {
    let time = || prop::option::of((0_u64..30_000).prop_map(at));
    let marks = (time(), time(), time(), prop::option::of(0..3))
        .prop_map(|(prompt_at, command_at, bell_at, code)| Marks { prompt_at, command_at, bell_at, code });
    let composers = [Composer::Empty, Composer::Hidden, Composer::Unknown, Composer::Holds("x".to_owned())];
    let dialogs = prop::sample::select(vec![None, Some("trust"), Some("question")]);
    let look = (0_u64..30_000, prop::sample::select(composers.to_vec()), dialogs, any::<Option<bool>>());
    let look = look.prop_map(|(ms, composer, asks, works)| {
        let dialog = asks.and_then(dialog);
        Look { at: at(ms), composer, dialog, works, background: None }
    });
    let flags = (any::<Option<bool>>(), any::<bool>());
    let title = prop_oneof![
        Just(Title::Unread),
        (0_u64..30_000).prop_map(|ms| Title::Asks(at(ms))),
        (0_u64..30_000).prop_map(|ms| Title::Other(at(ms))),
    ];
    (time(), marks, time(), (prop::option::of(look), title), flags).prop_map(
        |(quiet_since, marks, interrupted_at, (screen, title), (own_foreground, is_known))| Seen {
            worked_at: None,
            quiet_since,
            idle_quiet: Duration::from_secs(2),
            marks,
            own_foreground,
            interrupted_at,
            screen,
            title,
            keeps_composer: false,
            is_known,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is seen in whatever order.
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
                // Where nothing was seen it is as before.
                let nothing = found.is_none();
                prop_assert!(nothing || by_screen == (seen.is_known || after.state == Unknown));
                prop_assert_eq!(after.ask.is_some(), after.state == Attention);
            }
        }
    }
}
