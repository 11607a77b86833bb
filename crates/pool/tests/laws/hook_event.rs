//! Hook reports: fenced, each prompt accepted once, each end of a turn the end of what it began.

mod model;

use agents::prompt::TextMatch;
use pool::clock::{Reading, moment_by};
use pool::deadlines::Mono;
use pool::lock::LockTable;
use pool::slots::{RunIdentity, renew_incarnation};
use pool::{Turn, Volatile, agent, prompt, queue};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::activity::ASK_MAX;
use protocol::clock::ClockStep;
use protocol::hook::{Hook, HookEvent, Notice, Start, ToolUse};
use protocol::message::RESULT_MAX;
use protocol::policy::{OnFailedTurn, OnInterrupted};
use protocol::request::Send;
use protocol::{
    Activity, ActivityState, AgentEvent, AskKind, Epoch, Event, Lifecycle, MessageId, MessageState, Notes,
    OpId, PROMPT, Reason, Tag, Timestamp,
};

use crate::queue::{asked, send as queue_send, send_prompt};
use crate::stage::{START, Stage, TALK, signal};
use ActivityState::{Attention, Busy, Error, Idle, Unknown};

fn signals() -> Vec<HookEvent> {
    vec![
        signal::started(Start::New),
        signal::started(Start::Resumed),
        signal::started(Start::Cleared),
        signal::started(Start::Compacted),
        signal::prompt(),
        signal::works("Bash"),
        signal::asking("AskUserQuestion"),
        signal::used("Bash"),
        signal::used("Read"),
        signal::asks("Bash", 0),
        signal::asks("Bash", 60_000),
        signal::notified(Notice::Permission),
        signal::notified(Notice::Idle),
        signal::notified(Notice::LoggedIn),
        signal::notified(Notice::Question),
        signal::over(),
        signal::failed(None),
        signal::failed(Some(START + 60_000)),
        HookEvent::Interrupted,
        signal::ended(),
    ]
}

fn any_signal() -> impl Strategy<Value = HookEvent> {
    prop::sample::select(signals())
}

