//! `dismiss`, and what a bell hides.

use std::time::Duration;

use pool::agent::{
    AgentObservation, Agents, TerminalMarks, activity_under_bell, current_activity, derive_activity, dismiss,
    is_in_state, keep_bells_answered,
};
use pool::{Volatile, inbox, lock};
use protocol::hook::{Hook, HookEvent, Start, ToolUse};
use protocol::{ActivityState, AskKind, Epoch, ErrorCode, MessageState, Timestamp};

use crate::stage::{START, Stage, signal};

fn at(ms: u64) -> Timestamp {
    Timestamp(START + ms)
}

fn volatile() -> Volatile {
    Volatile::new(lock::LockTable::new(Epoch(1)), at(0))
}

/// A program that rang and wrote nothing since.
fn rang(own_foreground: Option<bool>) -> AgentObservation {
    let marks = TerminalMarks { bell_at: Some(at(1000)), ..TerminalMarks::default() };
    let idle_quiet = Duration::from_secs(2);
    AgentObservation { marks, own_foreground, quiet_since: Some(at(1000)), idle_quiet, ..Default::default() }
}

/// Applies an observation as the daemon does.
fn observe(stage: &mut Stage, volatile: &mut Volatile, seen: &AgentObservation) {
    let under = activity_under_bell(stage.pool(), seen, stage.now());
    volatile.agents.note_under_bell(stage.tag(), under);
    let event = derive_activity(stage.pool(), stage.session(), seen, stage.now());
    stage.world.emit_all(event.into_iter().collect::<Vec<_>>());
}

fn inbox_of(stage: &Stage, volatile: &Volatile) -> Vec<String> {
    let items = inbox::items(stage.pool(), volatile, &stage.rules, stage.now());
    items.into_iter().map(|item| item.kind).collect()
}

#[test]
fn a_bell_hides_neither_idle_nor_busy() {
    for (own_foreground, state) in [(None, ActivityState::Idle), (Some(false), ActivityState::Busy)] {
        let (mut stage, mut volatile) = (Stage::new("shell"), volatile());
        stage.pass(9000);
        observe(&mut stage, &mut volatile, &rang(own_foreground));
        let shown = current_activity(stage.pool(), stage.session());
        assert_eq!(shown.state, ActivityState::Attention);
        for other in ActivityState::ALL {
            let is = is_in_state(&volatile.agents, &shown, other);
            assert_eq!(is, other == state || other == ActivityState::Attention, "{other:?}");
        }
        let quiet = AgentObservation { marks: TerminalMarks::default(), ..rang(own_foreground) };
        observe(&mut stage, &mut volatile, &quiet);
        assert_eq!((stage.state(), volatile.agents.under_bell(stage.tag())), (state, None));
    }
}

#[test]
fn a_bell_ends_once_somebody_was_there_and_rings_again() {
    let seen = |attended: u64| AgentObservation { attended_at: Some(at(attended)), ..rang(None) };
    for (attended, asks) in [(999, true), (1000, false), (1001, false)] {
        let (mut stage, mut volatile) = (Stage::new("shell"), volatile());
        stage.pass(9000);
        observe(&mut stage, &mut volatile, &seen(attended));
        assert_eq!(stage.state() == ActivityState::Attention, asks, "{attended}");
    }
}

#[test]
fn after_a_restart_a_bell_asks_if_it_is_on_record_or_younger_than_the_record() {
    for (recorded, ended, asks) in [(true, 9000, true), (false, 9000, false), (false, 2999, true)] {
        let mut stage = Stage::new("shell");
        stage.pass(9000);
        if recorded {
            observe(&mut stage, &mut volatile(), &rang(None));
        }
        let mut volatile = volatile();
        keep_bells_answered(stage.pool(), &mut volatile, (at(ended), stage.now()));
        let attended_at = volatile.agents.bell_answered_at(stage.tag());
        observe(&mut stage, &mut volatile, &AgentObservation { attended_at, ..rang(None) });
        assert_eq!(stage.state() == ActivityState::Attention, asks, "{recorded} {ended}");
    }
}

#[test]
fn after_a_restart_a_bell_that_an_attached_client_heard_is_answered() {
    let mut stage = Stage::new("shell");
    stage.pass(9000);
    stage.change(|session| session.verified_at = Some(at(4000)));
    let mut volatile = volatile();
    keep_bells_answered(stage.pool(), &mut volatile, (at(500), stage.now()));
    let attended_at = volatile.agents.bell_answered_at(stage.tag());
    observe(&mut stage, &mut volatile, &AgentObservation { attended_at, ..rang(None) });
    assert_eq!(stage.state(), ActivityState::Idle, "it rang at 1000, and the client left at 4000");
}

