//! The laws of the core, under random events, requests and observations.

use pool::queue;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::clock::Clock;
use protocol::policy::{Budget, Policy};
use protocol::session::{Conversation, DeleteMode, SessionLock};
use protocol::thought::{StreamPosition, Thought};
use protocol::tmux::{TmuxPane, TmuxState};
use protocol::usage::Account;
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, AskKind, Breaker, Epoch, Event, Exit, Incarnation, MessageId,
    MessageState, MessageStatus, Notes, OpId, PaneId, ProcId, Reason, SessionId, Source, Stamped, Tag,
    Timestamp, TmuxSessionId, Token, WindowId,
};

use crate::queue::send_prompt;
use crate::world::{World, process, server, session_lock, up};

proptest! {
    #[test]
    fn i2_nothing_can_leave_paste_mode(text in ".*") {
        let clean = queue::strip_controls(&text);
        prop_assert!(clean.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        prop_assert_eq!(queue::strip_controls(&clean), clean.clone());
        let wanted: String = text.replace("\r\n", "\n").chars().filter(|c| !c.is_control()).collect();
        prop_assert_eq!(clean.chars().filter(|c| !c.is_control()).collect::<String>(), wanted);
    }
}

fn exit() -> impl Strategy<Value = Option<Exit>> {
    prop_oneof![
        Just(None),
        (0..256).prop_map(|code| Some(Exit { code: Some(code), signal: None, at: Timestamp(5) })),
    ]
}

fn reason() -> impl Strategy<Value = Reason> {
    prop::sample::select(vec![Reason::Exited, Reason::Killed, Reason::Restarted, Reason::TmuxGone])
}

/// An event about the session with this number, which may not exist.
fn session_event() -> impl Strategy<Value = Event> {
    let id = (1_u64..6).prop_map(SessionId);
    let run = (0_u8..6, 0_u32..3, any::<bool>()).prop_map(|(tag, n, dead)| Incarnation {
        server: (n > 0).then(|| server(n)),
        pane: Some(PaneId(n)),
        init: Some(process(100 + n)),
        dead,
        ..Incarnation::intended(Tag([tag; 16]), Timestamp(u64::from(n)))
    });
    (id, run, reason(), exit(), 0..9).prop_map(|(session, incarnation, reason, exit, which)| match which {
        0 => Event::SessionLive { session, incarnation, recovered: true },
        1 => Event::SessionStarting { session, incarnation, incarnations: 2, restarts: 1 },
        2 => Event::SessionDraining { session, reason, exit, missing_since: Some(Timestamp(3)) },
        3 => Event::SessionStopped { session, reason, exit },
        4 => Event::SessionLost { session, reason, exit },
        5 => Event::SessionFailed { session, reason, detail: "why".into(), exit },
        6 => Event::SessionObserved {
            session,
            at: Timestamp(9),
            dead: true,
            attached: 2,
            current_command: Some("vim".into()),
        },
        7 => Event::SessionRenamed { session, name: "renamed".parse().unwrap() },
        _ => Event::TagRetired { tag: incarnation.tag, session },
    })
}

/// An event of the lifecycle of the session with this number, which may not exist.
fn life_event() -> impl Strategy<Value = Event> {
    let id = (1_u64..6).prop_map(SessionId);
    let parks = prop::sample::select(vec![Reason::Evicted, Reason::Idle, Reason::Parked]);
    (id, parks, exit(), any::<bool>(), 0_u64..9, 0..6).prop_map(|(session, reason, exit, yes, n, which)| {
        let budget =
            Budget { starts: vec![Timestamp(n)], failures: 1, due_at: Some(Timestamp(n)), exhausted: yes };
        let policy = Policy { pinned: yes, ttl_ms: Some(n), ..Policy::default() };
        match which {
            0 => Event::SessionParked { session, reason, exit },
            1 => Event::SessionDraining { session, reason, exit, missing_since: None },
            2 => Event::BudgetChanged { session, budget },
            3 => Event::SessionPolicyChanged { session, policy },
            4 => {
                let conversation = Some(Conversation { id: n.to_string(), begun: yes });
                Event::ConversationChanged { session, conversation }
            }
            _ => Event::SessionAccounted(session, Account { user_us: n, ..Account::default() }),
        }
    })
}

/// An event about the lock of the session with this number, which may not exist, or have another lock.
fn lock_event() -> impl Strategy<Value = Event> {
    ((1_u64..6).prop_map(SessionId), 1_u64..4, 0..5).prop_map(|(session, n, which)| {
        let (token, reason) = (Token { epoch: Epoch(1), n }, "why".to_owned());
        match which {
            0 => Event::LockReleased { session, token, reason },
            1 => Event::LockRevoked { session, token, reason },
            2 => Event::LockUsedForSend { session, token, message: MessageId(n) },
            _ => {
                let lock = SessionLock { holder: Some(process(7)), ..session_lock(n, Timestamp(n)) };
                Event::LockGranted { session, lock }
            }
        }
    })
}

/// An event about the agent of the session with this number, which may not exist.
fn agent_event() -> impl Strategy<Value = Event> {
    let state = prop::sample::select(ActivityState::ALL.to_vec());
    ((1_u64..6).prop_map(SessionId), state, any::<bool>(), 0_u64..9, 0..4).prop_map(
        |(session, state, yes, n, which)| {
            Event::Agent(match which {
                0 => {
                    let (text, tool) = ("rm -rf x".to_owned(), yes.then(|| "Bash".to_owned()));
                    let ask = Ask { id: n, kind: AskKind::Permission, text, tool, answerable: yes };
                    let (since, ask) = (Timestamp(n), yes.then_some(ask));
                    let activity =
                        Activity { state, source: Source::Hook, since, ask, ..Activity::default() };
                    AgentEvent::ActivityChanged { session, activity, turned: yes }
                }
                1 => {
                    let notes = Notes { tokens: Some(n), resumes: u32::from(yes), ..Notes::default() };
                    AgentEvent::AgentNoted { session, notes }
                }
                2 => {
                    let place = yes.then(|| StreamPosition { stream: "a".to_owned(), seq: n });
                    let thought = Thought { place, updated_at: Timestamp(n), ..Thought::default() };
                    AgentEvent::ThoughtPublished { session, thought }
                }
                _ => AgentEvent::AskAnswered { session, ask: n, allowed: yes, by: "approve".to_owned() },
            })
        },
    )
}

fn other_event() -> impl Strategy<Value = Event> {
    let op = any::<u8>().prop_map(|n| OpId::Random([n % 4; 16]));
    (op, 0_u64..9, 0..7).prop_map(|(op, n, which)| match which {
        0 => Event::OperationBegun { op, digest: n, session: SessionId(n), at: Timestamp(n) },
        1 => Event::OperationDone { op, digest: n, reply: vec![1], at: Timestamp(n) },
        2 => Event::OperationForgotten { op },
        3 => Event::TmuxServerChanged { server: Some(server(1)) },
        4 => Event::TagForgotten(Tag([u8::try_from(n).unwrap(); 16])),
        5 => Event::ClockRead(Clock { read_at: Timestamp(n), awake_ms: n, ..Clock::default() }),
        _ => Event::PoolStarted { epoch: Epoch(n), build: "b".into(), boot: "x".into() },
    })
}

/// An event about a message of a session that it may not belong to.
fn message_event() -> impl Strategy<Value = Event> {
    use MessageState::{Cancelled, Claimed, Dead, Done, Expired, InDoubt, Queued, Revoking, Typing};
    let states = vec![Cancelled, Claimed, Dead, Done, Expired, InDoubt, Queued, Revoking, Typing];
    let status =
        (prop::sample::select(states), 0_u32..4, any::<bool>()).prop_map(|(state, attempts, held)| {
            let token = held.then_some(Token { epoch: Epoch(1), n: 1 });
            Box::new(MessageStatus {
                state,
                attempts,
                token,
                changed_at: Timestamp(7),
                ..MessageStatus::default()
            })
        });
    let ids = ((1_u64..60).prop_map(MessageId), (1_u64..6).prop_map(SessionId));
    (ids, status, 0..4).prop_map(|((id, session), status, which)| match which {
        0 => Event::MessageForgotten { id, session },
        1 => {
            let breaker = Breaker { failures: status.attempts, ..Breaker::default() };
            Event::BreakerChanged { session, kind: "prompt".into(), breaker, turned: false }
        }
        _ => Event::MessageChanged { id, session, status },
    })
}

#[derive(Debug, Clone)]
enum Step {
    New(u8),
    Send(u64),
    Fact(Box<Event>),
    Message(u64, MessageState),
}

fn step() -> impl Strategy<Value = Step> {
    let states = vec![MessageState::Typing, MessageState::Queued, MessageState::InDoubt, MessageState::Done];
    prop_oneof![
        (0_u8..6).prop_map(Step::New),
        (1_u64..6).prop_map(Step::Send),
        session_event().prop_map(|event| Step::Fact(Box::new(event))),
        life_event().prop_map(|event| Step::Fact(Box::new(event))),
        lock_event().prop_map(|event| Step::Fact(Box::new(event))),
        agent_event().prop_map(|event| Step::Fact(Box::new(event))),
        other_event().prop_map(|event| Step::Fact(Box::new(event))),
        (1_u64..30, prop::sample::select(states)).prop_map(|(id, state)| Step::Message(id, state)),
    ]
}

fn play(steps: Vec<Step>) -> World {
    let mut world = World::default();
    for step in steps {
        world.now += 400;
        match step {
            Step::New(n) => {
                world.create(&format!("s{n}"));
            }
            Step::Send(id) => {
                if world.pool.session(SessionId(id)).is_some() {
                    assert_ne!(send_prompt(&mut world, SessionId(id)), Ok(MessageId(0)));
                }
            }
            Step::Fact(event) => drop(world.emit(*event)),
            Step::Message(id, state) => {
                let now = Timestamp(world.now);
                let open = world.pool.find_pending(MessageId(id));
                if let Some(event) = open.map(|open| queue::transition(&open, state, Some("why".into()), now))
                {
                    world.emit(event);
                }
            }
        }
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn law_1_the_states_events_give_the_state(steps in vec(step(), 0..60)) {
        let world = play(steps);
        prop_assert_eq!(world.rebuilt(), world.pool);
    }

    #[test]
    fn law_2_reconciling_twice_finds_nothing_new(
        steps in vec(step(), 0..60), answer in 0_u32..4, there in vec((0_u8..6, any::<bool>(), any::<bool>()), 0..5),
        exited in vec(0_u32..110, 0..40),
    ) {
        let mut world = play(steps);
        let panes = there.into_iter().enumerate().map(|(n, (tag, known, dead))| {
            let n = u32::try_from(n).unwrap();
            let tag = known.then_some(Tag([tag; 16]));
            let bare = TmuxPane::bare(TmuxSessionId(n), WindowId(n), 100 + n);
            let end = dead.then_some(3);
            let seen = TmuxPane { tag, process: Some(process(100 + n)), dead, exited: dead, exit_status: end, ..bare };
            (PaneId(n), seen)
        }).collect();
        let state = match answer { 0 => TmuxState::default(), n => up(n, panes) };
        let exited: Vec<ProcId> = exited.into_iter().map(process).collect();
        world.see(&state, &exited);
        world.see(&state, &exited);
        prop_assert_eq!(world.see(&state, &exited), vec![]);
    }

    #[test]
    fn nothing_is_known_of_agents_of_sessions_that_are_gone(steps in vec(step(), 0..60)) {
        let mut world = play(steps);
        let (reason, mode) = (Reason::ApiDelete, DeleteMode::KillTmux);
        let known = |world: &World| world.pool.replicate().iter().any(|row| matches!(row.event, Event::Agent(_)));
        for session in (1..7).map(SessionId) {
            world.emit(Event::SessionDeleted { session, reason, mode, tmux_alive: false });
            let notes = Notes::default();
            world.emit(Event::Agent(AgentEvent::AgentNoted { session, notes }));
        }
        prop_assert!(!known(&world));
    }

    #[test]
    fn law_3_applying_twice_is_applying_once(
        steps in vec(step(), 0..40),
        event in prop_oneof![session_event(), life_event(), lock_event(), agent_event(), message_event()],
    ) {
        let mut world = play(steps);
        let before = world.pool.clone();
        for (message, _) in world.disk.messages.values() {
            let event = Event::MessageQueued(Box::new(message.clone()));
            world.pool.apply(&Stamped { seq: world.pool.seq(), at: Timestamp(0), event });
        }
        prop_assert_eq!(&world.pool, &before);
        let stamped = world.emit(event);
        let once = world.pool.clone();
        world.pool.apply(&stamped);
        prop_assert_eq!(world.pool, once);
    }
}
