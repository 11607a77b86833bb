//! Requests that a client repeats until it has the answer, even if the first answer is lost.

use std::time::Duration;

use protocol::{OpId, Reply, Request, Response, Role};
use tokio::time::{sleep, timeout};
use world::clock::Clock;

use super::{Actor, LostAnswer};
use crate::client::Client;
use crate::judge::Asked;

/// Attempts of a request before its client gives up.
const ATTEMPTS: u32 = 40;

/// Time for which the daemon remembers an operation at least.
const REMEMBERED: Duration = Duration::from_secs(600);

impl Actor {
    /// Makes a request again and again, until it is answered.
    pub(super) async fn repeat(&mut self, op: &OpId, request: Request) -> Option<Reply> {
        self.is_refused = false;
        for n in 1..=ATTEMPTS {
            self.attempts = n;
            if !self.land.judge.violations().is_empty() {
                return None;
            }
            let reply = self.attempt(Some(op.clone()), request.clone()).await;
            match reply {
                Some(reply) if !is_in_doubt(&reply) => {
                    self.check_repetition(op, &reply, &format!("{request:?}"));
                    self.is_refused = n == 1 && is_definite(&reply);
                    return Some(reply);
                }
                _ => {}
            }
            sleep(Duration::from_millis(self.rng.between(100, 2000))).await;
        }
        None
    }

    /// Makes a mutating request for something that the judge excuses, unless the request is refused.
    pub(super) async fn ask(
        &mut self,
        what: Asked,
        name: &'static str,
        request: Request,
    ) -> Option<Response> {
        self.land.judge.asked(what);
        let done = self.change(name, request).await;
        if self.is_refused {
            self.land.judge.refused(what);
        }
        done
    }

    /// Checks that a request that was carried out is neither refused nor carried out again when it is repeated.
    fn check_repetition(&mut self, op: &OpId, reply: &Reply, request: &str) {
        let timeline = self.land.judge.timeline();
        let lost = self.lost.take().filter(|lost| lost.op == *op && lost.timeline == timeline);
        let Some(LostAnswer { reply: Ok(first), at, booted, .. }) = lost else { return };
        // After a boot, only the wall clock tells how old an answer is.
        let clock = &self.land.clock;
        if clock.booted() != booted && clock.now().since(at) > REMEMBERED {
            return;
        }
        let is_same = match (&first, reply) {
            (Response::Sent(first), Ok(Response::Sent(second))) => first.message.id == second.message.id,
            // A message is removed with its session, or as the oldest of too many finished ones. The end of the run
            // shows whether it was.
            (Response::Sent(first), Err(refusal)) => {
                let (id, session) = (first.message.id, first.message.session);
                let climate = &self.land.climate;
                let may_be_removed = self.land.judge.is_removed(session)
                    || self.land.judge.is_purged(id)
                    || climate.expires()
                    || climate.finished_max == 1;
                self.land.judge.gone_as_told(id, session);
                refusal.code == protocol::ErrorCode::NotFound && may_be_removed
            }
            (_, reply) => reply.is_ok(),
        };
        if !is_same {
            self.land
                .judge
                .violated(format!("{request:.80} was answered {first:.80?}, and now {reply:.200?}"));
        }
    }

    pub(super) async fn once(&mut self, request: Request) -> Option<Reply> {
        self.attempt(None, request).await
    }

    async fn attempt(&mut self, op: Option<OpId>, request: Request) -> Option<Reply> {
        if self.client.is_none() {
            self.client = Client::connect(&self.land.net, Role::Client, None).await;
        }
        let shown = format!("{request:?}");
        // The daemon does not remember its answers to these. A repetition finds the effect of the first one, or does no
        // harm.
        let is_remembered =
            !matches!(request, Request::Lock(_) | Request::Compact | Request::ClearContext(_))
                && op.is_some();
        let loses = is_remembered && self.land.suffers(&mut self.rng, self.land.climate.lost_answers);
        let lock = self.lock.map(|(_, token)| token);
        let call = self.client.as_mut()?.call_under(op.clone(), lock, request);
        if loses {
            let after = Duration::from_millis(self.rng.below(1000));
            let answer = timeout(after, call).await.ok().flatten();
            self.land.judge.count(if answer.is_some() {
                "fault:answer-lost"
            } else {
                "fault:connection-lost"
            });
            self.client = None;
            if let Some((op, answer)) = op.zip(answer).filter(|(_, answer)| !is_in_doubt(answer)) {
                self.check_repetition(&op, &answer, &shown);
                let (timeline, clock) = (self.land.judge.timeline(), &self.land.clock);
                let (at, booted) = (clock.now(), clock.booted());
                self.lost = Some(LostAnswer { op, reply: answer, timeline, at, booted });
            }
            return None;
        }
        let reply = call.await;
        if reply.as_ref().is_some_and(is_in_doubt) {
            self.land.judge.check_stop(&shown);
        }
        if reply.is_none()
            && let Some(lost) = self.client.take()
            && lost.is_unanswered
        {
            self.land.judge.violated(format!("a request is not answered: {shown:.200}"));
        }
        reply
    }
}

/// True if the request was refused, and had no effect.
fn is_definite(reply: &Reply) -> bool {
    use protocol::ErrorCode::{Conflict, NotFound, Refused, Usage};
    let is_definite = |code| matches!(code, Conflict | NotFound | Refused | Usage);
    reply.as_ref().is_err_and(|refusal| is_definite(refusal.code))
}

/// True if the daemon stopped while it was at the request.
fn is_in_doubt(reply: &Reply) -> bool {
    reply.as_ref().is_err_and(|refusal| refusal.code == protocol::ErrorCode::Storage)
}
