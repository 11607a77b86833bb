//! The handshake of a connection whose peer was checked when it was accepted.

use std::sync::Arc;

use protocol::aio::FrameReader;
use protocol::hello::HelloReply;
use protocol::{Hello, ProcId, Refusal, Welcome, frame, job};
use world::transport::{Incoming, Receiver, Sender};

use crate::engine::{BUILD, Daemon};
use crate::host::outbox::{self, Outbox};
use crate::host::shutdown_progress::Step;
use crate::net::connection::Connection;
use crate::net::registration::Registration;
use crate::net::role;
use crate::sense::exit_reports;

/// Answers the hello of a peer. Without a place, the hello is refused.
pub(super) async fn shake_hands(
    daemon: &Arc<Daemon>,
    id: u64,
    incoming: Incoming,
    has_place: bool,
) -> Option<Connection> {
    let Incoming { receiver, sender, pid, process } = incoming;
    let halves = (FrameReader::new(receiver), sender);
    if has_place { greet(daemon, id, (pid, process), halves).await } else { turn_away(halves).await }
}

/// The two directions of a connection.
type Halves = (FrameReader<Receiver>, Box<dyn Sender>);

/// Reads the first frame: a hello, or the nudge of an init, which is not answered.
async fn greet(
    daemon: &Arc<Daemon>,
    id: u64,
    (pid, process): (Option<u32>, Option<ProcId>),
    (mut reader, writer): Halves,
) -> Option<Connection> {
    let payload = match reader.next().await {
        Ok(payload) => payload?,
        Err(error) => {
            let refusal = Refusal::protocol(format!("not a tmux-pool frame: {error}"));
            refuse(&*writer, refusal).await;
            return None;
        }
    };
    if let Some(tag) = job::parse_nudge(&payload) {
        daemon.world.spawn("exit report", exit_reports::handle_nudge(Arc::clone(daemon), tag));
        return None;
    }
    let checked = frame::decode::<Hello>(&payload)
        .map_err(|e| Refusal::protocol(format!("not a tmux-pool hello: {e}")))
        .and_then(|hello| Ok((hello.check(daemon.paths.pool.as_str())?, hello)));
    let (version, hello) = match checked {
        Ok(checked) => checked,
        Err(refusal) => {
            refuse(&*writer, refusal).await;
            return None;
        }
    };
    let registration = Registration::new(daemon, id);
    if let Err(refusal) = role::register(daemon, id, &hello, (pid, process)).await {
        if !daemon.shutdown.has_begun(Step::Engine) {
            refuse(&*writer, refusal).await;
        }
        return None;
    }
    // The welcome is written by a task, so that requests sent along with the hello share the engine's turn
    // with it.
    let (outbox, writing) = Outbox::new(writer, welcome(Arc::clone(daemon), version));
    daemon.world.spawn("outbox", writing);
    Some(Connection { id, hello, pid, process, reader, outbox, registration })
}

/// Refuses a connection beyond the maximum. The hello is read first, so that the peer gets the answer.
async fn turn_away((mut reader, writer): Halves) -> Option<Connection> {
    if let Ok(Some(_)) = reader.next().await {
        let full = "poold has as many connections as it can hold; try again when some have ended";
        refuse(&*writer, Refusal::unavailable(full)).await;
    }
    None
}

async fn refuse(writer: &dyn Sender, refusal: Refusal) {
    tracing::info!(%refusal, "a hello was refused");
    let answer: HelloReply = Err(refusal);
    // The peer may be gone already.
    if let Ok(bytes) = frame::encode(&answer) {
        drop(outbox::send_all(writer, &bytes).await);
    }
}

/// Returns the frame that answers a hello; none if the engine has stopped.
async fn welcome(daemon: Arc<Daemon>, version: u16) -> Option<Vec<u8>> {
    let (epoch, seq) = daemon.engine.turn(|turn| (turn.pool().epoch(), turn.pool().seq())).await.ok()?;
    let welcome = Welcome { version, epoch, seq, build: BUILD.to_owned(), capabilities: Vec::new() };
    frame::encode(&HelloReply::Ok(welcome)).ok()
}
