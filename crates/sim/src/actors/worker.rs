//! A worker: claims messages, and reports each processed or failed; sometimes it dies, or forgets to report. One
//! that is the host of a worker of the pool ends once nothing has come for a while.

mod habits;

use std::time::Duration;

use protocol::request::{Ack, Claim, ClaimRef, Disposition, Fail, Register};
use protocol::worker::{ClaimScope, Selection};
use protocol::{ProcId, Request, Response, Role, SessionRef, Tag};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::judge::LEASE;
use crate::land::Land;
use crate::rng::Rng;
use crate::world::machine::Kind;

/// The kind of messages that workers process, and of those that the pool's own worker processes.
pub(crate) const JOB: &str = "job";
pub(crate) const TASK: &str = "task";

/// Waiting time of a claim, and of a host's, which ends after it.
const WAIT_MS: u64 = 30_000;
const IDLE_END_MS: u64 = 5000;

/// Attempts to connect again after a connection was lost, and the pause before each.
const RECONNECTS: u32 = 20;
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// The end of a worker's work.
enum End {
    /// Nothing came for a while.
    Idle,
    /// It died, or was asked to end.
    Died,
    /// The connection was lost, or the pool refused it.
    Lost,
}

/// Works on messages of a session, for ever.
pub(crate) async fn run(land: Land, session: String) {
    let mut rng = land.rng(&format!("worker {session} {}", land.unique()));
    let scope = scope(&land, session);
    // In a climate in which handlers may outlive the pool's own worker, this worker takes that worker's kind as well,
    // so that a message that is given out too early is noticed.
    let takes_tasks = land.climate.has_host && land.climate.handlers > 0;
    let kinds = [JOB, TASK].into_iter().filter(|kind| *kind == JOB || takes_tasks);
    let register = Register { scope, kinds: kinds.map(str::to_owned).collect() };
    loop {
        let process = land.machine.start(Kind::Worker, None, false);
        if let Some(client) = Client::connect(&land.net, Role::Generator, Some(process)).await {
            work(&land, client, &register, &mut rng, process).await;
        }
        land.machine.end(process);
        // Often the session does not exist.
        sleep(Duration::from_millis(rng.between(500, 15_000))).await;
    }
}

/// Returns the sessions that a worker works: this one, and perhaps another.
fn scope(land: &Land, session: String) -> ClaimScope {
    let mut rng = land.rng(&format!("several {session} {}", land.operations()));
    if !land.suffers(&mut rng, land.climate.several) {
        return ClaimScope::from(SessionRef(session));
    }
    let other = SessionRef(format!("s{}", rng.below(land.climate.names)));
    ClaimScope::Sessions(Selection::Named(vec![SessionRef(session), other]))
}

/// Works as the host of a worker of the pool. Returns its exit code.
pub(crate) async fn host(land: &Land, tag: Tag, process: ProcId) -> i32 {
    let mut rng = land.rng(&format!("host {tag}"));
    let register = Register { scope: ClaimScope::Host(tag), kinds: Vec::new() };
    loop {
        if let Some(client) = Client::connect(&land.net, Role::Generator, Some(process)).await {
            match work(land, client, &register, &mut rng, process).await {
                End::Idle => return 0,
                End::Died => return 1,
                End::Lost => {}
            }
        }
        sleep(Duration::from_millis(rng.between(100, 1000))).await;
    }
}

async fn work(land: &Land, client: Client, register: &Register, rng: &mut Rng, process: ProcId) -> End {
    let is_host = matches!(register.scope, ClaimScope::Host(_));
    let is_casual = !is_host && is_casual(land, &process.to_string());
    let mut work = Work { land, register, process, is_casual, client };
    let end = work.work_on(rng).await.unwrap_or(End::Lost);
    land.judge.waits(process, false);
    end
}

/// True if a worker connects without registering.
fn is_casual(land: &Land, rng_of: &str) -> bool {
    let mut rng = land.rng(&format!("casual {rng_of}"));
    land.suffers(&mut rng, land.climate.casual)
}

/// The work of a process over one connection.
struct Work<'a> {
    land: &'a Land,
    register: &'a Register,
    process: ProcId,
    /// True if it does not register: its messages go to others as soon as it is silent.
    is_casual: bool,
    client: Client,
}

