//! Clients: requests in, answers out, several at a time.

use std::sync::Arc;

use protocol::{Call, ErrorCode, Refusal, frame};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::conn::Connection;
use crate::context::Daemon;
use crate::verb;

/// Calls of one connection that may be under way.
const CALLS_MAX: usize = 64;

pub(super) async fn serve(daemon: &Arc<Daemon>, mut connection: Connection) {
    let places = Arc::new(Semaphore::new(CALLS_MAX));
    // Dropped with the connection: what only it waits for ends with it.
    let mut calls = JoinSet::new();
    while !connection.outbox.is_closed() {
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
                drop(connection.outbox.reply(0, Err(why)).await);
                return tracing::info!(%error, "a client was cut off");
            }
        };
        while calls.try_join_next().is_some() {}
        let (daemon, outbox) = (Arc::clone(daemon), connection.outbox.clone());
        calls.spawn(async move {
            let id = call.id;
            let reply = verb::answer(&daemon, call).await;
            // A client that left needs no answer.
            drop(outbox.reply(id, reply).await);
            drop(place);
        });
    }
}
