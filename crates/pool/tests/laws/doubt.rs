//! Prompts in doubt: held for a person, given up, or typed again.

use agents::prompt::TextMatch;
use pool::queue;
use protocol::{
    ActivityState, ErrorCode, Event, InDoubt, MessageId, MessageReason, MessageState, OpId, PROMPT, Timestamp,
};

use crate::queue::{asked, send};
use crate::stage::{Stage, signal};

/// Queues a prompt with this treatment, and begins to type it.
fn typing(stage: &mut Stage, in_doubt: Option<InDoubt>) -> MessageId {
    let asked = protocol::request::Send { in_doubt, ..asked(stage.id, PROMPT) };
    let op = OpId::Named(format!("doubt-{}", stage.pool().seq()));
    let id = send(&mut stage.world, &stage.rules.clone(), &asked, &op).unwrap();
    assert_eq!(stage.begin(), Some(id));
    id
}

/// Puts it in doubt, as a daemon that finds no receipt.
fn doubt(stage: &mut Stage, id: MessageId) -> Vec<MessageState> {
    doubt_as(stage, id, &MessageReason::NoReceipt)
}

fn doubt_as(stage: &mut Stage, id: MessageId, why: &MessageReason) -> Vec<MessageState> {
    let open = stage.pool().find_pending(id).unwrap();
    let events = queue::doubt(&stage.rules, &open, why, stage.now());
    stage.world.emit_all(events.clone());
    states(&events)
}

fn states(events: &[Event]) -> Vec<MessageState> {
    let state = |event: &Event| match event {
        Event::MessageChanged { status, .. } => status.state,
        other => panic!("{other:?}"),
    };
    events.iter().map(state).collect()
}

/// Settles the doubts that wait for no person.
fn settle(stage: &mut Stage) -> Vec<MessageState> {
    let why = |_| Some(MessageReason::Damaged);
    let events = queue::settle_doubts(stage.pool(), &stage.rules, why, stage.now());
    stage.world.emit_all(events.clone());
    states(&events)
}

const DAY: u64 = 24 * 3_600_000;

#[test]
fn by_default_a_person_decides_however_long_it_takes() {
    for own in [None, Some(InDoubt::Hold)] {
        let mut stage = Stage::new("claude");
        let id = typing(&mut stage, own);
        assert_eq!(doubt(&mut stage, id), [MessageState::InDoubt]);
        assert_eq!(
            pool::agent::current_activity(stage.pool(), stage.session()).state,
            ActivityState::Attention
        );
        stage.pass(DAY);
        assert_eq!(settle(&mut stage), []);
        stage.send();
        assert_eq!(stage.begin(), None, "it holds its lane");
    }
}

#[test]
fn one_that_is_to_die_is_dead_in_the_same_commit_with_its_reason_and_the_next_goes() {
    for (own, rule) in [(Some(InDoubt::Dead), InDoubt::Hold), (None, InDoubt::Dead)] {
        let mut stage = Stage::new("claude");
        stage.rules.in_doubt = rule;
        let id = typing(&mut stage, own);
        assert_eq!(doubt(&mut stage, id), [MessageState::InDoubt, MessageState::Dead]);
        assert_eq!(stage.why(id), Some(MessageReason::NoReceipt.to_string()));
        stage.send();
        assert!(stage.begin().is_some());
    }
    let mut stage = Stage::new("claude");
    stage.rules.in_doubt = InDoubt::Dead;
    let id = typing(&mut stage, Some(InDoubt::Hold));
    assert_eq!(doubt(&mut stage, id), [MessageState::InDoubt], "its own treatment counts");
}

