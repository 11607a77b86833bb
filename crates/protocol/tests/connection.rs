//! Blocking connections against a scripted daemon.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use protocol::blocking::{Connection, nudge};
use protocol::frame::{FrameBuffer, decode, encode, wrap};
use protocol::hello::{HelloReply, OLDEST_VERSION, VERSION};
use protocol::{
    Call, ConnectError, Epoch, ErrorCode, Frame, Hello, OpId, Refusal, Reply, Request, Response, Role, Seq,
    Tag, Token, TransportError, Welcome, job, peer,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longer than any operation here takes.
const LONG: Duration = Duration::from_secs(20);
/// Timeout of waits that are expected to fail.
const SHORT: Duration = Duration::from_millis(50);

pub(crate) fn hello() -> Hello {
    Hello::new(Role::Client, "default", "test 1")
}

pub(crate) fn welcome(version: u16) -> HelloReply {
    Ok(Welcome { version, epoch: Epoch(1), seq: Seq(2), build: "poold 9".to_owned(), capabilities: vec![] })
}

/// The daemon's end of a connection.
pub(crate) struct Served {
    pub(crate) stream: UnixStream,
    incoming: FrameBuffer,
}

impl Served {
    pub(crate) fn accept(listener: &UnixListener) -> Self {
        Self { stream: listener.accept().unwrap().0, incoming: FrameBuffer::default() }
    }

    pub(crate) fn payload(&mut self) -> Vec<u8> {
        loop {
            if let Some(payload) = self.incoming.take().unwrap() {
                return payload;
            }
            let mut chunk = [0; 4096];
            let read = self.stream.read(&mut chunk).unwrap();
            assert_ne!(read, 0, "the client left");
            self.incoming.space().extend_from_slice(&chunk[..read]);
        }
    }

    pub(crate) fn expect<T: DeserializeOwned>(&mut self) -> T {
        decode(&self.payload()).unwrap()
    }

    pub(crate) fn send<T: Serialize>(&mut self, value: &T) {
        self.stream.write_all(&encode(value).unwrap()).unwrap();
    }

    pub(crate) fn greet(&mut self) {
        assert_eq!(self.expect::<Hello>(), hello());
        self.send(&welcome(VERSION));
    }

    fn reply(&mut self, id: u64, response: Response) {
        self.send(&Frame::Reply { id, reply: Ok(response) });
    }
}

/// A daemon that serves one connection.
struct Daemon {
    _home: tempfile::TempDir,
    path: PathBuf,
    thread: JoinHandle<()>,
}

fn daemon(script: impl FnOnce(Served) + Send + 'static) -> Daemon {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("poold.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || script(Served::accept(&listener)));
    Daemon { _home: home, path, thread }
}

fn connect(path: &Path) -> Connection {
    Connection::connect_within(path, &hello(), Some(LONG)).unwrap().0
}

fn text(text: &str) -> Response {
    Response::Text(text.to_owned())
}

#[test]
fn a_call_is_answered() {
    let lock = Token { epoch: Epoch(1), n: 4 };
    let op = OpId::Random([7; 16]);
    let (asked, of_lock) = (op.clone(), lock);
    let daemon = daemon(move |mut served| {
        served.greet();
        let call: Call = served.expect();
        assert_eq!(call, Call { id: 1, op: Some(asked), lock: Some(of_lock), request: Request::Ping });
        served.reply(call.id, Response::Done);
        let call: Call = served.expect();
        let refusal = Refusal::not_found("no such session");
        served.send(&Frame::Reply { id: call.id, reply: Err(refusal) });
        served.expect::<Call>();
        let refusal = Refusal::protocol("what is that?");
        served.send(&Frame::Reply { id: 0, reply: Err(refusal) });
    });
    let (mut connection, welcomed) = Connection::connect(&daemon.path, &hello()).unwrap();
    assert_eq!(Ok(welcomed), welcome(VERSION));
    assert_eq!(connection.call(Some(op), Some(lock), Request::Ping).unwrap(), Ok(Response::Done));
    let refused = connection.call(None, None, Request::Status).unwrap().unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
    let unread = connection.call(None, None, Request::Status).unwrap().unwrap_err();
    assert_eq!(unread.code, ErrorCode::Protocol);
    daemon.thread.join().unwrap();
    assert!(matches!(connection.call(None, None, Request::Ping), Err(TransportError::Closed)));
}

/// Makes a call together with the hello.
fn ask(path: &Path, request: Request) -> Result<(Connection, Result<Reply, TransportError>), ConnectError> {
    Connection::connect_and_call(path, &hello(), Some(LONG), None, request)
}

#[test]
fn a_first_question_goes_along_with_the_hello() {
    let daemon = daemon(|mut served| {
        assert_eq!(served.expect::<Hello>(), hello());
        // Arrives before the welcome.
        let call: Call = served.expect();
        assert_eq!(call, Call { id: 1, op: None, lock: None, request: Request::Config });
        served.send(&welcome(VERSION));
        served.send(&Frame::Part { id: 1, part: text("a") });
        served.reply(1, text("b"));
        let second = served.expect::<Call>().id;
        assert_ne!(second, 1);
        served.reply(second, Response::Done);
    });
    let (mut connection, answer) = ask(&daemon.path, Request::Config).unwrap();
    assert_eq!(answer.unwrap(), Ok(text("ab")));
    assert_eq!(connection.call(None, None, Request::Ping).unwrap(), Ok(Response::Done));
    daemon.thread.join().unwrap();
}

#[test]
fn a_long_first_question_waits_for_the_welcome() {
    let daemon = daemon(|mut served| {
        assert_eq!(served.expect::<Hello>(), hello());
        assert!(served.incoming.is_empty());
        served.send(&welcome(VERSION));
        let id = served.expect::<Call>().id;
        served.reply(id, Response::Done);
    });
    let long = Request::Show(protocol::SessionRef("x".repeat(20_000)));
    assert_eq!(ask(&daemon.path, long).unwrap().1.unwrap(), Ok(Response::Done));
    daemon.thread.join().unwrap();
}

#[test]
fn a_first_question_and_a_hello_that_is_not_welcome() {
    let asked = |answer: fn(Served)| {
        let daemon = daemon(move |mut served| {
            served.expect::<Hello>();
            answer(served);
        });
        let asked = ask(&daemon.path, Request::Ping);
        daemon.thread.join().unwrap();
        asked.map(|(_, answer)| answer)
    };
    let refused = asked(|mut served| served.send(&HelloReply::Err(Refusal::protocol("no"))));
    assert!(matches!(&refused, Err(ConnectError::Refused(r)) if r.message == "no"), "{refused:?}");
    let newer = asked(|mut served| served.send(&welcome(VERSION + 1)));
    assert!(matches!(newer, Err(ConnectError::Version { .. })), "{newer:?}");
    let gone = asked(drop);
    assert!(matches!(gone, Err(ConnectError::Closed(_))), "{gone:?}");
    let lost = asked(|mut served| served.send(&welcome(VERSION)));
    assert!(matches!(lost, Ok(Err(TransportError::Closed))), "{lost:?}");
}

#[test]
fn parts_are_joined_or_handed_over() {
    let daemon = daemon(|mut served| {
        served.greet();
        for _ in 0..2 {
            let id = served.expect::<Call>().id;
            served.send(&Frame::Part { id, part: text("a") });
            served.send(&Frame::Part { id, part: text("b") });
            served.reply(id, text("c"));
        }
        let id = served.expect::<Call>().id;
        served.send(&Frame::Part { id, part: text("a") });
        served.reply(id, Response::Events(vec![]));
    });
    let mut connection = connect(&daemon.path);
    assert_eq!(connection.call(None, None, Request::Config).unwrap(), Ok(text("abc")));
    let mut parts = vec![];
    let last = connection.call_each(None, None, Request::Config, |part| parts.push(part)).unwrap();
    assert_eq!((parts, last), (vec![text("a"), text("b")], Ok(text("c"))));
    let mixed = connection.call(None, None, Request::Config).unwrap_err();
    assert_eq!(mixed.code(), ErrorCode::Protocol);
    daemon.thread.join().unwrap();
}

#[test]
fn an_answer_that_dribbles_in_is_whole() {
    let daemon = daemon(|mut served| {
        served.greet();
        let id = served.expect::<Call>().id;
        let long = Frame::Reply { id, reply: Ok(text(&"x".repeat(300))) };
        encode(&long).unwrap().chunks(1).for_each(|byte| served.stream.write_all(byte).unwrap());
    });
    let answer = connect(&daemon.path).call(None, None, Request::Config).unwrap();
    assert_eq!(answer, Ok(text(&"x".repeat(300))));
    daemon.thread.join().unwrap();
}

#[test]
fn an_answer_that_is_late_is_not_taken_for_another() {
    let (timed_out, go) = mpsc::channel();
    let daemon = daemon(move |mut served| {
        served.greet();
        let first = served.expect::<Call>().id;
        let whole = encode(&Frame::Reply { id: first, reply: Ok(text("late")) }).unwrap();
        served.stream.write_all(&whole[..3]).unwrap();
        go.recv().unwrap();
        served.stream.write_all(&whole[3..]).unwrap();
        let second = served.expect::<Call>().id;
        served.reply(second, text("in time"));
    });
    let mut connection = connect(&daemon.path);
    connection.set_timeout(Some(SHORT));
    let error = connection.call(None, None, Request::Config).unwrap_err();
    assert!(matches!(error, TransportError::Timeout));
    timed_out.send(()).unwrap();
    connection.set_timeout(Some(LONG));
    assert_eq!(connection.call(None, None, Request::Config).unwrap(), Ok(text("in time")));
    daemon.thread.join().unwrap();
}

#[test]
fn a_subscriber_waits_as_long_as_it_likes_and_loses_nothing() {
    let (waited, go) = mpsc::channel();
    let daemon = daemon(move |mut served| {
        served.greet();
        let subscribe: Call = served.expect();
        assert!(matches!(subscribe.request, Request::Subscribe(_)));
        let whole = encode(&Frame::Synced { seq: Seq(5) }).unwrap();
        served.stream.write_all(&whole[..5]).unwrap();
        go.recv().unwrap();
        served.stream.write_all(&whole[5..]).unwrap();
    });
    let mut connection = connect(&daemon.path);
    connection.send(Request::Subscribe(protocol::request::Subscribe { since: None })).unwrap();
    connection.set_timeout(Some(SHORT));
    assert!(matches!(connection.next_frame(), Err(TransportError::Timeout)));
    waited.send(()).unwrap();
    connection.set_timeout(Some(LONG));
    assert_eq!(connection.next_frame().unwrap(), Frame::Synced { seq: Seq(5) });
    daemon.thread.join().unwrap();
}

#[test]
fn a_daemon_that_does_not_read_is_a_timeout() {
    let (done, stay) = mpsc::channel();
    let daemon = daemon(move |mut served| {
        served.greet();
        stay.recv().unwrap();
    });
    let mut connection = connect(&daemon.path);
    connection.set_timeout(Some(SHORT));
    let long = Request::Show(protocol::SessionRef("x".repeat(1_000_000)));
    assert!(matches!(connection.call(None, None, long), Err(TransportError::Timeout)));
    // Half of the frame was written, so the connection is unusable.
    assert!(matches!(connection.call(None, None, Request::Ping), Err(TransportError::Closed)));
    done.send(()).unwrap();
    daemon.thread.join().unwrap();
}

#[test]
fn what_does_not_fit_a_frame_is_not_sent() {
    let daemon = daemon(|mut served| {
        served.greet();
        let id = served.expect::<Call>().id;
        served.reply(id, Response::Done);
    });
    let mut connection = connect(&daemon.path);
    let long = Request::Show(protocol::SessionRef("x".repeat(2_000_000)));
    assert!(matches!(connection.call(None, None, long), Err(TransportError::Frame(_))));
    assert_eq!(connection.call(None, None, Request::Ping).unwrap(), Ok(Response::Done));
    daemon.thread.join().unwrap();
}

#[test]
fn nobody_there_says_how_to_start() {
    let home = tempfile::tempdir().unwrap();
    let missing = home.path().join("poold.sock");
    let left_over = home.path().join("old.sock");
    drop(UnixListener::bind(&left_over).unwrap());
    for path in [missing, left_over] {
        let error = Connection::connect(&path, &hello()).unwrap_err();
        assert!(matches!(error, ConnectError::NotThere(_)) && error.is_transient(), "{error:?}");
        assert_eq!(error.code(), ErrorCode::Unavailable);
        assert!(error.to_string().contains("poolctl up"), "{error}");
    }
}

/// Returns the error of connecting to a daemon that answers the hello like this.
fn greeted_with(answer: impl FnOnce(Served) + Send + 'static) -> ConnectError {
    let daemon = daemon(|mut served| {
        served.expect::<Hello>();
        answer(served);
    });
    let error = Connection::connect_within(&daemon.path, &hello(), Some(LONG)).unwrap_err();
    daemon.thread.join().unwrap();
    error
}

#[test]
fn a_hello_that_is_not_welcome() {
    let refused =
        greeted_with(|mut served| served.send(&hello().check("another").map(|_| welcome(1).unwrap())));
    assert!(
        matches!(&refused, ConnectError::Refused(refusal) if refusal.code == ErrorCode::Protocol),
        "{refused:?}"
    );
    let causes = ["--pool", "POOL_NAME", "POOL_SOCKET", "POOL_STATE_DIR"];
    assert!(causes.iter().all(|cause| refused.to_string().contains(cause)), "{refused}");
    let newer = greeted_with(|mut served| served.send(&welcome(VERSION + 1)));
    let said = format!(
        "poold 9 speaks protocol {}, test 1 {OLDEST_VERSION} to {VERSION}: upgrade test 1",
        VERSION + 1
    );
    assert_eq!(newer.to_string(), said);
    let older = greeted_with(|mut served| served.send(&welcome(0)));
    assert!(older.to_string().ends_with(": upgrade poold 9"), "{older}");
    assert_eq!(older.code(), ErrorCode::Protocol);
    let gone = greeted_with(drop);
    assert!(matches!(gone, ConnectError::Closed(_)), "{gone:?}");
    let stranger = greeted_with(|mut served| served.stream.write_all(b"HTTP/1.1 400 Bad Request").unwrap());
    assert!(matches!(stranger, ConnectError::Frame { .. }), "{stranger:?}");
}

#[test]
fn a_daemon_that_does_not_answer_is_a_timeout() {
    let (done, stay) = mpsc::channel();
    let daemon = daemon(move |_served| stay.recv().unwrap());
    let error = Connection::connect_within(&daemon.path, &hello(), Some(SHORT)).unwrap_err();
    assert!(matches!(error, ConnectError::Timeout(_)), "{error:?}");
    // The time may have run out before it connected; the daemon waits for a connection.
    drop(UnixStream::connect(&daemon.path));
    done.send(()).unwrap();
    daemon.thread.join().unwrap();
}

/// Returns a listener with a full backlog, and the connections that fill it.
#[cfg(target_os = "linux")]
pub(crate) fn crowded(path: &Path) -> (UnixListener, Vec<std::os::fd::OwnedFd>) {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let address = UnixAddr::new(path).unwrap();
    let new = || socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).unwrap();
    let listener = new();
    bind(listener.as_raw_fd(), &address).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let mut waiting = vec![];
    loop {
        let client = new();
        UnixStream::from(client.try_clone().unwrap()).set_nonblocking(true).unwrap();
        match connect(client.as_raw_fd(), &address) {
            Ok(()) => waiting.push(client),
            Err(_) => return (listener.into(), waiting),
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_queue_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("poold.sock");
    let (listener, waiting) = crowded(&path);
    let error = Connection::connect_within(&path, &hello(), Some(SHORT)).unwrap_err();
    assert!(matches!(error, ConnectError::Timeout(_)), "{error:?}");
    let client = thread::spawn(move || Connection::connect_within(&path, &hello(), Some(LONG)).map(drop));
    for _ in &waiting {
        drop(listener.accept().unwrap());
    }
    Served::accept(&listener).greet();
    client.join().unwrap().unwrap();
}

#[test]
fn a_nudge_is_one_frame_and_nobody_answers() {
    let tag = Tag([3; 16]);
    let daemon = daemon(move |mut served| {
        let mut bytes = vec![];
        served.stream.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, wrap(&job::nudge(tag)));
    });
    nudge(&daemon.path, tag, LONG).unwrap();
    daemon.thread.join().unwrap();
    assert!(matches!(nudge(Path::new("/nowhere/x"), tag, LONG), Err(ConnectError::NotThere(_))));
}

#[test]
fn the_kernel_tells_who_is_there() {
    let (one, other) = UnixStream::pair().unwrap();
    let peer = peer::check(&one).unwrap();
    assert_eq!(peer.pid, Some(std::process::id()));
    assert_eq!(peer::of(&other).unwrap(), peer);
    let alone = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::empty(),
        None,
    );
    assert_eq!(peer::of(alone.unwrap()).unwrap_err().kind(), std::io::ErrorKind::NotConnected);
}

