//! Clients and generators: requests in, answers out, several at a time. A request that is decided within one
//! turn is answered by the engine itself, as soon as the turn is on disk; any other by a task.

use std::sync::Arc;

use protocol::{Call, ProcId, Refusal, Reply, Request, Role, frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::decide::queue;
use crate::engine::{Daemon, Turn, Work};
use crate::net::answer::answer_call;
use crate::net::connection::Connection;
use crate::verb::caller::Caller;
use crate::verb::{approve, dispatch, send};

/// Maximum number of calls in progress on a connection.
const CALLS_MAX: usize = 64;

/// Registers a client as a possible worker: its claims end with its connection.
pub(super) async fn register(daemon: &Arc<Daemon>, id: u64, process: Option<ProcId>) -> Result<(), Refusal> {
    let register = move |turn: &mut Turn<'_>| {
        let now = turn.now();
        turn.volatile.workers.connected(id, process, now);
    };
    daemon.engine.turn(register).await
}

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let places = Arc::new(Semaphore::new(CALLS_MAX));
    let caller = Caller {
        connection: connection.id,
        process: connection.process,
        is_generator: connection.hello.role == Role::Generator,
        outbox: connection.outbox.clone(),
    };
    let client = Client { daemon: Arc::clone(daemon), caller };
    let outbox = &connection.outbox;
    // Dropped with the connection, which ends the calls that only its peer waits for.
    let mut calls = JoinSet::new();
    while outbox.wait_for_space().await.is_ok() {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let call = match connection.reader.next().await {
            Ok(Some(payload)) => frame::decode::<Call>(&payload),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let call = match call {
            Ok(call) => call,
            Err(error) => {
                // No call has the id 0: the answer says why the connection ends.
                let why = Refusal::protocol(format!("not a request that poold knows: {error}"));
                drop(outbox.reply(0, Err(why)));
                return tracing::info!(%error, "a client was disconnected");
            }
        };
        if let Err(refusal) = call.request.check_bounds() {
            drop(outbox.reply(call.id, Err(refusal)));
            continue;
        }
        while calls.try_join_next().is_some() {}
        let Some((call, place)) = client.answer_in_turn(call, place).await else { continue };
        let client = client.clone();
        calls.spawn(async move {
            let Client { daemon, caller } = client;
            let id = call.id;
            let reply = dispatch::answer(&daemon, Some(&caller), call).await;
            // A peer that is gone needs no answer, and one that reads slowly waits for it.
            drop(caller.outbox.wait_for_space().await);
            drop(answer_call(&daemon, &caller.outbox, (id, reply)));
            drop(place);
        });
    }
}

/// A connection of a client.
#[derive(Clone)]
struct Client {
    daemon: Arc<Daemon>,
    caller: Caller,
}

impl Client {
    /// Answers a request that is decided within one turn. Gives any other call back, with its place.
    async fn answer_in_turn(
        &self,
        call: Call,
        place: OwnedSemaphorePermit,
    ) -> Option<(Call, OwnedSemaphorePermit)> {
        let (id, daemon, connection) = (call.id, Arc::clone(&self.daemon), self.caller.connection);
        match call.request {
            Request::Send(asked) => match send::send(&daemon, (call.op, call.lock), asked).await {
                Ok(decide) => self.submit(id, (place, "send-stored"), decide),
                Err(refusal) => drop(answer_call(&daemon, &self.caller.outbox, (id, Err(refusal)))),
            },
            Request::DecisionTaken { session, ask } => {
                self.submit(id, (place, "decision-taken"), move |turn| {
                    approve::decision_taken(turn, session, ask)
                });
            }
            Request::Heartbeat(held) => {
                self.submit(id, (place, "claim-kept"), move |turn| queue::heartbeat(turn, connection, &held));
            }
            Request::Ack(ack) => self.submit(id, (place, "ack-stored"), move |turn| {
                let now = turn.now();
                turn.volatile.workers.seen(connection, now);
                queue::ack(turn, ack)
            }),
            Request::Fail(fail) => self.submit(id, (place, "fail-stored"), move |turn| {
                let now = turn.now();
                turn.volatile.workers.seen(connection, now);
                queue::fail(turn, &daemon, &fail)
            }),
            request => return Some((Call { request, ..call }, place)),
        }
        None
    }

    /// Has the engine decide in its next turn, and answer once that is on disk. `point` is the crash point
    /// before the answer.
    fn submit(
        &self,
        id: u64,
        (place, point): (OwnedSemaphorePermit, &'static str),
        decide: impl FnOnce(&mut Turn<'_>) -> Reply + Send + 'static,
    ) {
        let outbox = self.caller.outbox.clone();
        let work: Work = Box::new(move |turn| {
            let reply = decide(turn);
            Box::new(move || {
                crate::crash::point(point);
                // A peer that is gone needs no answer.
                drop(outbox.reply(id, reply));
                drop(place);
            })
        });
        if let Err(refusal) = self.daemon.engine.submit(work) {
            drop(answer_call(&self.daemon, &self.caller.outbox, (id, Err(refusal))));
        }
    }
}
