//! A client that waits until its prompt is worked off, as a script does, and must not be told so before.

use protocol::request::{Until, Wait};
use protocol::{Activity, ActivityState, MessageState, Request, Response, SessionId, Source};

use super::Actor;

impl Actor {
    /// Waits until the agent that has the last prompt is idle, or somebody is needed.
    pub(super) async fn await_rest(&mut self) {
        let Some(id) = self.sent.last().copied() else { return };
        let Some((session, body)) = self.land.judge.message(id) else { return };
        let timeline = self.land.judge.timeline();
        let states = [ActivityState::Idle, ActivityState::Attention, ActivityState::Error];
        let until = states.map(Until::Activity).to_vec();
        let timeout_ms = Some(self.rng.between(1000, 40_000));
        let reply = self.once(Request::Wait(Wait { session: session.into(), until, timeout_ms })).await;
        self.told("wait", &body, &reply);
        let Some(Ok(Response::Session(found))) = reply else { return };
        if found.activity.state != ActivityState::Idle {
            return self.check_question(session, &found.activity);
        }
        let judge = self.land.judge.clone();
        let is_excused = || judge.is_retried(&body) || judge.timeline() != timeline;
        if is_excused() {
            return;
        }
        let at_work = self.land.judge.at_work_on(&body);
        let living = self.land.machine.living();
        if let Some(agent) = living.iter().find(|found| found.tag.is_some_and(|tag| at_work.contains(&tag))) {
            self.land
                .judge
                .violated(format!("O: {session} is said to be idle, and {} works on {body:?}", agent.id));
        }
        let Some(Ok(Response::Message(message))) = self.once(Request::ShowMessage(id)).await else { return };
        let waits = matches!(message.status.state, MessageState::Queued | MessageState::Typing);
        if waits && !is_excused() {
            self.land.judge.violated(format!("O: {session} is said to be idle, and {body:?} waits for it"));
        }
    }

    /// Checks that an agent that is said to wait for a person has a question, by its report or its screen. A prompt in
    /// doubt needs a person as well.
    fn check_question(&self, session: SessionId, told: &Activity) {
        let is_of_agent = told.source.is_report() || told.source == Source::Screen;
        if let Some(tag) = told.tag.filter(|_| told.state == ActivityState::Attention && is_of_agent) {
            self.land.judge.said_to_ask(session, tag);
        }
    }
}
