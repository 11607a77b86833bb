//! The whole watcher, with a scripted `poold` and a tmux server of its own.

mod events;
mod parts;
mod trouble;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use interprocess::local_socket::tokio::Listener;
use interprocess::local_socket::traits::tokio::Listener as _;
use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity;
use protocol::aio::{self, FrameReader, ReadHalf, WriteHalf};
use protocol::hello::HelloReply;
use protocol::reply::{WatchSetup, WatcherCommand};
use protocol::request::{Observe, View};
use protocol::tmux::{Server, TmuxPane, TmuxState, TmuxTransport};
use protocol::{
    Call, Epoch, ErrorCode, Frame, Hello, OsBytes, ProcId, Refusal, Request, Response, Role, Seq, Tag,
    Welcome, frame,
};
use tempfile::TempDir;
use tmux::{Create, Created, Device, LogOptions};
use tokio::task::JoinHandle;

use crate::{Options, print, run};

const LONG: Duration = Duration::from_secs(20);

/// Private tmux server, ended on drop.
pub(crate) struct Tmux {
    dir: TempDir,
    pub(crate) device: Device,
    server: Option<ProcId>,
}

impl Tmux {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let init = dir.path().join("init");
        fs::write(&init, "#!/bin/sh\n[ $1 = log ] && exit\nexec /bin/sh \"$2\"\n").unwrap();
        fs::set_permissions(&init, Permissions::from_mode(0o700)).unwrap();
        let device = Device { start_server: true, ..Device::new("tmux", dir.path().join("tmux")) };
        Self { dir, device, server: None }
    }

    /// Creates a session with this shell script in its pane.
    pub(crate) async fn create(&mut self, name: &str, script: &str) -> Created {
        let job = self.dir.path().join(format!("{name}.sh"));
        fs::write(&job, script).unwrap();
        let (init, log) = (self.dir.path().join("init"), LogOptions::new(self.dir.path()));
        let create = Create { init, job, log, ..Create::sample(name.parse().unwrap(), tag(name)) };
        let created = self.device.create(&create).await.unwrap();
        self.server = identity::identify(created.pane.server.pid).unwrap();
        created
    }

    /// Runs a tmux command, given as words separated by blanks.
    fn does(&self, words: &str) -> String {
        let socket = self.device.socket.to_str().unwrap();
        let mut command = Command::new("tmux");
        let out = command.args(["-N", "-S", socket]).args(words.split(' ')).output().unwrap();
        assert!(out.status.success(), "{words}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Ends the server, and waits for its exit.
    fn end(&self) {
        let held = Handle::open(self.server.unwrap()).unwrap().unwrap();
        held.signal(Signal::SIGKILL).unwrap();
        assert!(held.wait(LONG).unwrap());
    }

    fn signal(&self, signal: Signal) {
        let held = self.server.and_then(|server| Handle::open(server).unwrap());
        held.map(|server| server.signal(signal).unwrap());
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

fn tag(name: &str) -> Tag {
    let mut tag = [7; 16];
    tag[..name.len()].copy_from_slice(name.as_bytes());
    Tag(tag)
}

fn of<'a>(state: &'a TmuxState, name: &str) -> Option<&'a TmuxPane> {
    state.tagged_pane(tag(name)).map(|(_, pane)| pane)
}

/// Scripted `poold`, with a socket of its own.
struct Poold {
    _dir: TempDir,
    socket: PathBuf,
    listener: Listener,
}

impl Poold {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("poold");
        Self { listener: aio::listen(&socket).unwrap(), socket, _dir: dir }
    }

    /// Starts a watcher of this `poold`.
    fn watcher(&self) -> JoinHandle<anyhow::Result<()>> {
        self.watcher_with(|_| {})
    }

    fn watcher_with(&self, change: impl FnOnce(&mut Options)) -> JoinHandle<anyhow::Result<()>> {
        let mut options = Options {
            socket: self.socket.clone(),
            pool: "default".to_owned(),
            build: "tmux-watch test".to_owned(),
            take_over: false,
            transport: None,
        };
        change(&mut options);
        tokio::spawn(run(options, std::future::pending()))
    }

    /// Accepts the next connection with this reply.
    async fn answer(&self, reply: HelloReply) -> Peer {
        let (role, peer) = self.answer_any(reply).await;
        assert_eq!(role, Role::Watcher);
        peer
    }

    /// Refuses the next connection of any role as busy.
    async fn refuse_any(&self) -> Role {
        self.answer_any(refused(ErrorCode::Conflict)).await.0
    }

    async fn answer_any(&self, reply: HelloReply) -> (Role, Peer) {
        let accepted = tokio::time::timeout(LONG, self.listener.accept()).await;
        let (reader, mut writer) = aio::split(accepted.expect("a watcher connects").unwrap());
        let mut reader = FrameReader::new(reader);
        let hello: Hello = frame::decode(&reader.next().await.unwrap().unwrap()).unwrap();
        aio::write_frame(&mut writer, &reply).await.unwrap();
        let peer = Peer {
            reader,
            writer,
            state: TmuxState::default(),
            transport: None,
            frames: Vec::new(),
            joining: None,
        };
        (hello.role, peer)
    }

    /// Accepts the next watcher, and makes it watch this tmux.
    async fn welcome(&self, tmux: &Tmux) -> Peer {
        self.welcome_to(tmux, |_| {}).await
    }

    /// Accepts the next watcher, with a modified setup.
    async fn welcome_to(&self, tmux: &Tmux, change: impl FnOnce(&mut WatchSetup)) -> Peer {
        let mut peer = self.answer(Ok(welcome())).await;
        peer.set_up(tmux, change).await;
        peer
    }

    /// Accepts the next watcher, in this role.
    async fn welcome_as(&self, role: Role, tmux: &Tmux) -> Peer {
        let (found, mut peer) = self.answer_any(Ok(welcome())).await;
        assert_eq!(found, role);
        peer.set_up(tmux, |_| {}).await;
        peer
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: protocol::hello::VERSION,
        epoch: Epoch(1),
        seq: Seq(0),
        build: "poold test".to_owned(),
        capabilities: Vec::new(),
    }
}

