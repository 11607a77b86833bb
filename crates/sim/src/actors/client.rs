//! Clients: create, send, end, park, lock, wait; each mutating request is repeated with its operation id until
//! it is answered.

mod attempt;
mod create;
mod inside;
mod late;
mod locks;
mod probe;
mod rest;

use std::time::Duration;

use protocol::request::{
    Adopt, Approve, Drain, Input, Kill, Park, Pin, Purge, Remove, Rename, Resolution, ResolveMessage,
    Restart, Restore, Send, Until, Wait,
};
use protocol::{
    InDoubt, MessageId, OpId, OsBytes, PROMPT, Refusal, Reply, Request, Response, SessionId, SessionRef,
    Timestamp, Token,
};
use tokio::time::{Instant, sleep};

use crate::actors::worker::{JOB, TASK};
use crate::actors::{errands, person};
use crate::client::Client;
use crate::judge::{self, Asked};
use crate::land::Land;
use crate::rng::Rng;
use crate::world::machine::Kind;

/// A client.
pub(crate) struct Actor {
    land: Land,
    name: String,
    rng: Rng,
    client: Option<Client>,
    sent: Vec<MessageId>,
    lost: Option<LostAnswer>,
    /// Attempts of the last request.
    attempts: u32,
    /// The lock inside of which it acts.
    lock: Option<(SessionId, Token)>,
    /// True if the last request that was repeated until its answer was refused each time.
    is_refused: bool,
}

/// An answer that the client is treated as not having received.
struct LostAnswer {
    op: OpId,
    reply: Reply,
    /// The timeline of the database that gave it.
    timeline: u64,
    at: Timestamp,
    /// Time of the boot before it.
    booted: Instant,
}

impl Actor {
    pub(crate) fn new(land: Land, name: &str) -> Self {
        let rng = land.rng(name);
        Self {
            land,
            name: name.to_owned(),
            rng,
            client: None,
            sent: Vec::new(),
            lost: None,
            attempts: 0,
            lock: None,
            is_refused: false,
        }
    }

    /// Acts so many times. Each action draws from a stream of its own, so that one that is left out changes none of
    /// their choices.
    pub(crate) async fn run(mut self, steps: u64) {
        for n in 0..steps {
            let part = format!("{}:{n}", self.name);
            self.rng = self.land.rng(&part);
            let pause = self.rng.below(self.land.climate.pause_ms);
            sleep(Duration::from_millis(pause)).await;
            if self.land.plan.has(&part) {
                self.act().await;
            }
        }
    }

    async fn act(&mut self) {
        let session = if self.land.climate.foreigners > 0 && self.rng.per_mille(150) {
            format!("f{}", self.rng.below(person::NAMES))
        } else {
            format!("s{}", self.rng.below(self.land.climate.names))
        };
        let to = SessionRef(session.clone());
        match self.rng.below(128) {
            rare @ 92.. => self.act_rarely(rare, to).await,
            0..15 => self.new_session(session).await,
            15..55 => self.prompt(to).await,
            // Only the clients' own sessions have workers.
            55..65 if session.starts_with('s') => self.job(to).await,
            55..65 => self.prompt(to).await,
            65..70 => self.kill(to).await,
            70..74 => {
                let (fresh, clear) = (self.rng.per_mille(200), self.rng.per_mille(200));
                let wait_slot_ms = Some(10_000);
                let restart = Restart { session: to, grace_ms: Some(1000), fresh, clear, wait_slot_ms };
                self.change("restart", Request::Restart(restart)).await;
            }
            74..77 => {
                if let Some(Ok(Response::Session(found))) = self.once(Request::Show(to.clone())).await {
                    found.session.tag().into_iter().for_each(|tag| self.land.judge.park_asked(tag));
                }
                let park = Park { session: to, force: true, grace_ms: Some(1000) };
                self.change("park", Request::Park(park)).await;
            }
            77..80 => {
                let restore = Restore { session: Some(to), wait_slot_ms: Some(10_000) };
                self.change("restore", Request::Restore(restore)).await;
            }
            80..82 => self.remove(to).await,
            82..84 => {
                let deadline_ms = self.rng.per_mille(500).then_some(2000);
                self.drain(to, deadline_ms).await;
            }
            84..86 => {
                let pinned = self.rng.per_mille(500);
                self.change("pin", Request::Pin(Pin { session: to, pinned })).await;
            }
            86..89 => self.cancel_or_retry().await,
            _ => self.hold_lock(to).await,
        }
    }