impl Work<'_> {
    /// Works. `None` if the connection is lost.
    async fn work_on(&mut self, rng: &mut Rng) -> Option<End> {
        if !self.is_casual {
            self.client.call(None, Request::Register(self.register.clone())).await?.ok()?;
        }
        let (land, process) = (self.land, self.process);
        let is_host = matches!(self.register.scope, ClaimScope::Host(_));
        while land.machine.lives(process) && !land.machine.is_hung_up(process) {
            let since = Instant::now();
            let claims = self.claim(is_host).await?;
            if claims.is_empty() && is_host {
                return Some(End::Idle);
            }
            for held in &claims {
                let is_alive = |other| land.machine.lives(other);
                land.judge.claimed((held.id, held.token), process, self.is_casual, is_alive);
            }
            for n in 0..claims.len() {
                if let Some(end) = self.handle(&claims[n..], since, rng).await? {
                    return Some(end);
                }
            }
        }
        Some(End::Died)
    }

    /// Waits for messages, and claims them.
    async fn claim(&mut self, is_host: bool) -> Option<Vec<ClaimRef>> {
        let claim = Claim {
            scope: self.register.scope.clone(),
            kinds: self.register.kinds.clone(),
            max: 4,
            lease_ms: Some(protocol::millis(LEASE)),
            wait_ms: if is_host { IDLE_END_MS } else { WAIT_MS },
        };
        self.land.judge.waits(self.process, true);
        let reply = self.client.call(Some(self.land.operation()), Request::Claim(claim)).await;
        self.land.judge.waits(self.process, false);
        let Response::Claimed(claimed) = reply?.ok()? else { return None };
        claimed.iter().for_each(|claimed| self.land.judge.handed_out(&claimed.body.0));
        let held = |claimed: protocol::message::Claimed| {
            Some(ClaimRef { id: claimed.message.id, token: claimed.message.status.token? })
        };
        Some(claimed.into_iter().filter_map(held).collect())
    }

    /// Handles the first of these claims. Returns the end of the work, if it ends with that.
    async fn handle(&mut self, claims: &[ClaimRef], since: Instant, rng: &mut Rng) -> Option<Option<End>> {
        let (land, held) = (self.land, *claims.first()?);
        let handler = self.start_handler(held);
        if !self.keep(claims, since).await? {
            self.end_handler(handler);
            return Some(None);
        }
        sleep(Duration::from_millis(rng.between(1, 3000))).await;
        // Ends of workers whose handlers may live on are what others have to wait for.
        let (dies, hangs) = if handler.is_some() { (150, 200) } else { (30, 20) };
        if !land.heals() && rng.per_mille(dies) {
            // It dies at work.
            return Some(Some(End::Died));
        }
        if !land.heals() && rng.per_mille(hangs) {
            // It hangs, past its lease.
            sleep(Duration::from_secs(60)).await;
            self.beat_late(held, since).await?;
        }
        self.end_handler(handler);
        self.report(held, rng).await?;
        Some(None)
    }

    /// Sends a heartbeat after a hang, perhaps.
    async fn beat_late(&mut self, held: ClaimRef, since: Instant) -> Option<()> {
        let is_late = self.land.climate.heartbeats + self.land.climate.casual > 0;
        if is_late && self.land.machine.lives(self.process) {
            self.beat(&[held], since).await?;
        }
        Some(())
    }

    /// Reports a claim processed or failed.
    async fn report(&mut self, held: ClaimRef, rng: &mut Rng) -> Option<()> {
        let land = self.land;
        land.judge.reported(held.id, held.token);
        let request = match rng.below(10) {
            0 if !land.heals() => {
                Request::Fail(Fail { held, reason: "it failed".to_owned(), then: Disposition::Retry })
            }
            1 if !land.heals() => {
                Request::Fail(Fail { held, reason: "later".to_owned(), then: Disposition::Later(Some(50)) })
            }
            _ => Request::Ack(Ack { held, result: None }),
        };
        let request = self.other_report(held).unwrap_or(request);
        let (is_ack, repeated) = (matches!(request, Request::Ack(_)), request.clone());
        let reply = match self.client.call(None, request.clone()).await {
            Some(reply) => reply,
            None => {
                self.client = self.reconnect().await?;
                self.client.call(None, request).await?
            }
        };
        if let (Request::Ack(Ack { result, .. }), Ok(Response::Message(found))) = (&repeated, &reply)
            && found.status.result != *result
        {
            let (id, kept) = (held.id, &found.status.result);
            land.judge
                .violated(format!("Q5: the result of message {id} is {kept:?}, and {result:?} was told"));
        }
        if is_ack && reply.is_ok() {
            land.judge.processed(held.id, held.token);
        }
        if !is_ack && land.suffers(rng, land.climate.late_reports) {
            // It repeats its report as if the answer had been lost. Another worker may have the message by now.
            land.judge.count("fault:late-report");
            sleep(Duration::from_millis(rng.between(1, 5000))).await;
            self.client.call(None, repeated).await?.ok();
        }
        Some(())
    }

    /// Connects the same worker again after its connection was lost, to repeat its report.
    async fn reconnect(&mut self) -> Option<Client> {
        for _ in 0..RECONNECTS {
            sleep(RECONNECT_PAUSE).await;
            let Some(mut client) = Client::connect(&self.land.net, Role::Generator, Some(self.process)).await
            else {
                continue;
            };
            let register = Request::Register(self.register.clone());
            if self.is_casual || matches!(client.call(None, register).await, Some(Ok(_))) {
                return Some(client);
            }
        }
        None
    }
}