fn refused(code: ErrorCode) -> HelloReply {
    Err(Refusal::new(code, "not you"))
}

/// Long heartbeat, so that a server that pauses for a moment does not count as silent, which would cause a
/// whole read.
fn patient(setup: &mut WatchSetup) {
    setup.heartbeat_ms = 10_000;
}

/// A watcher as `poold` sees it, with its observations joined and applied.
struct Peer {
    reader: FrameReader<ReadHalf>,
    writer: WriteHalf,
    state: TmuxState,
    /// Reported transport.
    transport: Option<TmuxTransport>,
    /// All frames received.
    frames: Vec<Observe>,
    joining: Option<TmuxState>,
}

impl Peer {
    /// Sends the setup, modified.
    async fn set_up(&mut self, tmux: &Tmux, change: impl FnOnce(&mut WatchSetup)) {
        let bytes = |path: &std::path::Path| OsBytes(path.as_os_str().as_encoded_bytes().to_vec());
        let (binary, socket) = (bytes(&tmux.device.binary), bytes(&tmux.device.socket));
        let mut setup = WatchSetup {
            binary,
            socket,
            heartbeat_ms: 1000,
            own: true,
            means: None,
            sweep_ms: None,
            server: None,
        };
        change(&mut setup);
        self.command(WatcherCommand::Watch(setup)).await;
    }

    async fn command(&mut self, command: WatcherCommand) {
        aio::write_frame(&mut self.writer, &Frame::Command(command)).await.unwrap();
    }

    /// Returns the next observation, replying `Done`.
    async fn observe(&mut self) -> Observe {
        self.observe_and(Response::Done).await
    }

    async fn observe_and(&mut self, response: Response) -> Observe {
        loop {
            let payload = tokio::time::timeout(LONG, self.reader.next()).await.expect("it speaks");
            let call: Call = frame::decode(&payload.unwrap().expect("it stays")).unwrap();
            let observe = match call.request {
                Request::WatchingBy(transport) => {
                    self.transport = Some(transport);
                    self.reply(call.id, Response::Done).await;
                    continue;
                }
                Request::Observe(observe) => observe,
                other => panic!("not an observation: {other:?}"),
            };
            if let Some(last) = self.frames.last() {
                assert_eq!((observe.watcher, observe.seq), (last.watcher, last.seq + 1));
            }
            self.frames.push(observe.clone());
            self.apply(observe.view.clone());
            self.reply(call.id, response).await;
            return observe;
        }
    }

