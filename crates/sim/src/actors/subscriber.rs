//! A subscriber: follows the events, resumes after the last one that it has seen, and checks that what they say is
//! true.

mod told;

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::event::EventKind;
use protocol::request::Subscribe;
use protocol::{
    AgentEvent, Call, Event, Frame, MessageId, MessageState, Reason, Request, Role, Seq, SessionId, Tag,
    frame,
};
use tokio::time::sleep;

use crate::client::Client;
use crate::land::Land;
use crate::world::machine::Proc;

use told::Told;

/// The author of an answer to a request for a permission that was not given at the terminal.
const APPROVE: &str = "approve";

/// Follows, for ever.
pub(crate) async fn run(land: Land) {
    let mut rng = land.rng("subscriber");
    let (mut incarnations, mut steps, mut told) = (BTreeMap::new(), Steps::default(), Told::default());
    loop {
        if let Some(client) = Client::connect(&land.net, Role::Subscriber, None).await {
            follow(&land, client, (&mut incarnations, &mut steps, &mut told)).await;
        }
        sleep(Duration::from_millis(rng.between(20, 3000))).await;
    }
}

async fn follow(
    land: &Land,
    mut client: Client,
    (incarnations, steps, told): (&mut BTreeMap<SessionId, Tag>, &mut Steps, &mut Told),
) -> Option<()> {
    if steps.timeline != land.judge.timeline() {
        incarnations.clear();
    }
    let seen = land.judge.seen();
    let since = (seen != Seq(0)).then_some(seen);
    let call = Call { id: 1, op: None, lock: None, request: Request::Subscribe(Subscribe { since }) };
    client.send(&frame::encode(&call).ok()?).await?;
    let mut has_state = false;
    loop {
        match client.frame().await? {
            Frame::Event { snapshot: true, stamped } => {
                if !has_state {
                    told.begin_state(land);
                    incarnations.clear();
                    land.judge.missed_events();
                    has_state = true;
                }
                if let Event::SessionCreated(session) = &stamped.event {
                    incarnations.extend(session.running().map(|run| (session.id, run.tag)));
                }
                told.note(&stamped.event, stamped.at);
            }
            Frame::Event { stamped, .. } => {
                land.judge.count(format!("event:{}", stamped.event.kind().as_str()));
                land.judge.saw(stamped.seq, false);
                steps.count(land, &stamped.event);
                compare(land, incarnations, &stamped.event);
                told.take(land, &stamped.event, stamped.at);
            }
            Frame::Synced { seq } => land.judge.saw(seq, true),
            _ => return None,
        }
    }
}

/// The last lifecycle of each session and the last state of each message, for the coverage of transitions.
#[derive(Default)]
struct Steps {
    timeline: u64,
    sessions: BTreeMap<SessionId, EventKind>,
    messages: BTreeMap<MessageId, MessageState>,
}

impl Steps {
    /// Counts the transition of an event.
    fn count(&mut self, land: &Land, event: &Event) {
        use EventKind::{
            SessionDeleted, SessionDraining, SessionFailed, SessionLive, SessionLost, SessionParked,
            SessionStarting, SessionStopped,
        };
        // A database that is put back knows of earlier states.
        if self.timeline != land.judge.timeline() {
            *self = Self { timeline: land.judge.timeline(), ..Self::default() };
        }
        let kind = event.kind();
        let is_lifecycle = matches!(
            kind,
            SessionStarting
                | SessionLive
                | SessionDraining
                | SessionStopped
                | SessionLost
                | SessionFailed
                | SessionParked
                | SessionDeleted
        );
        if let Some(session) = event.session().filter(|_| is_lifecycle)
            && let Some(before) = self.sessions.insert(session, kind)
        {
            land.judge.count(format!("lifecycle:{before} > {kind}"));
        }
        match event {
            Event::MessageQueued(message) => {
                self.messages.insert(message.id, MessageState::Queued);
            }
            Event::MessageChanged { id, status, .. } => {
                if let Some(before) = self.messages.insert(*id, status.state) {
                    land.judge.count(format!("message:{before:?} > {:?}", status.state));
                }
            }
            _ => {}
        }
    }
}