#[test]
fn a_bell_that_is_dismissed_ends_at_once_and_a_later_one_asks() {
    let (mut stage, mut volatile) = (Stage::new("shell"), volatile());
    stage.pass(9000);
    observe(&mut stage, &mut volatile, &rang(None));
    assert_eq!(inbox_of(&stage, &volatile), ["bell"]);
    let event = dismiss(stage.pool(), &mut volatile, stage.session(), stage.now()).unwrap();
    assert_eq!(inbox_of(&stage, &volatile), [""; 0]);
    stage.world.emit_all(event.into_iter().collect::<Vec<_>>());
    assert_eq!(stage.state(), ActivityState::Idle);
    let answered = volatile.agents.bell_answered_at(stage.tag());
    let mut seen = AgentObservation { attended_at: answered, ..rang(None) };
    observe(&mut stage, &mut volatile, &seen);
    assert_eq!(stage.state(), ActivityState::Idle, "the same bell");
    stage.pass(1000);
    seen.marks.bell_at = Some(at(9500));
    observe(&mut stage, &mut volatile, &seen);
    assert_eq!(inbox_of(&stage, &volatile), ["bell"], "another one");
    assert!(dismiss(stage.pool(), &mut volatile, stage.session(), stage.now()).unwrap().is_some());
}

#[test]
fn a_question_that_is_dismissed_stays_open_and_the_next_one_is_listed() {
    let (mut stage, mut volatile) = (Stage::new("claude"), volatile());
    stage.says(signal::prompt());
    stage.says(signal::asks("Bash", 0));
    assert_eq!(inbox_of(&stage, &volatile), ["permission"]);
    // Nothing that happens at its terminal ends it.
    volatile.attend([stage.tag()], stage.now());
    assert_eq!(inbox_of(&stage, &volatile), ["permission"]);
    assert_eq!(dismiss(stage.pool(), &mut volatile, stage.session(), stage.now()), Ok(None));
    assert_eq!(inbox_of(&stage, &volatile), [""; 0]);
    assert_eq!(stage.ask().map(|ask| ask.kind), Some(AskKind::Permission), "it waits for its answer");
    assert_eq!(dismiss(stage.pool(), &mut volatile, stage.session(), stage.now()), Ok(None), "twice is once");
    stage.pass(1000);
    stage.says(signal::prompt());
    stage.says(signal::asks("Bash", 0));
    assert_eq!(inbox_of(&stage, &volatile), ["permission"], "the same again is another one");
}

#[test]
fn a_message_in_doubt_is_not_dismissed_and_without_a_question_nothing_is() {
    let (mut stage, mut volatile) = (Stage::new("claude"), volatile());
    assert_eq!(dismiss(stage.pool(), &mut volatile, stage.session(), stage.now()), Ok(None));
    let id = stage.typed();
    stage.moves(id, MessageState::InDoubt);
    let refused = dismiss(stage.pool(), &mut volatile, stage.session(), stage.now()).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.message.contains(&format!("poolctl queue resolve {} {id}", stage.session().name)));
}

#[test]
fn the_plan_and_the_files_are_those_of_the_conversation() {
    let (mut stage, mut agents) = (Stage::new("claude"), Agents::default());
    let plan =
        |text: &str| HookEvent::Asking { tool: "ExitPlanMode".to_owned(), plan: Some(text.to_owned()) };
    let wrote = |path: &str, failed| {
        let (tool, input) = ("Write".to_owned(), format!(r#"{{"file_path":"{path}"}}"#));
        let used = ToolUse { id: None, tool, input, response: String::new(), failed, cwd: None };
        HookEvent::ToolUsed(Box::new(used))
    };
    let all =
        [plan("one"), wrote("a", false), wrote("b", false), wrote("c", true), wrote("a", false), plan("two")];
    let unnamed = |hook: Hook| Hook { conversation: None, ..hook };
    all.into_iter().for_each(|signal| agents.note_artefacts(stage.id, &unnamed(stage.hook(signal))));
    let known = agents.artefacts(stage.id).unwrap();
    assert_eq!((known.plan(), known.files().collect::<Vec<_>>()), (Some("two"), vec!["a", "b"]));
    (0..200)
        .for_each(|n| agents.note_artefacts(stage.id, &unnamed(stage.hook(wrote(&n.to_string(), false)))));
    assert_eq!(agents.artefacts(stage.id).unwrap().files().count(), 100);
    for (source, conversation, goes_on) in [
        (Start::Resumed, "a", true),
        (Start::New, "a", true),
        (Start::Compacted, "b", true),
        (Start::Resumed, "c", false),
        (Start::Cleared, "d", false),
    ] {
        agents.note_artefacts(stage.id, &unnamed(stage.hook(wrote("x", false))));
        let conversation = Some(conversation.to_owned());
        let hook = Hook { conversation, ..stage.hook(HookEvent::Started { source }) };
        agents.note_artefacts(stage.id, &hook);
        assert_eq!(agents.artefacts(stage.id).is_some(), goes_on, "{source:?}");
    }
    // A daemon that did not see the conversation begin knows it by what it reports.
    let mut agents = Agents::default();
    for (conversation, signal) in
        [("a", wrote("x", false)), ("b", HookEvent::Started { source: Start::Resumed })]
    {
        let hook = Hook { conversation: Some(conversation.to_owned()), ..stage.hook(signal) };
        agents.note_artefacts(stage.id, &hook);
    }
    assert!(agents.artefacts(stage.id).is_none(), "another one was resumed");
}
