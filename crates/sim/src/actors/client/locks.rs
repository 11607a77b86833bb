//! Clients that hold locks: they give them back, or are killed.

use std::time::Duration;

use protocol::request::Lock;
use protocol::{ProcId, Request, Response, Role, SessionRef, Token};
use tokio::time::{Instant, sleep};

use super::Actor;
use crate::client::Client;
use crate::world::machine::Kind;

/// Time by which a lease may have begun before its client knows of it.
const LEASE_MARGIN: Duration = Duration::from_secs(2);

/// Lease of a lock whose holder is killed: the lock comes free long before.
const LONG_LEASE_MS: u64 = 120_000;

/// Time within which the lock of a dead holder comes free while the pool answers.
const FREE_WITHIN: Duration = Duration::from_secs(3);

impl Actor {
    /// Holds a lock for a while.
    pub(super) async fn hold_lock(&mut self, session: SessionRef) {
        if self.die_with_lock(session.clone()).await {
            return;
        }
        let forced = self.rng.per_mille(100);
        let lock = Lock {
            session,
            purpose: "sim".to_owned(),
            wait_ms: Some(self.rng.below(5000)),
            lease_ms: Some(10_000),
            force: forced,
        };
        if forced {
            self.land.judge.forces_lock();
        }
        let op = self.land.operation();
        let reply = self.repeat(&op, Request::Lock(lock)).await;
        if forced {
            self.land.judge.has_forced_lock();
        }
        let Some(Ok(Response::Locked(locked))) = reply else { return };
        let lease = Duration::from_millis(locked.lease_ms);
        self.land.judge.locked(locked.session, locked.token, lease.saturating_sub(LEASE_MARGIN), forced);
        let mut rng = self.land.rng(&format!("inside {}", self.land.operations()));
        let acts = self.land.suffers(&mut rng, self.land.climate.inside);
        if acts {
            self.act_inside((locked.session, locked.token), &mut rng).await;
        }
        sleep(Duration::from_millis(self.rng.below(8000))).await;
        if self.rng.per_mille(300) {
            let renew = Request::RenewLock { session: locked.session, token: locked.token };
            drop(self.once(renew).await);
            sleep(Duration::from_millis(self.rng.below(1000))).await;
        }
        self.land.judge.unlocked(locked.session, locked.token);
        let timeline = self.land.judge.timeline();
        let unlock = Request::Unlock { session: locked.session, token: locked.token };
        let is_given_back = matches!(self.once(unlock).await, Some(Ok(_)));
        if acts && is_given_back {
            self.act_too_late((locked.session, locked.token), timeline, &mut rng).await;
        }
    }

    /// Lets a process of its own take a lock, and kills it. True if it did.
    async fn die_with_lock(&mut self, session: SessionRef) -> bool {
        let land = self.land.clone();
        let mut rng = land.rng(&format!("holder {}", land.operations()));
        if !land.suffers(&mut rng, land.climate.dying_holders) {
            return false;
        }
        let process = land.machine.start(Kind::Client, None, false);
        let token = self.lock_as(process, session.clone()).await;
        sleep(Duration::from_millis(rng.below(3000))).await;
        land.trace.tell(|| format!("{process}, which holds a lock: {}, is killed", token.is_some()));
        land.machine.kill(process);
        if let Some(token) = token {
            land.judge.count("person:dead holder");
            self.check_free(session, token).await;
        }
        true
    }

    /// Takes a lock over a connection of this process, which is lost then. Returns its token.
    async fn lock_as(&mut self, process: ProcId, session: SessionRef) -> Option<Token> {
        let mut client = Client::connect(&self.land.net, Role::Client, Some(process)).await?;
        let (purpose, wait_ms) = ("sim".to_owned(), Some(1000));
        let lock = Lock { session, purpose, wait_ms, lease_ms: Some(LONG_LEASE_MS), force: false };
        match client.call(Some(self.land.operation()), Request::Lock(lock)).await? {
            Ok(Response::Locked(locked)) => Some(locked.token),
            _ => None,
        }
    }

    /// Checks that the lock of a dead holder comes free soon: two answers of the pool, some seconds apart, do not both
    /// show it.
    async fn check_free(&mut self, session: SessionRef, token: Token) {
        if !self.shows_lock(session.clone(), token).await {
            return;
        }
        let seen = Instant::now();
        sleep(FREE_WITHIN).await;
        let is_calm = !self.land.judge.stood_still_within(FREE_WITHIN);
        if self.shows_lock(session.clone(), token).await && is_calm && seen.elapsed() < 2 * FREE_WITHIN {
            self.land.judge.violated(format!("L6: the lock of {session} is still that of a dead holder"));
        }
    }

    async fn shows_lock(&mut self, session: SessionRef, token: Token) -> bool {
        match self.once(Request::Show(session)).await {
            Some(Ok(Response::Session(found))) => found.session.lock.is_some_and(|lock| lock.token == token),
            _ => false,
        }
    }
}