    async fn act_rarely(&mut self, action: u64, to: SessionRef) {
        match action {
            92 | 112..114 => {
                let line = format!("{}{}\r", judge::INPUT, self.land.unique());
                let input = Input { session: to, bytes: OsBytes(line.into_bytes()) };
                self.change("input", Request::Input(input)).await;
            }
            93 => {
                let asks = self.asking().await.unwrap_or(to);
                let deny = self.rng.per_mille(300);
                let approve = Approve { session: asks, deny, ask: None, reason: None, answers: Vec::new() };
                self.change("approve", Request::Approve(approve)).await;
            }
            94 => {
                let name = format!("s{}", self.rng.below(self.land.climate.names));
                self.change("rename", Request::Rename(Rename { session: to, name })).await;
            }
            95 => {
                self.change("reap", Request::Reap { force: false }).await;
            }
            96 => {
                let until = vec![Until::QueueEmpty];
                let wait = Wait { session: to, until, timeout_ms: Some(self.rng.between(1, 20_000)) };
                drop(self.once(Request::Wait(wait)).await);
            }
            97..105 => {
                let (name, mut request) = errands::change(&mut self.rng, to);
                if let Request::Update(update) = &mut request {
                    update.ttl_ms = self.lasting_ms("ttl");
                    self.land.judge.update_asked(update);
                }
                self.change(name, request).await;
            }
            105 => self.purge(to).await,
            106..110 | 120..122 => {
                let target = format!("f{}", self.rng.below(person::NAMES));
                let adopt = Adopt { target, workspace: None, replace_pipe: false };
                self.land.judge.adoption_asked();
                self.change("adopt", Request::Adopt(adopt)).await;
            }
            122 => drop(self.change("dismiss", Request::Dismiss(to)).await),
            123 => drop(self.change("clear", Request::Clear(to)).await),
            124..128 => {
                let deadline_ms = Some(self.rng.between(1, 2000));
                self.drain(to, deadline_ms).await;
            }
            110..112 => {
                let question = errands::question(&mut self.rng, to, &self.sent);
                drop(self.once(question).await);
            }
            _ => self.special_prompt(to).await,
        }
    }

    async fn drain(&mut self, session: SessionRef, deadline_ms: Option<u64>) {
        self.change("drain", Request::Drain(Drain { session, deadline_ms })).await;
    }

    /// Returns how long a session is to be kept after its end, if that is to be short. `what` names the choice, which
    /// changes no others.
    fn lasting_ms(&self, what: &str) -> Option<u64> {
        let mut rng = self.land.rng(&format!("{what} {}", self.land.operations()));
        self.land
            .suffers(&mut rng, self.land.climate.expiry)
            .then(|| rng.between(1, 10 * self.land.climate.pause_ms))
    }

    async fn prompt(&mut self, session: SessionRef) {
        let body = format!("prompt {}", self.number());
        let wake = self.rng.per_mille(600);
        let sent = self.sent.len();
        self.send(session, body, PROMPT, wake).await;
        if self.sent.len() > sent && self.rng.per_mille(self.land.climate.waits) {
            self.await_rest().await;
        }
    }

    /// Returns a number of which no other one is the beginning.
    fn number(&self) -> String {
        format!("{:06}", self.land.unique())
    }

    async fn job(&mut self, session: SessionRef) {
        let kind = if self.land.climate.has_host && self.rng.per_mille(500) { TASK } else { JOB };
        let body = format!("{kind} {}", self.number());
        self.send(session, body, kind, false).await;
    }

    /// Sends a prompt with a time limit, a priority, or another treatment of doubt. Its body says so, for the judge.
    async fn special_prompt(&mut self, session: SessionRef) {
        let n = self.number();
        let mut send =
            Send { wake: self.rng.per_mille(600), ..errands::message(session, String::new(), PROMPT) };
        let special = match self.rng.below(4) {
            0 => {
                send.ttl_ms = Some(self.rng.between(1, 30_000));
                judge::MORTAL
            }
            1 => {
                send.priority = if self.rng.per_mille(500) { 1 } else { -1 };
                judge::UNORDERED
            }
            2 => {
                send.in_doubt = Some(InDoubt::Dead);
                judge::AT_MOST_ONCE
            }
            _ => {
                send.in_doubt = Some(InDoubt::Retry);
                judge::AT_LEAST_ONCE
            }
        };
        let body = format!("prompt {n}{special}");
        self.submit(Send { body: OsBytes(body.clone().into_bytes()), ..send }, body).await;
    }

    async fn send(&mut self, session: SessionRef, body: String, kind: &str, wake: bool) {
        let key = self.rng.per_mille(300).then(|| body.clone());
        self.submit(Send { key, wake, ..errands::message(session, body.clone(), kind) }, body).await;
    }

    async fn submit(&mut self, send: Send, body: String) {
        let (op, ttl_ms, began, wakes) = (self.land.operation(), send.ttl_ms, Instant::now(), send.wake);
        let reply = self.repeat(&op, Request::Send(send)).await;
        self.told("send", &body, &reply);
        if let Some(Ok(Response::Sent(sent))) = reply {
            self.land.judge.acknowledged(sent.message.id, sent.message.session, &body);
            wakes.then(|| self.land.judge.wakes(sent.message.id));
            self.check_disk(began);
            ttl_ms.into_iter().for_each(|ms| self.land.judge.mortal(&body, Duration::from_millis(ms)));
            self.sent.push(sent.message.id);
        }
    }