/// Checks that the exit of a program that an event tells is the one that its init has reported, and that the answer to
/// a request for a permission is the one that its hook has got.
fn check_reports(land: &Land, incarnations: &BTreeMap<SessionId, Tag>, event: &Event) {
    if let Event::Agent(AgentEvent::AskAnswered { ask, allowed, by, .. }) = event
        && by == APPROVE
    {
        land.judge.check_answered(*ask, *allowed);
    }
    if let Event::SessionDraining { session, exit: Some(exit), .. }
    | Event::SessionStopped { session, exit: Some(exit), .. }
    | Event::SessionLost { session, exit: Some(exit), .. }
    | Event::SessionParked { session, exit: Some(exit), .. } = event
        && let Some(tag) = incarnations.get(session)
    {
        land.judge.check_exit(*tag, *exit);
    }
}

/// Compares an event with the world.
fn compare(land: &Land, incarnations: &mut BTreeMap<SessionId, Tag>, event: &Event) {
    incarnations.retain(|_, tag| !land.judge.is_forgotten(*tag));
    if let Event::SessionParked { session, reason: Reason::Idle, .. } = event
        && let Some(tag) = incarnations.get(session)
    {
        land.judge.parked_as_idle(*tag, land.climate.idle_timeout);
    }
    check_reports(land, incarnations, event);
    if let Event::MessageChanged { id, status, .. } = event {
        land.judge.told_state(*id, status.state.is_final());
    }
    match event {
        Event::SessionCreated(session) => {
            incarnations.remove(&session.id);
            incarnations.extend(session.incarnation.as_ref().map(|run| (session.id, run.tag)));
        }
        Event::SessionStarting { session, incarnation, .. } => {
            incarnations.insert(*session, incarnation.tag);
        }
        Event::SessionLive { incarnation, .. } => land.judge.told_live(incarnation.tag),
        // The program of a failed adoption lives on.
        Event::SessionDeleted { session, tmux_alive: true, .. } => drop(incarnations.remove(session)),
        Event::SessionDraining { session, reason: Reason::ServerGone, .. }
            if incarnations.get(session).is_some_and(|tag| land.judge.has_server(*tag)) =>
        {
            land.judge.violated(format!("O: {session} is said to have lost its tmux server, which lives"));
        }
        Event::SessionStopped { session, reason: Reason::TmuxGone | Reason::StartupMissingTmux, .. }
            if incarnations.get(session).is_some_and(|tag| land.tmux.has_pane(*tag)) =>
        {
            land.judge.violated(format!("O: {session} is said to have lost its pane, which is there"));
        }
        Event::SessionParked { session, reason: Reason::Evicted | Reason::Idle, .. }
            if incarnations.get(session).is_some_and(|tag| land.tmux.lost_line(*tag)) =>
        {
            land.judge.violated(format!("T: {session} was parked, and a person's line was in its composer"));
        }
        Event::SessionParked { session, reason, .. }
            if *reason != Reason::Parked
                && incarnations.get(session).is_some_and(|tag| land.judge.loses_words(*tag)) =>
        {
            land.judge.violated(format!(
                "T: {session} was parked ({reason:?}), and only a person spoke to it, so its conversation is lost"
            ));
        }
        Event::SessionParked { session, reason, .. }
            if *reason != Reason::Parked
                && incarnations.get(session).is_some_and(|tag| land.judge.was_closed_attended(*tag)) =>
        {
            land.judge.violated(format!("T: {session} was parked ({reason:?}) while a client was attached"));
        }
        Event::SessionStopped { session, .. }
        | Event::SessionLost { session, .. }
        | Event::SessionFailed { session, .. }
        | Event::SessionParked { session, .. }
        | Event::SessionDeleted { session, .. } => {
            incarnations.remove(session).into_iter().for_each(|run| check_gone(land, *session, run));
        }
        Event::MessageChanged { id, status, .. } if status.state == MessageState::Done => {
            if let Some(body) = land.judge.unfinished(*id) {
                land.judge
                    .violated(format!("{body:?} ({id}) is said to be done, but its agent still works on it"));
            }
        }
        _ => {}
    }
}

/// Checks that nothing lives of an incarnation that is said to be over.
fn check_gone(land: &Land, session: SessionId, run: Tag) {
    let living = land.machine.living();
    let is_left = |found: &&Proc| found.tag == Some(run) && land.judge.goes_with_run(found.kind, run);
    if let Some(left) = living.iter().find(is_left) {
        let what = format!("{:?} {}", left.kind, left.id);
        land.judge.violated(format!("P3: {session} is said to have ended, and {what} lives"));
    }
}
