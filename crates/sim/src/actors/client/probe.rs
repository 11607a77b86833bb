//! The last client of a run: whether the healed pool works, and without delay.

use std::time::Duration;

use protocol::request::{List, New, Restart, Until, Wait};
use protocol::{Lifecycle, MessageState, PROMPT, Request, Response, Session, SessionId, SessionRef};
use tokio::time::{Instant, sleep};
use world::tasks::Tasks;

use super::Actor;
use crate::actors::worker::{self, JOB};

/// Time within which a prompt for an idle session is typed, besides what tmux takes: less than the time between two
/// looks of the watcher, which wake whatever sleeps.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Calls of tmux before a prompt is typed, at most.
const CALLS: u32 = 10;

impl Actor {
    /// Creates a session, and gives it a prompt and a job, which have to be done.
    pub(crate) async fn probe(mut self) {
        let name = "probe";
        self.land.life.spawn("worker", Box::pin(worker::run(self.land.clone(), name.to_owned())));
        let op = self.land.operation();
        let new = New {
            name: Some(name.to_owned()),
            agent: Some("sim".to_owned()),
            wait_slot_ms: Some(300_000),
            ..New::default()
        };
        // All slots may be taken, so all sessions are killed.
        let list = self.once(Request::List(List { all: true, ..List::default() })).await;
        if let Some(Ok(Response::Sessions(sessions))) = list {
            for found in &sessions {
                self.kill(found.session.id.into()).await;
            }
            // Sessions that people made may have any name.
            let has_spoken = |session: &Session| session.conversation.as_ref().is_some_and(|it| it.begun);
            let is_agent =
                |session: &Session| session.spec.agent == "sim" && session.name.as_str().starts_with('s');
            let mut agents =
                sessions.into_iter().map(|found| found.session).filter(|it| is_agent(it) && self.stays(it));
            if let Some(ended) = agents.find(has_spoken) {
                self.start_again(ended.id).await;
            }
        }
        let made = self.repeat(&op, Request::New(Box::new(new))).await;
        self.told("probe", "", &made);
        if !matches!(made, Some(Ok(_))) {
            let list = self.once(Request::List(List { all: true, ..List::default() })).await;
            let Some(Ok(Response::Sessions(sessions))) = list else { return };
            let states: Vec<String> = sessions
                .iter()
                .map(|found| {
                    let session = &found.session;
                    format!("{} {:?} {:?} {:?}", session.name, session.lifecycle, session.reason, found.lock)
                })
                .collect();
            return self
                .land
                .judge
                .violated(format!("the healed pool starts no session: {made:?} {states:?}"));
        }
        for kind in [JOB, PROMPT] {
            let body = format!("{} probe", if kind == PROMPT { "prompt" } else { "job" });
            self.send(SessionRef(name.to_owned()), body.clone(), kind, false).await;
            let Some(id) = self.sent.last().copied() else {
                return self.land.judge.violated(format!("the healed pool takes no {kind}"));
            };
            let until = vec![Until::Message(id)];
            let wait = Wait { session: SessionRef(name.to_owned()), until, timeout_ms: Some(300_000) };
            match self.once(Request::Wait(wait)).await {
                Some(Ok(Response::Message(message))) if message.status.state == MessageState::Done => {}
                Some(Ok(Response::Message(message))) if message.status.state.is_final() => {
                    return self.land.judge.count("at-once:skipped");
                }
                other => {
                    return self
                        .land
                        .judge
                        .violated(format!("{body:?} of the healed pool does not end: {other:?}"));
                }
            }
        }
        self.prompt_at_once(name).await;
        if self.land.climate.repeats_late {
            self.repeat_late(SessionRef(name.to_owned())).await;
        }
    }

    /// True if an ended session is not removed before it is started again.
    fn stays(&self, session: &Session) -> bool {
        let is_kept = !session.policy.ephemeral && session.policy.ttl_ms.is_none();
        is_kept && self.land.climate.keep_stopped.is_none()
    }

    /// Starts an ended session once more. That has to be possible even if its agent has lost the conversation.
    async fn start_again(&mut self, id: SessionId) {
        let (session, wait_slot_ms) = (id.into(), Some(300_000));
        let restart = Restart { session, grace_ms: None, fresh: false, clear: false, wait_slot_ms };
        self.change("start again", Request::Restart(restart)).await;
        let until = vec![Until::Ready];
        let wait = Wait { session: id.into(), until, timeout_ms: Some(300_000) };
        match self.once(Request::Wait(wait)).await {
            Some(Ok(Response::Session(found))) if found.session.lifecycle == Lifecycle::Live => {}
            other => self.land.judge.violated(format!("{id} cannot be started again: {other:.300?}")),
        }
        self.kill(id.into()).await;
    }

    /// Sends a prompt to the session, which is idle: it has to be typed at once.
    async fn prompt_at_once(&mut self, name: &str) {
        let body = "prompt at once".to_owned();
        self.send(SessionRef(name.to_owned()), body.clone(), PROMPT, false).await;
        let began = Instant::now();
        let limit = AT_ONCE + CALLS * Duration::from_micros(self.land.climate.tmux_delay_us);
        while self.land.judge.prompt(&body).pasted == 0 {
            if began.elapsed() > limit {
                return self.land.judge.violated(format!("{body:?} is not typed within {limit:?}"));
            }
            sleep(Duration::from_millis(10)).await;
        }
        self.land.judge.count(format!("at-once:{}", began.elapsed().as_millis() / 100));
    }
}