    /// Ends a session. What is said to have ended must have.
    async fn kill(&mut self, session: SessionRef) {
        let Some(Ok(Response::Session(found))) = self.once(Request::Show(session)).await else { return };
        let id = found.session.id;
        // Only the current incarnation is checked: remains of earlier ones are found later, by their marker.
        let running = found.session.incarnation.map(|run| run.tag);
        let (op, locks) = (self.land.operation(), self.land.judge.held_locks());
        let kill = Request::Kill(Kill { session: id.into(), grace_ms: Some(1000) });
        let reply = self.repeat(&op, kill).await;
        self.told("kill", "", &reply);
        self.check_outside(("kill", &reply), &locks);
        let is_done = matches!(reply, Some(Ok(_)));
        let living = self.land.machine.living();
        let is_program = |kind| matches!(kind, Kind::Agent | Kind::Foreign);
        if let Some(left) =
            living.iter().find(|left| is_program(left.kind) && left.tag.is_some() && left.tag == running)
            && is_done
            && running.is_some_and(|tag| !self.land.judge.is_forgotten(tag))
        {
            self.land.judge.violated(format!("P3: {id} is said to be killed, and {} lives", left.id));
        }
    }

    async fn remove(&mut self, session: SessionRef) {
        if let Some(Ok(Response::Session(found))) = self.once(Request::Show(session.clone())).await {
            let id = found.session.id;
            let session = SessionRef::from(id);
            let remove = Remove { session, force: true, ..Remove::default() };
            if self.ask(Asked::Removal(id), "remove", Request::Remove(remove)).await.is_some() {
                self.land.judge.gone(id);
            }
        }
    }

    async fn cancel_or_retry(&mut self) {
        let Some(id) = self.rng.pick(&self.sent).copied() else { return };
        match self.rng.below(3) {
            0 => {
                self.land.judge.taken_back(id);
                let is_done = self.ask(Asked::End(id), "cancel", Request::Cancel(id)).await.is_some();
                self.land.judge.taken_back(id);
                if is_done {
                    self.land.judge.withdrawn(id);
                }
            }
            1 => {
                self.ask(Asked::Retry(id), "retry", Request::Retry(id)).await;
            }
            _ => {
                let resolve = ResolveMessage { id, resolution: Resolution::Dead };
                self.ask(Asked::End(id), "resolve", Request::ResolveMessage(resolve)).await;
            }
        }
    }

    /// Returns a session that asks for a permission.
    async fn asking(&mut self) -> Option<SessionRef> {
        let Some(Ok(Response::Inbox(items))) = self.once(Request::Inbox).await else { return None };
        items.iter().find(|item| item.kind == "permission").map(|item| item.session.into())
    }

    /// Removes the record of one of its messages that has ended.
    async fn purge(&mut self, session: SessionRef) {
        let Some(id) = self.rng.pick(&self.sent).copied() else { return };
        let purge = Purge { session, ids: vec![id], states: Vec::new(), older_ms: 0 };
        self.ask(Asked::Purge(id), "purge", Request::Purge(purge)).await;
    }

    /// Makes a mutating request, and tells its outcome. Returns the answer of one that was done.
    async fn change(&mut self, name: &'static str, request: Request) -> Option<Response> {
        let (op, locks) = (self.land.operation(), self.land.judge.held_locks());
        let reply = self.repeat(&op, request).await;
        self.told(name, "", &reply);
        self.check_outside((name, &reply), &locks);
        reply?.ok()
    }

    fn told(&self, name: &str, what: &str, reply: &Option<Reply>) {
        let outcome = match reply {
            None => "unanswered".to_owned(),
            Some(Ok(_)) => "done".to_owned(),
            Some(Err(Refusal { code, .. })) => format!("{code:?}"),
        };
        self.land.judge.count(format!("{name}:{outcome}"));
        if let Some(Err(refusal)) = reply.as_ref().filter(|_| name != "send" && name != "clear-context") {
            self.check_refusal(name, refusal);
        }
        if name == "send" && self.attempts == 1 && reply.as_ref().is_some_and(Result::is_err) {
            self.land.judge.text_refused(what);
        }
        if let (Some(lock), Some(Err(refusal))) = (self.lock, reply) {
            self.land.judge.check_inside(lock, refusal);
        }
        self.land.trace.tell(|| match reply {
            // The directory of a run has another name each time.
            Some(Err(refusal)) => {
                let dir = self.land.paths.state.display().to_string();
                format!("{name} {what}: {}", refusal.to_string().replace(&dir, "STATE"))
            }
            _ => format!("{name} {what}: {outcome}"),
        });
    }
}