#[test]
fn one_that_is_to_be_sent_again_is_so_once_its_agent_cannot_have_it_any_more_and_at_most_so_often() {
    let mut stage = Stage::new("claude");
    let mut id = typing(&mut stage, Some(InDoubt::Retry));
    for attempt in 1.. {
        assert_eq!(doubt(&mut stage, id), [MessageState::InDoubt]);
        let shown = pool::agent::current_activity(stage.pool(), stage.session()).state;
        assert_ne!(shown, ActivityState::Attention, "nobody is asked");
        stage.pass(11_999);
        stage.crash();
        assert_eq!(settle(&mut stage), [], "its agent may report it yet");
        stage.pass(1);
        if attempt == stage.rules.max_attempts {
            break;
        }
        assert_eq!(settle(&mut stage), [MessageState::Queued]);
        assert_eq!(stage.why(id), Some(MessageReason::TypedAgain.to_string()));
        id = stage.begin().unwrap();
        assert_eq!(stage.pool().find_pending(id).unwrap().attempts, attempt + 1);
    }
    assert_eq!(settle(&mut stage), [MessageState::Dead]);
}

#[test]
fn a_text_that_stands_without_enter_is_never_typed_again_and_a_person_is_told() {
    for why in [MessageReason::NoEnter, MessageReason::DialogOpened, MessageReason::Damaged] {
        let mut stage = Stage::new("claude");
        let id = typing(&mut stage, Some(InDoubt::Retry));
        assert_eq!(doubt_as(&mut stage, id, &why), [MessageState::InDoubt]);
        let shown = pool::agent::current_activity(stage.pool(), stage.session()).state;
        assert_eq!(shown, ActivityState::Attention);
        stage.crash();
        stage.pass(DAY);
        assert_eq!(settle(&mut stage), []);
    }
}

#[test]
fn a_report_of_the_agent_ends_the_doubt_and_nothing_is_typed_again() {
    let mut stage = Stage::new("claude");
    let id = typing(&mut stage, Some(InDoubt::Retry));
    doubt(&mut stage, id);
    stage.pass(11_000);
    stage.says(signal::prompt());
    assert_eq!(stage.message(id), MessageState::Accepted);
    stage.pass(DAY);
    assert_eq!(settle(&mut stage), []);
}

#[test]
fn one_that_arrived_altered_and_one_whose_session_ended_follow_the_same_rule() {
    let mut stage = Stage::new("claude");
    // The report of an altered text may come before the typing is committed.
    for is_typed in [true, false] {
        let id = typing(&mut stage, Some(InDoubt::Dead));
        if is_typed {
            stage.moves(id, MessageState::Typed);
        }
        let hook = stage.hook(signal::prompt());
        stage.handle_hook(&hook, TextMatch::Altered);
        assert_eq!(stage.message(id), MessageState::Dead);
        assert_eq!(stage.why(id).as_deref(), Some("altered: its agent got \"text\""));
    }
    let id = typing(&mut stage, Some(InDoubt::Dead));
    stage.end();
    let events = queue::doubt_cut_off(stage.pool(), &stage.rules, |_| false, stage.now());
    stage.world.emit_all(events);
    assert_eq!(stage.message(id), MessageState::Dead);
}

#[test]
fn a_doubt_from_before_the_rule_or_from_a_damaged_record_is_settled_by_it() {
    let mut stage = Stage::new("claude");
    let id = typing(&mut stage, None);
    doubt(&mut stage, id);
    stage.rules.in_doubt = InDoubt::Dead;
    assert_eq!(settle(&mut stage), [MessageState::Dead]);
    assert_eq!(stage.why(id), Some(MessageReason::Damaged.to_string()), "the reason of the doubt is kept");
}

#[test]
fn only_prompts_have_a_treatment_and_it_outlives_a_retry_by_a_person() {
    let mut stage = Stage::new("claude");
    let asked = protocol::request::Send { in_doubt: Some(InDoubt::Dead), ..asked(stage.id, "build") };
    let refused = send(&mut stage.world, &stage.rules.clone(), &asked, &OpId::Random([1; 16]));
    assert_eq!(refused, Err(ErrorCode::Usage));
    let id = typing(&mut stage, Some(InDoubt::Dead));
    doubt(&mut stage, id);
    let again = queue::retry(stage.pool(), &stage.rules, id, Timestamp(stage.world.now)).unwrap();
    stage.world.emit_all(again);
    assert_eq!(stage.begin(), Some(id));
    assert_eq!(doubt(&mut stage, id), [MessageState::InDoubt, MessageState::Dead]);
}
