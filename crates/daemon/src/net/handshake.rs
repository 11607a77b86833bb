//! The handshake of a connection: its peer is checked before a byte is read, then its hello.

#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::sync::Arc;

use interprocess::local_socket::tokio::Stream;
use protocol::aio::{FrameReader, ReadHalf, WriteHalf, check_peer, split, write_frame};
use protocol::hello::HelloReply;
use protocol::{ErrorCode, Hello, ProcId, Refusal, Welcome, frame, job};
use tokio::net::UnixStream;

use crate::engine::daemon::{BUILD, Daemon};
use crate::host::outbox::Outbox;
use crate::net::connection::Connection;
use crate::net::registration::Registration;
use crate::net::role;
use crate::sense::exit_reports;

/// Checks the peer, and answers its hello. Without a place, the hello is refused.
pub(super) async fn shake_hands(
    daemon: &Arc<Daemon>,
    id: u64,
    stream: Stream,
    has_place: bool,
) -> Option<Connection> {
    match check_peer(&stream) {
        Ok(peer) => {
            let (reader, writer) = split(stream);
            let process = peer.pid.and_then(|pid| process_of(writer.as_ref(), pid));
            let halves = (FrameReader::new(reader), writer);
            if has_place {
                greet(daemon, id, (peer.pid, process), halves).await
            } else {
                turn_away(halves).await
            }
        }
        Err(error) => {
            tracing::warn!(%error, "a connection was refused");
            None
        }
    }
}

/// Identifies the peer's process. A handle of the kernel proves that its process id was not reused; without
/// one, the process is identified by its id alone.
fn process_of(
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "there are no handles"))]
    stream: &UnixStream,
    pid: u32,
) -> Option<ProcId> {
    #[cfg(target_os = "linux")]
    let handle = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerPidfd).ok();
    let process = process::identity::identify(pid).ok().flatten()?;
    #[cfg(target_os = "linux")]
    if let Some(handle) = handle {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let ended = poll(&mut [PollFd::new(handle.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO);
        return ended.is_ok_and(|ready| ready == 0).then_some(process);
    }
    Some(process)
}

/// The two directions of a stream.
type Halves = (FrameReader<ReadHalf>, WriteHalf);

/// Reads the first frame: a hello, or the nudge of an init, which is not answered.
async fn greet(
    daemon: &Arc<Daemon>,
    id: u64,
    (pid, process): (Option<u32>, Option<ProcId>),
    (mut reader, mut writer): Halves,
) -> Option<Connection> {
    let payload = match reader.next().await {
        Ok(payload) => payload?,
        Err(error) => {
            let refusal = Refusal::new(ErrorCode::Protocol, format!("not a tmux-pool frame: {error}"));
            refuse(&mut writer, refusal).await;
            return None;
        }
    };
    if let Some(tag) = job::parse_nudge(&payload) {
        tokio::spawn(exit_reports::handle_nudge(Arc::clone(daemon), tag));
        return None;
    }
    let checked = frame::decode::<Hello>(&payload)
        .map_err(|e| Refusal::new(ErrorCode::Protocol, format!("not a tmux-pool hello: {e}")))
        .and_then(|hello| Ok((hello.check(daemon.paths.pool.as_str())?, hello)));
    let (version, hello) = match checked {
        Ok(checked) => checked,
        Err(refusal) => {
            refuse(&mut writer, refusal).await;
            return None;
        }
    };
    let registration = Registration::new(daemon, id);
    if let Err(refusal) = role::register(daemon, id, &hello, (pid, process)).await {
        refuse(&mut writer, refusal).await;
        return None;
    }
    // The welcome is written by a task, so that requests sent along with the hello share the engine's turn
    // with it.
    let (outbox, writing) = Outbox::new(writer, welcome(Arc::clone(daemon), version));
    tokio::spawn(writing);
    Some(Connection { id, hello, pid, process, reader, outbox, registration })
}

/// Refuses a connection that is one too many. The hello is read first, so that the peer reads the answer.
async fn turn_away((mut reader, mut writer): Halves) -> Option<Connection> {
    if let Ok(Some(_)) = reader.next().await {
        let full = "poold has as many connections as it can hold; try again when some have ended";
        refuse(&mut writer, Refusal::new(ErrorCode::Unavailable, full)).await;
    }
    None
}

async fn refuse(writer: &mut WriteHalf, refusal: Refusal) {
    tracing::info!(%refusal, "a hello was refused");
    let answer: HelloReply = Err(refusal);
    // The peer may be gone already.
    drop(write_frame(writer, &answer).await);
}

/// Returns the frame that answers a hello; none if the engine has stopped.
async fn welcome(daemon: Arc<Daemon>, version: u16) -> Option<Vec<u8>> {
    let (epoch, seq) = daemon.engine.turn(|turn| (turn.pool().epoch(), turn.pool().seq())).await.ok()?;
    let welcome = Welcome { version, epoch, seq, build: BUILD.to_owned(), capabilities: Vec::new() };
    frame::encode(&HelloReply::Ok(welcome)).ok()
}
