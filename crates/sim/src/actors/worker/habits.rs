//! Habits of some workers: they send heartbeats for long, start processes of their own, and give messages up or back.

use std::time::Duration;

use protocol::request::{Ack, ClaimRef, Disposition, Fail};
use protocol::worker::ClaimScope;
use protocol::{OsBytes, ProcId, Request, Tag};
use tokio::time::{Instant, sleep};

use super::Work;
use crate::judge::Asked;
use crate::rng::Rng;
use crate::world::machine::Kind;

/// Time between two heartbeats, and their maximum number: together they last longer than a lease.
const PAUSE: Duration = Duration::from_secs(5);
const BEATS: u64 = 12;

/// Chance that a handler waits for a device for a while, so that no signal ends it, per mille.
const DEVICE: u64 = 300;

/// Maximum time for which a handler outlives its host or its worker by itself, in milliseconds.
const LEFT_MS: u64 = 60_000;

impl Work<'_> {
    /// Returns the choices of a claim's worker, which change no others.
    pub(super) fn habits(&self, held: ClaimRef) -> Rng {
        self.land.rng(&format!("habits {} {}", self.process, held.token.n))
    }

    /// Works for long, and sends heartbeats for all that it holds, perhaps. `None` if the connection is lost; false if
    /// the claim is.
    pub(super) async fn keep(&mut self, claims: &[ClaimRef], since: Instant) -> Option<bool> {
        let land = self.land;
        let mut rng = self.habits(*claims.first()?);
        if !land.suffers(&mut rng, land.climate.heartbeats) {
            return Some(true);
        }
        for _ in 0..rng.between(1, BEATS) {
            if !self.beat(claims, since).await? {
                return Some(false);
            }
            sleep(PAUSE).await;
            if !land.machine.lives(self.process) {
                return None;
            }
        }
        Some(true)
    }

    /// Sends a heartbeat. `None` if the connection is lost; false if it is refused.
    pub(super) async fn beat(&mut self, held: &[ClaimRef], since: Instant) -> Option<bool> {
        let (land, sent) = (self.land, Instant::now());
        land.judge.beats(held, since);
        let reply = self.client.call(None, Request::Heartbeat(held.to_vec())).await;
        let is_taken = reply.as_ref().map(Result::is_ok);
        land.judge.beaten(held, sent, is_taken);
        is_taken
    }

    /// Starts a process that handles a claim, perhaps.
    pub(super) fn start_handler(&self, held: ClaimRef) -> Option<ProcId> {
        let land = self.land;
        let mut rng = land.rng(&format!("handler {} {}", self.process, held.token.n));
        if !land.suffers(&mut rng, land.climate.handlers) {
            return None;
        }
        let (tag, host) = match self.register.scope {
            ClaimScope::Host(tag) => (tag, Some(tag)),
            ClaimScope::Sessions(_) => (Tag::for_claim(held.token), None),
        };
        let handler = land.machine.start(Kind::Handler, Some(tag), rng.per_mille(land.climate.stubborn));
        land.judge.handles(held.id, held.token, handler, host);
        land.judge.count("worker:handler");
        // A session that tmux has lost counts as gone once its init and its program are, whatever else is left.
        let may_be_lost = land.climate.server_deaths + land.climate.respawns > 0;
        if land.suffers(&mut rng, DEVICE) && !(host.is_some() && may_be_lost) {
            land.machine.block(handler);
            let machine = land.machine.clone();
            land.later("device", rng.between(1000, 90_000), move || machine.release(handler));
        }
        // It ends by itself some time after its worker, if nobody ends it before.
        let machine = land.machine.clone();
        land.later("handler", 300_000 + rng.below(LEFT_MS), move || machine.kill(handler));
        Some(handler)
    }

    /// Returns a report of another kind than usual, perhaps: a message is given up or back, or has a result.
    pub(super) fn other_report(&self, held: ClaimRef) -> Option<Request> {
        let land = self.land;
        let mut rng = land.rng(&format!("verdict {} {}", self.process, held.token.n));
        if !land.suffers(&mut rng, land.climate.verdicts) {
            return None;
        }
        let fail = |reason: &str, then| Request::Fail(Fail { held, reason: reason.to_owned(), then });
        Some(match rng.below(3) {
            0 => {
                land.judge.asked(Asked::End(held.id));
                land.judge.count("worker:gives up");
                fail("it is wrong", Disposition::Dead)
            }
            1 => {
                land.judge.count("worker:gives back");
                fail("it is not begun", Disposition::GiveBack)
            }
            _ => Request::Ack(Ack { held, result: Some(OsBytes::from("worked")) }),
        })
    }

    /// Ends the handler of a claim whose work is done.
    pub(super) fn end_handler(&self, handler: Option<ProcId>) {
        if self.land.machine.lives(self.process) {
            handler.into_iter().for_each(|handler| self.land.machine.end(handler));
        }
    }
}