fn answered(events: &[Event]) -> Vec<(u64, bool)> {
    let of = |event: &Event| match event {
        Event::Agent(AgentEvent::AskAnswered { ask, allowed, .. }) => Some((*ask, *allowed)),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn a_report_of_another_incarnation_or_conversation_changes_nothing() {
    for signal in signals() {
        let mut stage = Stage::new("claude");
        let id = stage.typed();
        let old = stage.hook(signal.clone());
        stage.again();
        let unknown = Hook { tag: Tag([9; 16]), ..stage.hook(signal.clone()) };
        let before = stage.world.pool.clone();
        for hook in [old, unknown] {
            assert_eq!(stage.handle_hook(&hook, TextMatch::Exact), vec![], "{signal:?}");
        }
        if !matches!(signal, HookEvent::Started { .. }) {
            let foreign = Hook { conversation: Some("nested".to_owned()), ..stage.hook(signal.clone()) };
            assert_eq!(stage.handle_hook(&foreign, TextMatch::Exact), vec![], "{signal:?}");
        }
        assert_eq!(stage.world.pool, before);
        for lifecycle in [Lifecycle::Stopped, Lifecycle::Parked, Lifecycle::Lost, Lifecycle::Failed] {
            stage.is(lifecycle, Some(Reason::Exited));
            // Only reports about the prompt's outcome are still handled.
            let of_prompt =
                |event: &Event| matches!(event, Event::MessageChanged { id: of, .. } if *of == id);
            let events = stage.says(signal.clone());
            assert!(events.iter().all(of_prompt), "it is over: {lifecycle:?}: {events:?}");
        }
        let state = match signal {
            HookEvent::Prompt { .. } => MessageState::Accepted,
            // The end of the agent's own command for a fresh context.
            HookEvent::Started { source: Start::Cleared } => MessageState::Done,
            _ => MessageState::Typed,
        };
        assert_eq!(stage.message(id), state);
    }
}

#[test]
fn a_report_of_an_agent_that_runs_in_a_shell_or_in_another_agent_changes_nothing() {
    for (kind, reporter) in
        [("shell", "claude"), ("shell", "generic"), ("claude", "generic"), ("codex", "claude")]
    {
        for signal in signals() {
            let mut stage = Stage::new(kind);
            stage.typed();
            let hook = Hook { agent: reporter.to_owned(), conversation: None, ..stage.hook(signal.clone()) };
            assert_eq!(stage.handle_hook(&hook, TextMatch::Exact), vec![], "{kind} {reporter} {signal:?}");
        }
    }
}

#[test]
fn a_program_is_seen_from_outside_again_once_the_agent_that_it_ran_has_ended() {
    let mut stage = Stage::new("command");
    let report = |stage: &mut Stage, signal| {
        let hook = Hook { agent: "claude".to_owned(), ..stage.hook(signal) };
        stage.handle_hook(&hook, TextMatch::Different);
        stage.notes().hooked
    };
    assert_eq!(report(&mut stage, signal::prompt()), Some(stage.tag()));
    assert_eq!(report(&mut stage, signal::ended()), None);
}

/// The agent's conversation after a report of another one, and whether it has begun.
fn talks(kind: &str, begun: bool, id: &str, said: HookEvent) -> Option<(String, bool)> {
    let mut stage = Stage::new(kind);
    stage.change(|s| s.conversation.as_mut().unwrap().begun = begun);
    let hook = Hook { conversation: Some(id.to_owned()), ..stage.hook(said) };
    let heard = !stage.handle_hook(&hook, TextMatch::Different).is_empty();
    let now = stage.session().conversation.clone().unwrap();
    heard.then_some((now.id, now.begun))
}

#[test]
fn c05_a_conversation_is_that_of_the_incarnation_that_has_it() {
    let is = |id: &str, begun| Some((id.to_owned(), begun));
    for kind in ["claude", "codex"] {
        assert_eq!(talks(kind, false, TALK, signal::started(Start::New)), is(TALK, false));
        assert_eq!(talks(kind, false, TALK, signal::prompt()), is(TALK, true));
        assert_eq!(talks(kind, true, TALK, signal::over()), is(TALK, true));
        assert_eq!(
            talks(kind, true, "new", signal::started(Start::Cleared)),
            is("new", false),
            "it began another"
        );
        assert_eq!(
            talks(kind, true, "old", signal::started(Start::Resumed)),
            is("old", true),
            "it took one up"
        );
        assert_eq!(talks(kind, true, "other", signal::prompt()), None, "another agent within");
    }
    assert_eq!(talks("claude", true, "other", signal::started(Start::New)), None);
    assert_eq!(
        talks("codex", true, "other", signal::started(Start::New)),
        is("other", false),
        "its own /new"
    );
    assert_eq!(talks("claude", false, "other", signal::prompt()), None);
    assert_eq!(talks("claude", false, "other", signal::started(Start::New)), None);
}

#[test]
fn c05_an_agent_at_work_resumes_nothing_so_that_it_is_one_within() {
    for (kind, source) in [("claude", Start::Resumed), ("codex", Start::Resumed), ("codex", Start::New)] {
        let mut stage = Stage::new(kind);
        let id = stage.typed();
        let accepted = stage.hook(signal::prompt());
        stage.handle_hook(&accepted, TextMatch::Exact);
        let says = |stage: &mut Stage, signal| {
            let hook = Hook { conversation: Some("nested".into()), ..stage.hook(signal) };
            stage.handle_hook(&hook, TextMatch::Different)
        };
        for signal in [signal::started(source), signal::prompt(), signal::over()] {
            assert_eq!(says(&mut stage, signal), vec![], "{kind}");
        }
        assert_eq!((stage.message(id), stage.state()), (MessageState::Accepted, Busy));
        let over = stage.hook(signal::over());
        stage.handle_hook(&over, TextMatch::Different);
        assert_eq!(stage.message(id), MessageState::Done);
        // While the agent rests, a new conversation is its user's command.
        assert_ne!(says(&mut stage, signal::started(source)), vec![], "{kind}");
    }
}

#[test]
fn c05_a_conversation_without_an_id_begins_with_its_first_prompt() {
    for (resume, begins) in [("--restore-chat-history", true), ("{conversation}", false)] {
        let mut stage = Stage::new("codex");
        stage.change(|session| session.spec.resume_args = vec![resume.into()]);
        let hook = Hook { conversation: None, ..stage.hook(signal::prompt()) };
        stage.handle_hook(&hook, TextMatch::Different);
        assert_eq!(stage.session().conversation.as_ref().unwrap().begun, begins, "{resume}");
    }
}

#[test]
fn t23_a_cleared_context_is_the_end_of_the_command_for_it_and_of_no_other_prompt() {
    for (same, state) in [(TextMatch::Exact, MessageState::Done), (TextMatch::Different, MessageState::Typed)]
    {
        let mut stage = Stage::new("claude");
        let id = stage.typed();
        let hook =
            Hook { conversation: Some("another".to_owned()), ..stage.hook(signal::started(Start::Cleared)) };
        stage.handle_hook(&hook, same);
        assert_eq!(stage.message(id), state, "{same:?}");
        assert_eq!(stage.session().conversation.as_ref().unwrap().id, "another");
    }
}

#[test]
fn w24_a_report_of_another_conversation_has_nothing_of_the_last_one() {
    let known_after = |conversation: &str, source| {
        let mut stage = Stage::new("claude");
        stage.change(|s| s.conversation.as_mut().unwrap().begun = true);
        let notes = Notes { tokens: Some(8), skill: Some("review".to_owned()), ..Notes::default() };
        stage.world.emit(Event::Agent(AgentEvent::AgentNoted { session: stage.id, notes }));
        let hook = stage.hook(signal::started(source));
        let hook = Hook { conversation: Some(conversation.to_owned()), ..hook };
        stage.handle_hook(&hook, TextMatch::Different);
        (stage.notes().tokens, stage.notes().skill)
    };
    assert_eq!(known_after(TALK, Start::Compacted), (Some(8), Some("review".to_owned())));
    assert_eq!(known_after("another", Start::Cleared), (None, None));
    assert_eq!(known_after("another", Start::Resumed), (None, None));
}

#[test]
fn c05_codex_chooses_its_conversation_and_tells() {
    assert_eq!(talks("codex", false, "its", signal::started(Start::New)), Some(("its".to_owned(), false)));
    let mut stage = Stage::new("codex");
    let left = Hook { conversation: Some("left".to_owned()), ..stage.hook(signal::ended()) };
    assert_eq!(stage.handle_hook(&left, TextMatch::Different), vec![], "it ends late, and is not chosen");
    let hook = Hook { conversation: Some("its".to_owned()), ..stage.hook(signal::prompt()) };
    stage.handle_hook(&hook, TextMatch::Different);
    assert_eq!(stage.session().conversation.as_ref().unwrap().id, "its");
    assert!(stage.session().conversation.as_ref().unwrap().begun);
    let other = Hook { conversation: Some("other".to_owned()), ..stage.hook(signal::over()) };
    assert_eq!(stage.handle_hook(&other, TextMatch::Different), vec![], "once chosen it stays");
}

#[test]
fn a_prompt_is_accepted_once_and_only_where_it_was_typed() {
    use MessageState::{Accepted, Dead, Done, InDoubt, Queued, Typed, Typing};
    for (from, to) in [
        (Queued, Queued),
        (Typing, Accepted),
        (Typed, Accepted),
        (InDoubt, Accepted),
        (Accepted, Accepted),
        (Done, Done),
        (Dead, Dead),
    ] {
        let mut stage = Stage::new("claude");
        let id = stage.send();
        if from != Queued {
            stage.begin();
            stage.moves(id, from);
        }
        stage.pass(10);
        let events = stage.says(signal::prompt());
        assert_eq!(stage.message(id), to, "{from:?}");
        let moved = events.iter().filter(|event| matches!(event, Event::MessageChanged { .. })).count();
        assert_eq!(moved, usize::from(from != to), "{from:?}");
    }
}

#[test]
fn a_prompt_with_another_text_is_somebody_elses() {
    for (same, state, why) in [
        (TextMatch::Exact, MessageState::Accepted, None),
        (TextMatch::Surrounded, MessageState::Accepted, Some("with other text around it")),
        (TextMatch::Different, MessageState::Typed, None),
    ] {
        let mut stage = Stage::new("claude");
        let id = stage.typed();
        let hook = stage.hook(signal::prompt());
        stage.handle_hook(&hook, same);
        assert_eq!((stage.message(id), stage.why(id).as_deref()), (state, why));
        assert_eq!(stage.state(), Busy, "it works whoever it was");
    }
}

#[test]
fn the_end_of_a_turn_ends_what_was_accepted_and_nothing_else() {
    for (end, state, why) in [
        (signal::over(), MessageState::Done, None),
        (signal::failed(None), MessageState::Dead, Some("the agent's turn failed: limit")),
        (HookEvent::Interrupted, MessageState::Dead, Some("interrupted")),
    ] {
        let mut stage = Stage::new("claude");
        let (id, next) = (stage.typed(), stage.send());
        stage.says(end.clone());
        assert_eq!(stage.message(id), MessageState::Typed, "a turn before");
        stage.says(signal::prompt());
        stage.says(end.clone());
        assert_eq!((stage.message(id), stage.why(id).as_deref()), (state, why));
        stage.says(end);
        assert_eq!(stage.message(next), MessageState::Queued);
        assert_eq!(stage.begin(), Some(next), "its lane is free");
    }
}

#[test]
fn an_interrupted_prompt_is_sent_again_only_where_that_is_said() {
    for (then, state) in
        [(OnInterrupted::Dead, MessageState::Dead), (OnInterrupted::Retry, MessageState::Queued)]
    {
        let mut stage = Stage::new("codex").on_interrupted(then);
        let id = stage.typed();
        stage.says(HookEvent::Interrupted);
        assert_eq!(stage.message(id), MessageState::Typed);
        stage.says(signal::prompt());
        stage.says(HookEvent::Interrupted);
        assert_eq!(stage.message(id), state);
    }
}

fn state_in(event: &Event) -> Option<MessageState> {
    match event {
        Event::MessageChanged { status, .. } => Some(status.state),
        _ => None,
    }
}

#[test]
fn a_prompt_whose_service_is_out_holds_its_lane_and_its_agent_is_told_to_go_on() {
    let error = "server_error: API Error: 500 out".to_owned();
    let outage = HookEvent::TurnFailed { error, limited: false, until: None };
    let mut stage = Stage::new("claude");
    stage.agent.go_on = Some("continue".to_owned());
    let (id, first) = (stage.typed(), stage.rules.breaker_pause);
    stage.send();
    for round in 1..=5_u32 {
        stage.says(signal::prompt());
        assert_eq!(stage.message(id), MessageState::Accepted);
        let events = stage.says(outage.clone());
        let states: Vec<MessageState> = events.iter().filter_map(state_in).collect();
        assert_eq!(states, [MessageState::Suspended, MessageState::Queued]);
        assert_eq!(stage.begin(), None, "the next one waits behind it");
        let open = stage.pool().pending_message(stage.id, id).unwrap();
        let pause = open.not_before.unwrap().since(open.since);
        assert_eq!((open.attempts, pause), (round, first * 2_u32.pow(round - 1)), "as often as it takes");
        stage.pass(u64::try_from(pause.as_millis()).unwrap());
        assert_eq!(stage.begin(), Some(id), "it is told to go on");
        stage.moves(id, MessageState::Typed);
    }
    stage.says(signal::prompt());
    stage.says(signal::over());
    assert_eq!(stage.message(id), MessageState::Done);
}

/// A prompt whose turn failed by an outage.
fn suspended() -> (Stage, MessageId) {
    let mut stage = Stage::new("claude");
    stage.agent.go_on = Some("continue".to_owned());
    let id = stage.typed();
    stage.says(signal::prompt());
    let error = "overloaded".to_owned();
    stage.says(HookEvent::TurnFailed { error, limited: false, until: None });
    assert_eq!(stage.message(id), MessageState::Queued);
    (stage, id)
}

fn is_suspended(stage: &Stage, id: MessageId) -> bool {
    stage.pool().pending_message(stage.id, id).unwrap().is_suspended
}

#[test]
fn what_an_agent_is_at_comes_before_what_is_more_urgent_and_does_not_expire() {
    let (mut stage, id) = suspended();
    let send = Send { priority: 9, ttl_ms: Some(1), ..asked(stage.id, PROMPT) };
    let op = OpId::Named("urgent".to_owned());
    let urgent = queue_send(&mut stage.world, &stage.rules.clone(), &send, &op).unwrap();
    assert_eq!(stage.begin(), None, "its lane is held");
    stage.pass(600_000);
    let over = queue::expired(stage.pool(), stage.now());
    assert_eq!(over.len(), 1, "the urgent one's time ran out");
    assert_eq!(over[0].session(), Some(stage.id));
    assert_eq!(stage.begin(), Some(id));
    assert_eq!(stage.message(urgent), MessageState::Queued);
}

#[test]
fn a_user_who_does_not_wait_for_an_outage_has_its_agent_told_at_once() {
    let (mut stage, id) = suspended();
    let events = queue::retry(stage.pool(), &stage.rules, id, stage.now()).unwrap();
    stage.world.emit_all(events);
    assert!(is_suspended(&stage, id), "its text is not typed again");
    assert_eq!(stage.begin(), Some(id));
}

#[test]
fn another_conversation_has_a_suspended_prompt_sent_from_the_start() {
    let (mut stage, id) = suspended();
    assert!(is_suspended(&stage, id));
    let hook =
        Hook { conversation: Some("another".to_owned()), ..stage.hook(signal::started(Start::Cleared)) };
    stage.handle_hook(&hook, TextMatch::Different);
    assert!(!is_suspended(&stage, id));
    assert_eq!(stage.begin(), Some(id), "at once");
}

#[test]
fn a_start_with_a_new_conversation_has_a_suspended_prompt_sent_from_the_start() {
    for fresh in [true, false] {
        let (mut stage, id) = suspended();
        let session = stage.id;
        let identity = RunIdentity { tag: Tag([9; 16]), conversation: "another".to_owned() };
        let now = stage.now();
        let mut volatile = Volatile::new(LockTable::new(Epoch(1)), now);
        let reading = Reading { wall: now, awake_ms: now.0 };
        let mut turn = Turn::new(&mut stage.world.pool, &mut volatile, reading, Mono(now.0));
        renew_incarnation(&mut turn, session, fresh, &identity);
        drop(turn.finish());
        assert_eq!(stage.session().incarnation.as_ref().unwrap().resumed, !fresh);
        assert_eq!(is_suspended(&stage, id), !fresh, "fresh: {fresh}");
    }
}

#[test]
fn a_prompt_whose_service_is_out_is_over_where_the_next_one_is_to_go() {
    for (then, state) in
        [(OnFailedTurn::Next, MessageState::Dead), (OnFailedTurn::Retry, MessageState::Queued)]
    {
        let mut stage = Stage::new("claude");
        stage.agent.on_failed_turn = then;
        let id = stage.typed();
        stage.says(signal::prompt());
        let error = "overloaded".to_owned();
        let events = stage.says(HookEvent::TurnFailed { error, limited: false, until: None });
        assert_eq!(stage.message(id), state);
        assert!(events.iter().filter_map(state_in).all(|state| state != MessageState::Suspended));
    }
}

#[test]
fn two_prompts_have_one_end() {
    // The user's own prompt came before or after it; the agent works both in one turn.
    for mine_first in [true, false] {
        let mut stage = Stage::new("claude");
        let id = stage.typed();
        for mine in [mine_first, !mine_first] {
            let hook = stage.hook(signal::prompt());
            stage.handle_hook(&hook, if mine { TextMatch::Exact } else { TextMatch::Different });
            stage.pass(70);
        }
        stage.says(signal::over());
        assert_eq!((stage.message(id), stage.state()), (MessageState::Done, Idle));
    }
}

#[test]
fn the_last_word_is_the_result_and_is_cut_at_a_letter() {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    stage.says(signal::prompt());
    let said = Some(format!("x{}", "é".repeat(RESULT_MAX)));
    stage.says(HookEvent::TurnOver { turn: None, said });
    let result = stage.world.disk.messages[&id].1.clone().unwrap().result.unwrap();
    assert_eq!(result.0.len(), RESULT_MAX - 1);
    assert!(String::from_utf8(result.0).unwrap().ends_with('é'));
    let text = "é".repeat(ASK_MAX);
    stage.says(HookEvent::Permission { tool: "Bash".to_owned(), text, wait_ms: 0 });
    let asked = stage.ask().unwrap().text;
    assert!(asked.len() <= ASK_MAX && asked.ends_with(" more bytes; see its terminal)"), "{asked}");
}

/// Asserts that the end of the turn before is not that of this one, if `passes` lies between.
fn is_not_the_end_of_this_turn(passes: impl FnOnce(&mut Stage)) {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    let before = stage.hook(signal::over());
    stage.pass(70);
    stage.says(signal::prompt());
    passes(&mut stage);
    stage.handle_hook(&before, TextMatch::Exact);
    assert_eq!((stage.message(id), stage.state()), (MessageState::Accepted, Busy));
    stage.says(signal::over());
    assert_eq!((stage.message(id), stage.state()), (MessageState::Done, Idle));
}

#[test]
fn the_end_of_the_turn_before_told_late_is_not_the_end_of_this_one() {
    is_not_the_end_of_this_turn(|stage| stage.pass(3000));
}

#[test]
fn a_prompt_told_after_the_end_of_its_turn_is_over_too() {
    for (end, state, why) in [
        (signal::over(), MessageState::Done, None),
        (signal::failed(None), MessageState::Dead, Some("the agent's turn failed: limit")),
        (signal::works("Bash"), MessageState::Accepted, None),
    ] {
        let mut stage = Stage::new("claude");
        stage.says(signal::started(Start::New));
        let id = stage.typed();
        stage.pass(10);
        let prompt = stage.hook(signal::prompt());
        stage.pass(10);
        stage.says(end);
        stage.pass(2000);
        stage.handle_hook(&prompt, TextMatch::Exact);
        assert_eq!(
            (stage.message(id), stage.why(id).as_deref()),
            (state, why),
            "nothing more would come of it"
        );
    }
}

#[test]
fn prompts_that_the_agent_had_are_over_when_it_is() {
    use MessageState::{Accepted, Dead, InDoubt, Queued, Typed, Typing};
    let with = |state: MessageState| {
        let mut stage = Stage::new("claude");
        let id = stage.send();
        if state != Queued {
            stage.begin();
            stage.moves(id, state);
        }
        stage.pass(10);
        (stage, id)
    };
    for state in [Queued, Typing, Typed, Accepted, InDoubt] {
        let over = matches!(state, Typed | Accepted);
        let after = if over { Dead } else { state };
        for lifecycle in
            [Lifecycle::Starting, Lifecycle::Stopped, Lifecycle::Parked, Lifecycle::Lost, Lifecycle::Failed]
        {
            let (mut stage, id) = with(state);
            stage.is(lifecycle, Some(Reason::Exited));
            assert_eq!(stage.settle_ended().len(), usize::from(over));
            assert_eq!(stage.message(id), after, "{lifecycle:?}");
            let reason = stage.why(id).unwrap_or_default();
            assert_eq!(reason.starts_with("its agent ended"), over, "{reason}");
            assert_eq!(reason == "its agent ended during its turn", state == Accepted);
            assert_eq!(stage.settle_ended(), vec![]);
        }
        let (mut stage, id) = with(state);
        stage.again();
        stage.settle_ended();
        assert_eq!(stage.message(id), after, "another one runs");
        for lifecycle in [Lifecycle::Live, Lifecycle::Draining] {
            let (mut stage, id) = with(state);
            stage.is(lifecycle, Some(Reason::Drained));
            assert_eq!(stage.settle_ended(), vec![]);
            assert_eq!(stage.message(id), state);
        }
    }
}

#[test]
fn a_clock_that_goes_back_ends_no_prompt_and_stops_no_report() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    stage.sets_clock(START - 500_000);
    let id = stage.typed();
    assert_eq!(stage.settle_ended(), vec![], "it was typed before its agent began, by this clock");
    stage.says(signal::prompt());
    assert_eq!(stage.message(id), MessageState::Accepted);
    stage.says(signal::over());
    assert_eq!((stage.message(id), stage.state()), (MessageState::Done, Idle));
    assert!(stage.activity().since <= stage.now());
    stage.pass(1);
    stage.says(signal::works("Bash"));
    assert_eq!(stage.state(), Busy);
}

#[test]
fn a_prompt_is_not_over_when_the_clock_shows_the_start_of_its_agent_once_more() {
    let mut stage = Stage::new("claude");
    stage.pass(10_000);
    stage.says(signal::prompt());
    stage.sets_clock(START - 500_000);
    let id = stage.typed();
    stage.says(signal::prompt());
    stage.pass(505_000);
    assert_eq!(stage.settle_ended(), vec![]);
    assert_eq!(stage.message(id), MessageState::Accepted);
    stage.pass(10_000);
    stage.end();
    stage.again();
    stage.settle_ended();
    assert_eq!(stage.message(id), MessageState::Dead, "another one runs");
}

#[test]
fn the_end_of_the_turn_before_told_after_the_clock_was_set_back_is_not_the_end_of_this_one() {
    is_not_the_end_of_this_turn(|stage| stage.sets_clock(START - 500_000));
}

#[test]
fn what_an_agent_does_by_what_it_said_last() {
    for (said, state) in [
        (signal::started(Start::New), Idle),
        (signal::started(Start::Resumed), Idle),
        (signal::started(Start::Compacted), Busy),
        (signal::prompt(), Busy),
        (signal::works("Bash"), Busy),
        (signal::used("Bash"), Busy),
        (signal::asking("AskUserQuestion"), Attention),
        (signal::asking("ExitPlanMode"), Attention),
        (signal::asks("Bash", 0), Attention),
        (signal::notified(Notice::Permission), Attention),
        (signal::notified(Notice::Idle), Idle),
        (signal::notified(Notice::LoggedIn), Busy),
        (signal::over(), Idle),
        (signal::failed(None), Error),
        (HookEvent::Interrupted, Idle),
        (signal::ended(), Unknown),
    ] {
        let mut stage = Stage::new("claude");
        stage.says(signal::prompt());
        stage.says(said.clone());
        assert_eq!(stage.state(), state, "{said:?}");
        assert_eq!(stage.ask().is_some(), state == Attention);
    }
}

#[test]
fn a_notice_of_a_long_rest_says_nothing_of_a_prompt_that_was_taken_since() {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    stage.says(signal::prompt());
    stage.pass(2000);
    stage.says(signal::notified(Notice::Idle));
    assert_eq!((stage.message(id), stage.state()), (MessageState::Accepted, Busy));
    stage.pass(60_000);
    stage.says(signal::notified(Notice::Idle));
    assert_eq!(stage.state(), Idle);
}

#[test]
fn a_limit_is_remembered_until_the_next_turn() {
    let mut stage = Stage::new("claude");
    let until = Some(Timestamp(START + 9000));
    stage.says(signal::failed(Some(START + 9000)));
    assert_eq!((stage.state(), stage.activity().limited_until), (Error, until));
    stage.says(signal::notified(Notice::Idle));
    assert_eq!((stage.state(), stage.activity().limited_until), (Error, until), "it rests, and is limited");
    stage.says(signal::prompt());
    assert_eq!((stage.state(), stage.activity().limited_until), (Busy, None));
    let error = HookEvent::TurnFailed { error: "overloaded".to_owned(), limited: false, until };
    stage.says(error);
    assert_eq!(stage.activity().limited_until, None, "another error is no limit");
}

#[test]
fn a_limit_without_a_time_holds_for_a_while() {
    let mut stage = Stage::new("codex");
    stage.pass(50);
    let limited = |error: &str| HookEvent::TurnFailed { error: error.to_owned(), limited: true, until: None };
    stage.says(limited("you have hit your usage limit"));
    let until = stage.now().after(agent::UNKNOWN_LIMIT_PAUSE);
    assert_eq!((stage.state(), stage.activity().limited_until), (Error, Some(until)));
    let session = stage.session().id;
    let notes = Notes { resumes: 2, ..stage.world.pool.notes(session).cloned().unwrap() };
    stage.world.emit(Event::Agent(AgentEvent::AgentNoted { session, notes }));
    stage.pass(1000);
    stage.says(limited("you have hit your usage limit"));
    let until = stage.now().after(agent::UNKNOWN_LIMIT_PAUSE);
    assert_eq!(stage.activity().limited_until, Some(until), "it met it again");
    // The clock is set a day ahead: the pause keeps its length.
    let day = std::time::Duration::from_secs(24 * 3600);
    let step = ClockStep::new(stage.now(), stage.now().after(day));
    let shifted = pool::shift_pauses(&stage.world.pool, step);
    let [Event::Agent(AgentEvent::ActivityChanged { activity, .. })] = &shifted[..] else {
        panic!("{shifted:?}")
    };
    assert_eq!(activity.limited_until, Some(until.after(day)));
    let notes = Notes { resumes: 0, ..stage.world.pool.notes(session).cloned().unwrap() };
    stage.world.emit(Event::Agent(AgentEvent::AgentNoted { session, notes }));
    // Four and a half minutes after the beginning of all clocks it is 0:04.
    stage.world.now = 270_000;
    stage.says(limited("rate_limit: You've hit your session limit · resets 12:05am (UTC)"));
    assert_eq!(stage.activity().limited_until, Some(Timestamp(300_000)), "it says when");
    let step = ClockStep::new(stage.now(), Timestamp(1000));
    assert_eq!(pool::shift_pauses(&stage.world.pool, step), [], "and no clock changes that");
    // The displayed minute has begun, and the limit is not over.
    stage.world.now = 310_000;
    stage.says(limited("rate_limit: You've hit your session limit · resets 12:05am (UTC)"));
    assert_eq!(stage.activity().limited_until, Some(Timestamp(340_000)));
}

#[test]
fn a_limit_that_is_told_late_ends_at_the_time_of_its_day() {
    let mut stage = Stage::new("claude");
    stage.world.now = 270_000;
    let error = "rate_limit: You've hit your session limit · resets 12:05am (UTC)".to_owned();
    let hook = stage.hook(HookEvent::TurnFailed { error, limited: true, until: None });
    // The daemon reads it from the spool four hours later.
    stage.world.now += 4 * 3_600_000;
    stage.handle_hook(&hook, TextMatch::Exact);
    let until = stage.activity().limited_until.unwrap();
    assert!(until <= stage.now().after(std::time::Duration::from_secs(60)), "{until:?}");
}

#[test]
fn an_agent_of_another_kind_inside_this_one_reports_nothing() {
    let mut stage = Stage::new("codex");
    let agent = pool::Agent { adapter: agents::Adapter::Codex, ..stage.agent.clone() };
    stage.agent = agent;
    let begins = stage.hook(HookEvent::Started { source: Start::New });
    let other = Hook { agent: "claude".to_owned(), conversation: Some("other".to_owned()), ..begins.clone() };
    assert_eq!(stage.handle_hook(&other, TextMatch::Exact), []);
    assert_ne!(stage.handle_hook(&begins, TextMatch::Exact), []);
}

#[test]
fn a_limit_that_holds_on_past_its_time_is_tried_again_after_growing_pauses_and_never_a_day_later() {
    let mut stage = Stage::new("claude");
    let session = stage.session().id;
    let error = "rate_limit: You've hit your session limit · resets 12:05am (UTC)".to_owned();
    let limited = HookEvent::TurnFailed { error, limited: true, until: None };
    stage.world.now = 270_000;
    stage.says(limited.clone());
    assert_eq!(stage.activity().limited_until, Some(Timestamp(300_000)));
    let mut pauses = Vec::new();
    for resumes in 1..8 {
        // The agent is told to continue, and the service still refuses.
        let until = stage.activity().limited_until.unwrap();
        stage.world.now = until.0 + 5000;
        let notes = Notes { resumes, ..stage.world.pool.notes(session).cloned().unwrap() };
        stage.world.emit(Event::Agent(AgentEvent::AgentNoted { session, notes }));
        stage.says(limited.clone());
        pauses.push(stage.activity().limited_until.unwrap().since(stage.now()).as_secs());
    }
    assert_eq!(pauses, [30, 60, 120, 240, 480, 600, 600]);
    // A time in the future is believed.
    stage.says(HookEvent::TurnFailed {
        error: "weekly limit".to_owned(),
        limited: true,
        until: Some(Timestamp(9_000_000_000)),
    });
    assert_eq!(stage.activity().limited_until, Some(Timestamp(9_000_000_000)));
}

#[test]
fn turns_that_fail_one_after_the_other_hold_the_rest_back() {
    let fails = |stage: &mut Stage, late: bool| {
        let id = stage.typed();
        stage.pass(10);
        let prompt = stage.hook(signal::prompt());
        if !late {
            stage.handle_hook(&prompt, TextMatch::Exact);
        }
        stage.pass(1);
        stage.says(signal::failed(None));
        if late {
            stage.handle_hook(&prompt, TextMatch::Exact);
        }
        assert_eq!(stage.message(id), MessageState::Dead);
    };
    let breaker = |stage: &Stage| stage.pool().breaker(stage.id, PROMPT).cloned().unwrap_or_default();
    for late in [false, true] {
        let mut stage = Stage::new("claude");
        for failures in [1, 2] {
            fails(&mut stage, late);
            assert_eq!((breaker(&stage).failures, breaker(&stage).is_open()), (failures, false));
        }
        fails(&mut stage, late);
        assert!(breaker(&stage).is_open());
        let waits = stage.send();
        assert_eq!(stage.begin(), None, "it would fail as well");
        stage.world.now = breaker(&stage).probe_at.unwrap().0;
        assert_eq!(stage.begin(), Some(waits), "one is tried");
        stage.moves(waits, MessageState::Typed);
        stage.says(signal::prompt());
        stage.says(signal::over());
        assert_eq!((stage.message(waits), breaker(&stage).failures), (MessageState::Done, 0));
        stage.send();
        assert!(stage.begin().is_some());
    }
}

fn texts(stage: &Stage) -> Vec<String> {
    stage.asks().into_iter().map(|ask| ask.text).collect()
}

#[test]
fn requests_of_several_are_shown_one_after_the_other_and_each_has_its_own_answer() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    for command in ["one", "two", "three"] {
        stage.pass(1);
        assert_eq!(answered(&stage.says(signal::wants(command, 60_000))), []);
    }
    let ids: Vec<u64> = stage.asks().iter().map(|ask| ask.id).collect();
    assert_eq!(texts(&stage), ["one", "two", "three"]);
    assert_eq!(stage.ask().unwrap().text, "one", "the oldest is shown");
    assert!(stage.activity().detail.unwrap().contains(&ids[2].to_string()));
    assert_eq!(answered(&stage.says(signal::ran("else"))), [], "it runs something else beside");
    assert_eq!(answered(&stage.says(signal::ran("two"))), [(ids[1], true)], "at the terminal");
    assert_eq!((texts(&stage), stage.state()), (vec!["one".to_owned(), "three".to_owned()], Attention));
    stage.pass(5);
    assert_eq!(answered(&stage.says(signal::ran("one"))), [(ids[0], true)]);
    assert_eq!((stage.ask().unwrap().text.as_str(), stage.activity().since), ("three", stage.now()));
    assert_eq!(stage.activity().detail, None);
    assert_eq!(answered(&stage.says(signal::over())), [(ids[2], false)], "nobody allowed it");
    assert_eq!((texts(&stage), stage.state()), (vec![], Idle));
}

