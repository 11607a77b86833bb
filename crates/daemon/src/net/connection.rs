//! Connections: who may connect, the hello, and the table of roles.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

#[cfg(target_os = "linux")]
use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::tokio::Listener as _;
use protocol::aio::{FrameReader, ReadHalf, WriteHalf, check_peer, split, write_frame};
use protocol::hello::HelloReply;
use protocol::{ErrorCode, Hello, ProcId, Refusal, Reply, Response, Role, Welcome, frame, job};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::engine::context::{BUILD, Daemon};
use crate::host::outbox::Outbox;
use crate::net::role;
use crate::sense::exit_reports;

/// Connections at once: more than a thousand sessions with a hook each. Fewer where the system
/// allows few open files, of which the database and tmux need some.
const CONNECTIONS_MAX: usize = 4096;
/// Connections that have not said hello yet, and those that are turned away.
const STRANGERS_MAX: usize = 64;
/// How long a peer may take to say hello.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// How long a peer has at least before another one takes its place.
const STRANGER_MIN: Duration = Duration::from_millis(500);
/// Pause after the system refused a connection, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection after its hello.
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) hello: Hello,
    pub(crate) pid: Option<u32>,
    /// Its process, as it was when it connected.
    pub(crate) process: Option<ProcId>,
    pub(crate) reader: FrameReader<ReadHalf>,
    pub(crate) outbox: Outbox,
    pub(crate) registration: role::Registration,
}

/// Accepts for ever. Where too many peers have not said hello, the one that has been silent for
/// longest makes room, so that strangers never keep a good client waiting.
pub(crate) async fn accept(daemon: Arc<Daemon>, listener: Listener) {
    let (connections_max, strangers_max) = room();
    let all = Arc::new(Semaphore::new(connections_max));
    let mut strangers: VecDeque<(Instant, oneshot::Sender<()>)> = VecDeque::new();
    for id in 1.. {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        make_room(&mut strangers, strangers_max).await;
        let (stranger, evicted) = oneshot::channel();
        strangers.push_back((Instant::now(), stranger));
        let daemon = Arc::clone(&daemon);
        let place = Arc::clone(&all).try_acquire_owned().ok();
        tokio::spawn(async move {
            let greeted = tokio::select! {
                greeted = timeout(HELLO_LIMIT, meet(&daemon, id, stream, place.is_some())) => greeted.ok().flatten(),
                _ = evicted => None,
            };
            if let Some(connection) = greeted {
                role::serve(&daemon, connection).await;
            }
            drop(place);
        });
    }
}

/// Waits until there are fewer strangers than that; one that was silent for long enough goes.
async fn make_room(strangers: &mut VecDeque<(Instant, oneshot::Sender<()>)>, max: usize) {
    loop {
        strangers.retain(|(_, stranger)| !stranger.is_closed());
        if strangers.len() < max.max(1) {
            return;
        }
        if strangers.front().is_some_and(|(since, _)| since.elapsed() >= STRANGER_MIN) {
            strangers.pop_front();
        } else {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// How many connections there is room for, and how many strangers beside them.
fn room() -> (usize, usize) {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    let files = limit.map_or(usize::MAX, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX));
    (CONNECTIONS_MAX.min(files / 8 * 3), STRANGERS_MAX.min(files / 8))
}

/// Checks who it is before a byte is read.
async fn meet(daemon: &Arc<Daemon>, id: u64, stream: Stream, has_place: bool) -> Option<Connection> {
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

/// The process that connected. Where the kernel gives a handle on it, it is proved to be the very one:
/// its number may be another's by now.
fn process_of(
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "no handle is given there"))]
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

type Halves = (FrameReader<ReadHalf>, WriteHalf);

/// The first frame: a hello, or a nudge, which is not answered.
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
        tokio::spawn(exit_reports::nudged(Arc::clone(daemon), tag));
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
    let registration = role::Registration::new(daemon, id);
    if let Err(refusal) = role::admit(daemon, id, &hello, (pid, process)).await {
        refuse(&mut writer, refusal).await;
        return None;
    }
    // What was asked along with the hello is under way meanwhile, so that both share the engine's turn.
    let (outbox, writing) = Outbox::new(writer, welcome(Arc::clone(daemon), version));
    tokio::spawn(writing);
    Some(Connection { id, hello, pid, process, reader, outbox, registration })
}

/// There is no room. The hello is read first, so that its sender gets to read the answer.
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
    // It may be gone already.
    drop(write_frame(writer, &answer).await);
}

/// The frame that answers a hello; none where the engine has ended.
async fn welcome(daemon: Arc<Daemon>, version: u16) -> Option<Vec<u8>> {
    let (epoch, seq) = daemon.engine.turn(|turn| (turn.pool().epoch(), turn.pool().seq())).await.ok()?;
    let welcome = Welcome { version, epoch, seq, build: BUILD.to_owned(), capabilities: Vec::new() };
    frame::encode(&HelloReply::Ok(welcome)).ok()
}

/// A reply that says nothing but done.
pub(crate) fn done() -> Reply {
    Ok(Response::Done)
}

/// What a role is for, for people.
pub(crate) fn role_word(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Watcher | Role::NextWatcher => "watcher",
        Role::Reaper => "reaper",
        Role::Generator => "generator",
        Role::Subscriber => "subscriber",
    }
}