    async fn reply(&mut self, id: u64, response: Response) {
        let reply = Frame::Reply { id, reply: Ok(response) };
        aio::write_frame(&mut self.writer, &reply).await.unwrap();
    }

    fn last(&self) -> &Observe {
        self.frames.last().unwrap()
    }

    fn apply(&mut self, view: View) {
        match view {
            View::Snapshot { state, more, .. } => {
                let whole = self.joining.get_or_insert_default();
                whole.server = state.server;
                whole.sessions.extend(state.sessions);
                whole.panes.extend(state.panes);
                if !more {
                    self.state = self.joining.take().unwrap();
                }
            }
            View::Diff(changes) => changes.into_iter().for_each(|change| self.state.apply(change)),
            View::Unchanged | View::Alive => {}
        }
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&TmuxState) -> bool) {
        let wait = async {
            while !is_so(&self.state) {
                self.observe().await;
            }
        };
        let came = tokio::time::timeout(LONG, wait).await;
        assert!(came.is_ok(), "{what}: {:#?}", self.state);
    }
}

/// Returns a tmux with the session "one", and its watcher, which knows it.
async fn watched(change: impl FnOnce(&mut WatchSetup)) -> (Tmux, Poold, Peer) {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.create("one", "exec sleep 1000").await;
    poold.watcher();
    let mut peer = poold.welcome_to(&tmux, change).await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    (tmux, poold, peer)
}

fn is_snapshot(observe: &Observe) -> bool {
    matches!(observe.view, View::Snapshot { .. })
}

#[tokio::test]
async fn first_all_then_what_changes_then_that_nothing_does() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    let created = tmux.create("one", "exec sleep 1000").await;
    let _watcher = poold.watcher();
    let mut peer = poold.welcome_to(&tmux, patient).await;
    let first = peer.observe().await;
    assert!(is_snapshot(&first) && first.seq == 1 && first.asked == 0);
    assert!(matches!(peer.state.server, Server::Up(server) if Some(server.process) == tmux.server));
    peer.until("the program runs", |state| {
        of(state, "one").unwrap().current_command == Some(OsBytes(b"sleep".to_vec()))
    })
    .await;
    let pane = of(&peer.state, "one").unwrap();
    assert_eq!(pane.process, identity::identify(created.pid).unwrap());
    tmux.create("two", "exec sleep 1000").await;
    peer.until("the second comes", |state| of(state, "two").is_some()).await;
    assert!(matches!(peer.last().view, View::Diff(_)));
    while peer.observe().await.view != View::Unchanged {}
    tmux.device.kill_pane(created.pane).await.unwrap();
    peer.until("the first goes", |state| of(state, "one").is_none() && of(state, "two").is_some()).await;
}

#[tokio::test]
async fn a_snapshot_on_demand_begins_after_the_demand() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.create("one", "exec sleep 1000").await;
    let _watcher = poold.watcher();
    let mut peer = poold.welcome_to(&tmux, patient).await;
    for n in 1..=5 {
        let name = format!("s{n}");
        tmux.create(&name, "exec sleep 1000").await;
        peer.command(WatcherCommand::Snapshot { n }).await;
        let snapshot = async { while peer.observe().await.asked != n {} };
        tokio::time::timeout(LONG, snapshot).await.expect("what was asked for");
        assert!(is_snapshot(peer.last()));
        assert!(of(&peer.state, &name).is_some(), "{name}");
    }
}

#[tokio::test]
async fn t04_a_gap_is_mended_by_a_snapshot() {
    let (_tmux, _poold, mut peer) = watched(|_| {}).await;
    for _ in 0..3 {
        while is_snapshot(&peer.observe_and(Response::SendSnapshot).await) {}
        let before = peer.last().seq;
        while !is_snapshot(&peer.observe().await) {
            // Only frames that were sent before the reply arrived may come first.
            assert!(peer.last().seq < before + 4);
        }
        assert!(!is_snapshot(&peer.observe().await), "one is enough");
    }
}