#[test]
fn a_use_answers_the_request_with_the_same_arguments_before_one_that_resembles_it() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    let background = "make\n{\"run_in_background\":true}";
    for command in ["make", background, "make\n{\"cwd\":\"/\"}"] {
        stage.pass(1);
        stage.says(signal::wants(command, 60_000));
    }
    let HookEvent::ToolUsed(used) = signal::used("Bash") else { unreachable!() };
    let input = r#"{"run_in_background":true,"command":"make"}"#.to_owned();
    stage.says(HookEvent::ToolUsed(Box::new(ToolUse { input, ..*used })));
    assert_eq!(texts(&stage), ["make", "make\n{\"cwd\":\"/\"}"]);
    // Some agents report fewer arguments with the use than with the request.
    for left in [&["make\n{\"cwd\":\"/\"}"][..], &[]] {
        stage.says(signal::ran("make"));
        assert_eq!(texts(&stage), left);
    }
}

#[test]
fn a_use_answers_no_request_for_other_arguments() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    let tool = "mcp__db__get".to_owned();
    for text in [r#"{"n":1}"#, r#"{"n":2}"#] {
        stage.pass(1);
        let (tool, text) = (tool.clone(), text.to_owned());
        stage.says(HookEvent::Permission { tool, text, wait_ms: 60_000 });
    }
    let HookEvent::ToolUsed(used) = signal::used(&tool) else { unreachable!() };
    // The second report is one of a use whose request was answered before, as by `approve`.
    for _ in 0..2 {
        let input = r#"{"n":1}"#.to_owned();
        stage.says(HookEvent::ToolUsed(Box::new(ToolUse { input, ..(*used).clone() })));
        assert_eq!(texts(&stage), [r#"{"n":2}"#]);
    }
}

#[test]
fn a_request_that_no_hook_waits_for_gives_way_to_the_next() {
    let mut stage = Stage::new("claude");
    stage.says(signal::notified(Notice::Permission));
    stage.says(signal::asking("ExitPlanMode"));
    for (command, wait_ms) in [("one", 0), ("two", 60_000)] {
        stage.says(signal::wants(command, wait_ms));
        assert_eq!(texts(&stage), [command], "whether the one before is open still is not known");
    }
    stage.says(signal::asking("AskUserQuestion"));
    assert_eq!(texts(&stage), ["two", "AskUserQuestion"]);
    stage.says(signal::ran("two"));
    assert_eq!(stage.ask().unwrap().kind, AskKind::Question);
    stage.says(signal::used("AskUserQuestion"));
    assert_eq!((texts(&stage), stage.state()), (vec![], Busy));
}

#[test]
fn requests_whose_hooks_report_again_in_any_order_are_open_in_the_order_in_which_they_were_asked() {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    let hooks = ["first", "second", "third"].map(|command| {
        stage.pass(1000);
        stage.hook(signal::wants(command, 60_000))
    });
    for n in [2, 0, 1] {
        stage.handle_hook(&hooks[n], TextMatch::Exact);
    }
    assert!(stage.asks().iter().map(|ask| ask.id).eq(hooks.iter().map(|hook| hook.id)));
    assert_eq!(stage.ask().unwrap().text, "first");
}

#[test]
fn a_question_takes_an_answer_to_each_and_a_permission_a_yes_or_no() {
    use protocol::request::Approve;
    let mut stage = Stage::new("claude");
    let said = |deny, answers: &[&str]| Approve {
        session: protocol::SessionRef("web".to_owned()),
        deny,
        ask: None,
        reason: None,
        answers: answers.iter().map(|answer| (*answer).to_owned()).collect(),
    };
    let fits = |stage: &Stage, said: &Approve| {
        agent::check_answer(&stage.ask().unwrap(), said, "web").map_err(|refusal| refusal.code).is_ok()
    };
    stage.says(signal::asking("AskUserQuestion"));
    let (tool, text) = ("AskUserQuestion".to_owned(), "Which? (Red / Blue)\nHow many?".to_owned());
    stage.says(HookEvent::Permission { tool, text, wait_ms: 60_000 });
    assert_eq!((stage.ask().unwrap().kind, stage.ask().unwrap().answerable), (AskKind::Question, true));
    for (said, right) in [
        (said(false, &[]), false),
        (said(false, &["Red"]), false),
        (said(false, &["Red", "2"]), true),
        (said(false, &["Red", "2", "3"]), false),
        (said(true, &[]), true),
        (said(true, &["Red", "2"]), false),
    ] {
        assert_eq!(fits(&stage, &said), right, "{said:?}");
    }
    stage.says(signal::used("AskUserQuestion"));
    assert!(stage.ask().is_none());
    let (tool, text) = ("AskUserQuestion".to_owned(), String::new());
    stage.says(HookEvent::Permission { tool, text, wait_ms: 60_000 });
    assert!(!stage.ask().unwrap().answerable, "it was not understood");
    stage.says(signal::used("AskUserQuestion"));
    stage.says(signal::wants("one", 60_000));
    for (said, right) in [(said(false, &[]), true), (said(true, &[]), true), (said(false, &["yes"]), false)] {
        assert_eq!(fits(&stage, &said), right, "{said:?}");
    }
}

#[test]
fn a_request_that_was_overtaken_is_open_unless_its_turn_is_over() {
    for (newer, wait_ms, open) in [
        (signal::works("Read"), 60_000, true),
        (signal::used("Read"), 60_000, true),
        (signal::wants("else", 60_000), 60_000, true),
        (signal::works("Read"), 0, false),
        (signal::over(), 60_000, false),
        (signal::failed(None), 60_000, false),
    ] {
        let mut stage = Stage::new("claude");
        stage.says(signal::prompt());
        stage.pass(10);
        let asks = stage.hook(signal::wants("late", wait_ms));
        stage.pass(10);
        stage.says(newer.clone());
        let before = stage.activity();
        stage.pass(10);
        stage.handle_hook(&asks, TextMatch::Different);
        assert_eq!(texts(&stage).contains(&"late".to_owned()), open, "{newer:?} {wait_ms}");
        assert!(stage.activity().since >= before.since);
        stage.says(signal::over());
        assert_eq!((texts(&stage), stage.state()), (vec![], Idle));
    }
}

#[test]
fn only_the_tool_that_is_asked_about_answers_for_it() {
    let mut stage = Stage::new("claude");
    stage.says(signal::asks("Bash", 60_000));
    let ask = stage.ask().unwrap();
    assert_eq!((ask.kind, ask.tool.as_deref(), ask.answerable), (AskKind::Permission, Some("Bash"), true));
    for beside in [signal::works("Read"), signal::used("Read"), signal::notified(Notice::Permission)] {
        assert_eq!(answered(&stage.says(beside)), []);
        assert_eq!(stage.ask().as_ref(), Some(&ask));
    }
    assert_eq!(answered(&stage.says(signal::used("Bash"))), [(ask.id, true)]);
    assert_eq!((stage.state(), stage.ask()), (Busy, None));
    assert_eq!(answered(&stage.says(signal::used("Bash"))), []);
}

#[test]
fn a_request_that_nothing_waits_for_is_not_answered_elsewhere() {
    let mut stage = Stage::new("claude");
    stage.says(signal::asks("Bash", 0));
    assert!(!stage.ask().unwrap().answerable);
    assert_eq!(answered(&stage.says(signal::over())), []);
}

#[test]
fn what_is_known_beside_stays_known() {
    let mut stage = Stage::new("claude");
    let skill = HookEvent::Working { what: None, skill: Some("review".to_owned()) };
    let hook = Hook { transcript: Some("/t.jsonl".into()), ..stage.hook(skill) };
    stage.handle_hook(&hook, TextMatch::Different);
    stage.pass(5);
    stage.says(signal::over());
    let notes = stage.notes();
    assert_eq!(notes.skill.as_deref(), Some("review"));
    assert_eq!((notes.transcript, notes.heard_at), (Some("/t.jsonl".into()), Some(stage.now())));
    assert_eq!(notes.hooked, Some(stage.tag()));
}

#[test]
fn a_worker_that_has_a_prompt_is_not_spoken_for_by_the_agent() {
    let mut stage = Stage::new("claude");
    let id = send_prompt(&mut stage.world, stage.id).unwrap();
    stage.begin();
    stage.moves(id, MessageState::Claimed);
    for said in [signal::prompt(), signal::over()] {
        stage.says(said);
        assert_eq!(stage.message(id), MessageState::Claimed);
    }
    assert!(queue::held_prompt(stage.pool(), stage.id).is_some());
}

/// The report of a turn that ended before the prompt was accepted, spooled while the clock was an hour ahead.
#[test]
fn the_moment_of_a_report_counts_and_not_what_the_clock_showed() {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    stage.pass(1000);
    let moment = moment_by(stage.pool().clock(), stage.now(), stage.now());
    let earlier = Hook { at: Timestamp(stage.now().0 + 3_600_000), ..stage.hook(signal::over()) };
    stage.pass(1000);
    stage.says(signal::prompt());
    stage.handle_hook_of(moment, &earlier, TextMatch::Different);
    assert_eq!(stage.message(id), MessageState::Accepted);
    stage.pass(1000);
    stage.says(signal::over());
    assert_eq!(stage.message(id), MessageState::Done);
}

/// Reports, each with its delay.
fn reports() -> impl Strategy<Value = Vec<(HookEvent, u64, u64)>> {
    let late = prop::sample::select(vec![0_u64, 0, 0, 0, 30, 3000]);
    vec((any_signal(), 1_u64..200, late), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_late_report_never_turns_the_activity_back(reports in reports()) {
        let mut stage = Stage::new("claude");
        let mut newest = 0;
        for (signal, passed, late) in reports {
            stage.pass(passed);
            let hook = stage.hook(signal);
            let hook = Hook { at: Timestamp(hook.at.0 - late), ..hook };
            let before = stage.activity();
            stage.handle_hook(&hook, TextMatch::Exact);
            let waits = matches!(hook.signal, HookEvent::Permission { wait_ms: 1.., .. });
            if hook.at.0 < newest && !waits {
                prop_assert_eq!(stage.activity(), before);
            }
            newest = newest.max(hook.at.0);
            prop_assert_eq!(stage.notes().heard_at, Some(Timestamp(newest)));
            prop_assert!(stage.activity().since.0 <= newest);
        }
    }

    #[test]
    fn since_stays_while_the_state_does(reports in reports()) {
        let mut stage = Stage::new("claude");
        for (signal, passed, _) in reports {
            stage.pass(passed);
            let before = stage.activity();
            let events = stage.says(signal);
            let after = stage.activity();
            let kept = |a: &Activity| (a.tag, a.state, a.ask.clone(), a.limited_until);
            if kept(&before) == kept(&after) {
                prop_assert_eq!(before.since, after.since);
            }
            let turned = events.iter().any(|event| {
                matches!(event, Event::Agent(AgentEvent::ActivityChanged { turned: true, .. }))
            });
            prop_assert_eq!(turned, kept(&before) != kept(&after));
        }
    }

    #[test]
    fn a_request_is_answered_once(reports in reports()) {
        let mut stage = Stage::new("claude");
        for (signal, passed, late) in reports {
            stage.pass(passed);
            let hook = stage.hook(signal);
            let hook = Hook { at: Timestamp(hook.at.0 - late), ..hook };
            let before = stage.asks();
            let events = stage.handle_hook(&hook, TextMatch::Exact);
            let left = stage.asks();
            let gone = before.iter().filter(|open| open.answerable && !left.contains(open));
            let used = matches!(hook.signal, HookEvent::ToolUsed(_));
            let expected: Vec<(u64, bool)> = gone.map(|open| (open.id, used)).collect();
            prop_assert!(!used || expected.len() <= 1);
            prop_assert_eq!(stage.state() == Attention, !left.is_empty());
            prop_assert_eq!(answered(&events), expected);
        }
    }

    /// Any report, even twice, is either handled or changes nothing at all.
    #[test]
    fn any_report_is_taken_in_or_ignored(
        signals in vec((any_signal(), 0_u8..3, any::<u64>(), 0_usize..4), 0..20), kind in prop::sample::select(vec!["claude", "codex", "none"]),
    ) {
        let mut stage = Stage::new(kind);
        stage.typed();
        for (signal, tag, at, conversation) in signals {
            let tag = if tag == 0 { Tag([7; 16]) } else { stage.tag() };
            let conversation: Option<&str> = [None, Some(TALK), Some("a"), Some("b")][conversation];
            let conversation = conversation.map(str::to_owned);
            let hook = Hook { tag, at: Timestamp(at), conversation, ..stage.hook(signal) };
            let before = stage.world.pool.clone();
            let events = stage.handle_hook(&hook, TextMatch::Exact);
            prop_assert!(!events.is_empty() || stage.world.pool == before);
            prop_assert!(tag == stage.tag() || events.is_empty());
            prop_assert!(stage.activity().since <= stage.now());
            stage.handle_hook(&hook, TextMatch::Exact);
            prop_assert_eq!(stage.world.rebuilt(), stage.world.pool.clone());
            let abandoned = prompt::abandoned(stage.pool(), stage.now());
            prop_assert_eq!(prompt::fail_abandoned(stage.pool(), &abandoned, stage.now()), vec![]);
        }
    }
}