/// The view of another user. The test below runs it as that user.
#[test]
#[ignore = "run by a_foreign_user_gets_nothing, as another user"]
fn as_a_foreign_user() {
    let Some(home) = std::env::var_os("PROTOCOL_TEST_HOME").map(PathBuf::from) else { return };
    let closed = Connection::connect(&home.join("closed/poold.sock"), &hello()).unwrap_err();
    assert!(matches!(closed, ConnectError::Forbidden(_)), "{closed:?}");
    let open = Connection::connect(&home.join("open.sock"), &hello()).unwrap_err();
    assert!(matches!(open, ConnectError::ForeignServer { uid: 0, .. }), "{open:?}");
}

#[test]
fn a_foreign_user_gets_nothing() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let home = tempfile::tempdir().unwrap();
    mode(home.path(), 0o755);
    let closed = home.path().join("closed");
    fs::create_dir(&closed).unwrap();
    mode(&closed, 0o700);
    let _private = UnixListener::bind(closed.join("poold.sock")).unwrap();
    mode(&closed.join("poold.sock"), 0o666);
    let open = UnixListener::bind(home.path().join("open.sock")).unwrap();
    mode(&home.path().join("open.sock"), 0o666);
    let program = home.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    mode(&program, 0o755);
    let child = std::process::Command::new(&program)
        .args(["--exact", "connection::as_a_foreign_user", "--ignored"])
        .env("PROTOCOL_TEST_HOME", home.path())
        .current_dir("/")
        .uid(65534)
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let mut stream = open.accept().unwrap().0;
    assert!(matches!(peer::check(&stream), Err(peer::PeerError::Foreign(65534))));
    let mut sent = vec![];
    stream.read_to_end(&mut sent).unwrap();
    assert!(sent.is_empty(), "nothing was said to a daemon of another user");
}

#[test]
fn a_timeout_is_an_overall_one() {
    let (done, stay) = mpsc::channel::<()>();
    let started = Instant::now();
    let daemon = daemon(move |mut served| {
        served.greet();
        let id = served.expect::<Call>().id;
        // Short pauses only, but it finishes long after the client has given up.
        let part = Frame::Part { id, part: text("x") };
        while stay.recv_timeout(Duration::from_millis(5)).is_err() && started.elapsed() < LONG / 4 {
            served.send(&part);
        }
        served.reply(id, text("x"));
    });
    let mut connection = connect(&daemon.path);
    connection.set_timeout(Some(SHORT));
    assert!(matches!(connection.call(None, None, Request::Config), Err(TransportError::Timeout)));
    done.send(()).unwrap();
    daemon.thread.join().unwrap();
}
