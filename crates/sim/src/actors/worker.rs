//! A worker: claims messages, and reports each processed or failed; sometimes it dies, or forgets to report. One
//! that is the host of a worker of the pool ends once nothing has come for a while.

use std::time::Duration;

use protocol::request::{Ack, Claim, ClaimRef, Disposition, Fail, Register};
use protocol::worker::ClaimScope;
use protocol::{ProcId, Request, Response, Role, SessionRef, Tag};
use tokio::time::sleep;

use crate::client::Client;
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
    let scope = ClaimScope::from(SessionRef(session));
    let register = Register { scope, kinds: vec![JOB.to_owned()] };
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
    work_on(land, client, register, rng, process).await.unwrap_or(End::Lost)
}

/// Works. `None` if the connection is lost.
async fn work_on(
    land: &Land,
    mut client: Client,
    register: &Register,
    rng: &mut Rng,
    process: ProcId,
) -> Option<End> {
    client.call(None, Request::Register(register.clone())).await?.ok()?;
    let is_host = matches!(register.scope, ClaimScope::Host(_));
    while land.machine.lives(process) && !land.machine.is_hung_up(process) {
        let claim = Claim {
            scope: register.scope.clone(),
            kinds: register.kinds.clone(),
            max: 4,
            lease_ms: Some(20_000),
            wait_ms: if is_host { IDLE_END_MS } else { WAIT_MS },
        };
        let Response::Claimed(claimed) =
            client.call(Some(land.operation()), Request::Claim(claim)).await?.ok()?
        else {
            return None;
        };
        let held = |claimed: protocol::message::Claimed| {
            Some(ClaimRef { id: claimed.message.id, token: claimed.message.status.token? })
        };
        let claims: Vec<ClaimRef> = claimed.into_iter().filter_map(held).collect();
        if claims.is_empty() && is_host {
            return Some(End::Idle);
        }
        for held in &claims {
            land.judge.claimed((held.id, held.token), process, |other| land.machine.lives(other));
        }
        for held in claims {
            sleep(Duration::from_millis(rng.between(1, 3000))).await;
            if !land.heals() && rng.per_mille(30) {
                // It dies at work.
                return Some(End::Died);
            }
            if !land.heals() && rng.per_mille(20) {
                // It hangs, past its lease.
                sleep(Duration::from_secs(60)).await;
            }
            land.judge.reported(held.id, held.token);
            let request = match rng.below(10) {
                0 if !land.heals() => {
                    Request::Fail(Fail { held, reason: "it failed".to_owned(), then: Disposition::Retry })
                }
                1 if !land.heals() => Request::Fail(Fail {
                    held,
                    reason: "later".to_owned(),
                    then: Disposition::Later(Some(50)),
                }),
                _ => Request::Ack(Ack { held, result: None }),
            };
            let (is_ack, repeated) = (matches!(request, Request::Ack(_)), request.clone());
            let reply = match client.call(None, request.clone()).await {
                Some(reply) => reply,
                None => {
                    client = reconnect(land, register, process).await?;
                    client.call(None, request).await?
                }
            };
            if is_ack && reply.is_ok() {
                land.judge.processed(held.id, held.token);
            }
            if !is_ack && land.suffers(rng, land.climate.late_reports) {
                // It repeats its report as if the answer had been lost. Another worker may have the message by now.
                land.judge.count("fault:late-report");
                sleep(Duration::from_millis(rng.between(1, 5000))).await;
                client.call(None, repeated).await?.ok();
            }
        }
    }
    Some(End::Died)
}

/// Connects the same worker again after its connection was lost, to repeat its report.
async fn reconnect(land: &Land, register: &Register, process: ProcId) -> Option<Client> {
    for _ in 0..RECONNECTS {
        sleep(RECONNECT_PAUSE).await;
        if let Some(mut client) = Client::connect(&land.net, Role::Generator, Some(process)).await
            && let Some(Ok(_)) = client.call(None, Request::Register(register.clone())).await
        {
            return Some(client);
        }
    }
    None
}