#[tokio::test]
async fn t05_poold_is_lost_and_found_and_stamps_outlive_it() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    let go = tmux.dir.path().join("go");
    let script = format!("while [ ! -e '{}' ]; do sleep 0.02; done", go.display());
    tmux.create("two", "exec sleep 1000").await;
    let created = tmux.create("one", &script).await;
    let _watcher = poold.watcher();
    let mut peer = poold.welcome(&tmux).await;
    peer.until("it is there", |state| of(state, "one").is_some()).await;
    let stamp = of(&peer.state, "one").unwrap().process;
    assert_eq!(stamp, identity::identify(created.pid).unwrap());
    let watcher = peer.last().watcher;
    drop(peer);
    fs::write(go, "").unwrap();
    let mut peer = poold.welcome(&tmux).await;
    let first = peer.observe().await;
    assert!(is_snapshot(&first) && first.seq == 1 && first.watcher != watcher);
    peer.until("it ends", |state| of(state, "one").unwrap().dead).await;
    assert_eq!(of(&peer.state, "one").unwrap().process, stamp, "poold can see that it ended");
}

#[tokio::test]
async fn one_watcher_waits_for_the_other() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    tmux.create("one", "exec sleep 1000").await;
    let _watcher = poold.watcher();
    drop(poold.answer(refused(ErrorCode::Conflict)).await);
    let mut peer = poold.welcome(&tmux).await;
    assert!(is_snapshot(&peer.observe().await));
}

#[tokio::test]
async fn versions_that_do_not_fit_are_the_end() {
    let poold = Poold::new();
    let watcher = poold.watcher();
    drop(poold.answer(refused(ErrorCode::Protocol)).await);
    let ended = tokio::time::timeout(LONG, watcher).await.unwrap().unwrap();
    assert_eq!(ended.unwrap_err().to_string(), "not you");
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    let options = Options {
        socket: "/nowhere/at/all".into(),
        pool: String::new(),
        build: String::new(),
        take_over: false,
        transport: None,
    };
    tokio::time::timeout(LONG, run(options, std::future::ready(()))).await.unwrap().unwrap();
}

/// One after the other: the news of the next exit would bring the missed one before.
#[tokio::test]
async fn every_end_is_known_in_the_end() {
    let (mut tmux, poold) = (Tmux::new(), Poold::new());
    let go = |name: &str| tmux.dir.path().join(format!("go-{name}"));
    let names: Vec<(String, PathBuf)> =
        (0..6).map(|n| format!("s{n}")).map(|n| (n.clone(), go(&n))).collect();
    for (name, go) in &names {
        let script = format!("while [ ! -e '{}' ]; do sleep 0.02; done; exit 3", go.display());
        tmux.create(name, &script).await;
    }
    let _watcher = poold.watcher();
    let mut peer = poold.welcome(&tmux).await;
    for (name, go) in names {
        fs::write(go, "").unwrap();
        let known = |pane: &TmuxPane| pane.dead && pane.exit_status == Some(3);
        peer.until(&name, |state| of(state, &name).is_some_and(known)).await;
    }
}

#[tokio::test]
async fn printing_ends_when_nobody_reads() {
    let mut tmux = Tmux::new();
    tmux.create("one", "exec sleep 1000").await;
    let (mut read, write) = std::io::pipe().unwrap();
    let printing = tokio::spawn(print(tmux.device.clone(), None, write, std::future::pending()));
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        while text.last() != Some(&b'\n') {
            let mut chunk = [0; 4096];
            let length = std::io::Read::read(&mut read, &mut chunk).unwrap();
            text.extend_from_slice(&chunk[..length]);
        }
        text
    });
    let text = String::from_utf8(reading.await.unwrap()).unwrap();
    assert!(text.contains("\"view\":{\"snapshot\":{") && text.contains(&tag("one").to_string()), "{text}");
    tokio::time::timeout(LONG, printing).await.expect("it ends").unwrap().unwrap();
}
