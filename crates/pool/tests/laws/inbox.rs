//! The inbox.

use std::collections::BTreeMap;

use pool::{QueueRules, inbox};
use protocol::policy::Budget;
use protocol::{Event, OpId, SessionId, Timestamp};

use crate::queue::{self, asked};
use crate::stage::Stage;

fn kinds(stage: &Stage, why: &str) -> Vec<(String, String)> {
    told(stage, why, false)
}

fn told(stage: &Stage, why: &str, is_worked: bool) -> Vec<(String, String)> {
    let waits: BTreeMap<SessionId, String> = [(stage.session().id, why.to_owned())].into();
    let items = inbox::items(&stage.world.pool, &waits, |_, _| is_worked, Timestamp(stage.world.now));
    items.into_iter().map(|item| (item.kind, item.next)).collect()
}

fn kind(stage: &Stage, why: &str) -> Vec<String> {
    kinds(stage, why).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn a_prompt_that_nothing_confirms_is_told_after_half_a_minute() {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    stage.pass(29_999);
    assert_eq!(kind(&stage, ""), [""; 0]);
    stage.pass(1);
    let name = stage.session().name.to_string();
    let next = format!("poolctl queue resolve {name} {id} --as done|retry|dead");
    assert_eq!(kinds(&stage, ""), [("unconfirmed".to_owned(), next)]);
}

#[test]
fn a_prompt_that_only_somebody_at_the_terminal_lets_go_is_told_after_half_a_minute() {
    let mut stage = Stage::new("claude");
    stage.send();
    stage.pass(29_999);
    assert_eq!(kind(&stage, "its composer holds text: \"half\""), [""; 0]);
    stage.pass(1);
    for why in ["its composer holds text: \"half\"", "it shows a dialog: model", "it is in copy mode"] {
        assert_eq!(kind(&stage, why), ["held_back"], "{why}");
    }
    for why in ["", "its agent is busy (hook)", "somebody is typing in it", "its agent is not ready yet"] {
        assert_eq!(kind(&stage, why), [""; 0], "{why}: it goes on by itself");
    }
}

#[test]
fn what_is_started_no_more_by_itself_is_told() {
    let mut stage = Stage::new("claude");
    let budget = Budget { exhausted: true, ..Budget::default() };
    stage.world.emit(Event::BudgetChanged { session: stage.session().id, budget });
    assert_eq!(kind(&stage, ""), ["exhausted"]);
}

#[test]
fn messages_that_no_worker_takes_are_told_after_ten_minutes() {
    let mut stage = Stage::new("claude");
    let (op, send) = (OpId::Named("one".to_owned()), asked(stage.id, "observation"));
    queue::send(&mut stage.world, &QueueRules::default(), &send, &op).unwrap();
    stage.pass(599_999);
    assert_eq!(kind(&stage, ""), [""; 0]);
    stage.pass(1);
    let next = format!("poolctl work {} --kind observation -- …", stage.session().name);
    assert_eq!(kinds(&stage, ""), [("worker".to_owned(), next)]);
    assert_eq!(told(&stage, "", true), []);
}
