//! New sessions: with settings of their own, and asked for by clients that are killed while they wait for a slot.

use std::time::Duration;

use protocol::request::New;
use protocol::{Request, Response, Role, SessionRef};
use tokio::time::timeout;

use super::Actor;
use crate::actors::errands;
use crate::client::Client;

impl Actor {
    pub(super) async fn new_session(&mut self, name: String) {
        let plain = self.rng.per_mille(200);
        let agent = match plain {
            true if self.land.climate.has_quiet => "quiet",
            true => "plain",
            false => "sim",
        };
        let mut rng = self.land.rng(&format!("reuse {}", self.land.operations()));
        let reuse = self.land.suffers(&mut rng, self.land.climate.reuses);
        let new = New {
            name: Some(name.clone()),
            agent: Some(agent.to_owned()),
            wait_slot_ms: Some(self.rng.below(30_000)),
            ephemeral: self.lasting_ms("ephemeral").is_some(),
            reuse,
            ..self.own_settings(&name)
        };
        let mut rng = self.land.rng(&format!("withdrawal {}", self.land.operations()));
        let made = if self.land.suffers(&mut rng, self.land.climate.withdrawals) {
            self.withdraw(new, Duration::from_millis(rng.between(1, 10_000)), rng.per_mille(700)).await
        } else {
            self.change("new", Request::New(Box::new(new))).await
        };
        if let Some(Response::Session(made)) = made
            && !reuse
        {
            self.land.judge.created(made.session.id, &name);
        }
    }

    /// Returns a request with settings that differ from the pool's, perhaps.
    fn own_settings(&self, name: &str) -> New {
        let mut rng = self.land.rng(&format!("settings {}", self.land.operations()));
        if !self.land.suffers(&mut rng, self.land.climate.own_settings) {
            return New::default();
        }
        let update = errands::update(&mut rng, SessionRef(name.to_owned()));
        self.land.judge.update_asked(&update);
        New {
            restart: update.restart,
            max_restarts: update.max_restarts,
            idle_timeout_ms: update.idle_timeout_ms,
            max_runtime_ms: update.max_runtime_ms,
            ..New::default()
        }
    }

    /// Asks for a session as a client that is killed after this time unless it has the answer by then. `tells` if it
    /// withdraws the request, as one does that gets TERM.
    async fn withdraw(&mut self, new: New, after: Duration, tells: bool) -> Option<Response> {
        let op = self.land.operation();
        let mut client = Client::connect(&self.land.net, Role::Client, None).await?;
        let answer = timeout(after, client.call(Some(op.clone()), Request::New(Box::new(new)))).await;
        if let Ok(reply) = answer {
            self.told("new", "", &reply);
            return reply?.ok();
        }
        let how = if tells { "withdrawn" } else { "killed" };
        self.land.judge.count(format!("person:new {how}"));
        self.land.trace.tell(|| format!("who waits for a new session is {how}"));
        if tells {
            drop(self.once(Request::Withdraw(op)).await);
        }
        None
    }
}
