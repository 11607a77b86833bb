//! Clients and generators: requests in, answers out, several at a time. What is decided within one turn
//! is answered by the engine itself, as soon as it is on disk.

use std::sync::Arc;

use protocol::{Call, ErrorCode, ProcId, Refusal, Reply, Request, Response, Role, frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::decide::idempotency;
use crate::decide::queue;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::engine::turn::Job;
use crate::host::outbox::Outbox;
use crate::net::connection::Connection;
use crate::verb::claim::Peer;
use crate::verb::{care, claim, dispatch, read};

/// Calls of one connection that may be under way.
const CALLS_MAX: usize = 64;

/// A client may claim: what it holds hangs on its connection.
pub(crate) async fn admit(daemon: &Arc<Daemon>, id: u64, process: Option<ProcId>) -> Result<(), Refusal> {
    let join = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        turn.volatile.workers.connected(id, process, now);
    };
    daemon.engine.turn(join).await
}

pub(crate) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let places = Arc::new(Semaphore::new(CALLS_MAX));
    let client = Client {
        daemon: Arc::clone(daemon),
        outbox: connection.outbox.clone(),
        id: connection.id,
        process: connection.process,
        role: connection.hello.role,
    };
    // Dropped with the connection: what only it waits for ends with it.
    let mut calls = JoinSet::new();
    while client.outbox.room().await.is_ok() {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let call = match connection.reader.next().await {
            Ok(Some(payload)) => frame::decode::<Call>(&payload),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let call = match call {
            Ok(call) => call,
            Err(error) => {
                // No call has this id: it says why the connection ends.
                let why =
                    Refusal::new(ErrorCode::Protocol, format!("not a request that poold knows: {error}"));
                drop(client.outbox.reply(0, Err(why)));
                return tracing::info!(%error, "a client was cut off");
            }
        };
        if let Err(refusal) = call.request.check_bounds() {
            drop(client.outbox.reply(call.id, Err(refusal)));
            continue;
        }
        while calls.try_join_next().is_some() {}
        let Some((call, place)) = client.at_once(call, place).await else { continue };
        let client = client.clone();
        calls.spawn(async move {
            let id = call.id;
            let reply = client.answer(call).await;
            // A client that left needs no answer, and one that does not read waits for it.
            drop(client.outbox.room().await);
            drop(client.outbox.reply(id, reply));
            drop(place);
        });
    }
}

/// One connection.
#[derive(Clone)]
struct Client {
    daemon: Arc<Daemon>,
    outbox: Outbox,
    id: u64,
    process: Option<ProcId>,
    role: Role,
}

impl Client {
    /// Has a call decided and answered within a turn, if it is one that can be; else gives it back.
    async fn at_once(&self, call: Call, place: OwnedSemaphorePermit) -> Option<(Call, OwnedSemaphorePermit)> {
        let (id, daemon, connection) = (call.id, Arc::clone(&self.daemon), self.id);
        match call.request {
            Request::Send(mut send) => {
                let ready = idempotency::usable(call.op).and_then(|op| Ok((op, queue::body(&mut send)?)));
                let lock = call.lock;
                match ready {
                    Ok((op, body)) => {
                        self.daemon.disk.refresh(body.bytes.len() as u64).await;
                        self.submit(id, (place, "send-stored"), move |turn| {
                            queue::send_under(turn, &daemon, (&op, lock), (&send, body))
                        });
                    }
                    Err(refusal) => drop(self.outbox.reply(id, Err(refusal))),
                }
            }
            // At once, as the hook leaves without waiting for an answer.
            Request::DecisionTaken { session, ask } => {
                self.submit(id, (place, "decision-taken"), move |turn| {
                    if let Some(taken) = turn.waiting.decisions.settle(session, ask) {
                        taken.send(()).ok();
                    }
                    Ok(Response::Done)
                });
            }
            Request::Heartbeat(held) => {
                self.submit(id, (place, "claim-kept"), move |turn| queue::heartbeat(turn, connection, &held));
            }
            Request::Ack(ack) => self.submit(id, (place, "ack-stored"), move |turn| {
                let now = turn.now();
                turn.volatile.workers.heard_from(connection, now);
                queue::ack(turn, ack)
            }),
            Request::Fail(fail) => self.submit(id, (place, "fail-stored"), move |turn| {
                let now = turn.now();
                turn.volatile.workers.heard_from(connection, now);
                queue::fail(turn, &daemon, &fail)
            }),
            request => return Some((Call { request, ..call }, place)),
        }
        None
    }

    fn submit(
        &self,
        id: u64,
        (place, point): (OwnedSemaphorePermit, &'static str),
        decide: impl FnOnce(&mut Turn<'_>) -> Reply + Send + 'static,
    ) {
        let outbox = self.outbox.clone();
        let job: Job = Box::new(move |turn| {
            let reply = decide(turn);
            Box::new(move || {
                crate::crash::point(point);
                // A client that left needs no answer.
                drop(outbox.reply(id, reply));
                drop(place);
            })
        });
        if let Err(refusal) = self.daemon.engine.submit(job) {
            drop(self.outbox.reply(id, Err(refusal)));
        }
    }

    async fn answer(&self, call: Call) -> Reply {
        match call.request {
            Request::Register(register) if self.role == Role::Generator => {
                claim::register(&self.daemon, self.peer(), register).await
            }
            Request::Claim(asked) => {
                let given = claim::claim(&self.daemon, self.peer(), call.op, asked).await;
                crate::crash::point("claim-given");
                given
            }
            Request::Lock(asked) => {
                crate::verb::lock::lock(&self.daemon, self.peer(), (call.op, call.lock), asked).await
            }
            Request::Export => care::export(&self.daemon, &self.outbox, call.id).await,
            Request::Messages(asked) => {
                read::some_messages(&self.daemon, asked, (&self.outbox, call.id)).await
            }
            Request::ListMessages(of) => read::messages(&self.daemon, of, (&self.outbox, call.id)).await,
            Request::Events(asked) => read::events(&self.daemon, asked, (&self.outbox, call.id)).await,
            request => dispatch::answer(&self.daemon, Call { request, ..call }).await,
        }
    }

    fn peer(&self) -> Peer {
        Peer { connection: self.id, process: self.process }
    }
}
