//! A scripted daemon, and fake programs for `up`.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::hello::{HelloReply, VERSION};
use protocol::{
    Call, Epoch, ErrorCode, Frame, Hello, Refusal, Reply, Request, Response, Role, Seq, SessionView, Welcome,
    frame,
};
use serde_json::Value;

use crate::ACT;
use crate::samples;

/// Time limit for every wait of a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The daemon's reaction to a call.
pub(crate) enum Answer {
    Reply(Reply),
    /// Replies in parts.
    Parts(Vec<Response>, Response),
    /// Sends these frames, then closes the connection.
    Frames(Vec<Frame>),
    /// Sends frames, replies, and sends more frames.
    Among(Vec<Frame>, Reply, Vec<Frame>),
    /// Closes the connection without a reply, as a killed daemon does.
    HangUp,
    /// Sends nothing.
    Silence,
}

/// A successful reply.
pub(crate) fn ok(response: Response) -> Answer {
    Answer::Reply(Ok(response))
}

/// A reply with this session.
pub(crate) fn shown(view: SessionView) -> Answer {
    ok(Response::Session(Box::new(view)))
}

pub(crate) fn refused(code: ErrorCode, message: &str) -> Answer {
    Answer::Reply(Err(Refusal::new(code, message)))
}

/// The documents of some lines.
#[track_caller]
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

type Script = Arc<dyn Fn(&Call) -> Answer + Send + Sync>;

/// A state directory, with a daemon if a script was given.
pub(crate) struct Pool {
    pub(crate) dir: tempfile::TempDir,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Pool {
    /// A pool without a daemon.
    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir(&run).unwrap();
        for private in [dir.path(), &run] {
            std::fs::set_permissions(private, PermissionsExt::from_mode(0o700)).unwrap();
        }
        Self { dir, calls: Arc::default() }
    }

    /// A pool whose daemon answers by this script.
    pub(crate) fn new(script: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Self {
        let pool = Self::empty();
        let listener = UnixListener::bind(pool.socket()).unwrap();
        let (calls, script): (_, Script) = (pool.calls.clone(), Arc::new(script));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (calls, script) = (calls.clone(), script.clone());
                thread::spawn(move || converse(stream.unwrap(), &calls, &script));
            }
        });
        pool
    }

    /// Listens as a daemon that speaks another version of the protocol.
    pub(crate) fn speak(&self, version: u16) {
        let listener = UnixListener::bind(self.socket()).unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map(Result::unwrap) {
                thread::spawn(move || {
                    let is_read = welcome(&mut stream, version).is_some();
                    while is_read && read_payload(&mut stream).is_some() {}
                });
            }
        });
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("run/poold.sock")
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The request of the only call.
    pub(crate) fn request(&self) -> Request {
        let calls = self.calls();
        assert_eq!(calls.len(), 1, "{calls:?}");
        calls[0].request.clone()
    }

    /// A `poolctl` of this pool, in an environment of its own.
    pub(crate) fn poolctl(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(args).env_clear().env(ACT, "poolctl").env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.dir.path()).env("POOL_STATE_DIR", self.dir.path()).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a `poolctl` with the words of this line as arguments.
    pub(crate) fn run(&self, line: &str) -> Ran {
        Ran::new(&self.poolctl(line.split(' ')).output().unwrap())
    }

    /// The document that a successful `poolctl` prints.
    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(line).success()).unwrap()
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// The output of a successful command without errors.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn read_payload(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).ok()?;
    let mut payload = vec![0; frame::length(prefix).unwrap()];
    stream.read_exact(&mut payload).ok()?;
    Some(payload)
}

fn welcome(stream: &mut UnixStream, version: u16) -> Option<Role> {
    let hello: Hello = frame::decode(&read_payload(stream)?).unwrap();
    let build = "fake".to_owned();
    let welcome = Welcome { version, epoch: Epoch(1), seq: Seq(0), build, capabilities: Vec::new() };
    stream.write_all(&frame::encode::<HelloReply>(&Ok(welcome)).unwrap()).ok()?;
    Some(hello.role)
}

fn converse(mut stream: UnixStream, calls: &Mutex<Vec<Call>>, script: &Script) {
    if welcome(&mut stream, VERSION).is_none() {
        return;
    }
    while let Some(payload) = read_payload(&mut stream) {
        let call: Call = frame::decode(&payload).unwrap();
        calls.lock().unwrap().push(call.clone());
        let id = call.id;
        let part = |part| Frame::Part { id, part };
        let (frames, go_on) = match script(&call) {
            Answer::Reply(reply) => (vec![Frame::Reply { id, reply }], true),
            Answer::Parts(parts, last) => {
                (parts.into_iter().map(part).chain([Frame::Reply { id, reply: Ok(last) }]).collect(), true)
            }
            Answer::Frames(frames) => (frames, false),
            Answer::Among(before, reply, after) => {
                (before.into_iter().chain([Frame::Reply { id, reply }]).chain(after).collect(), true)
            }
            Answer::HangUp => (Vec::new(), false),
            Answer::Silence => (Vec::new(), true),
        };
        let sent = frames.iter().try_for_each(|frame| stream.write_all(&frame::encode(frame).unwrap()));
        if sent.is_err() || !go_on {
            return;
        }
    }
}

/// Writes its process id into a file beside the program, and a line into its log.
fn introduce(program: &Path) {
    let (fresh, pid) = (program.with_extension("new"), program.with_extension("pid"));
    std::fs::write(&fresh, std::process::id().to_string()).unwrap();
    std::fs::rename(fresh, pid).unwrap();
    println!("{} speaks", program.file_name().unwrap().display());
}

/// The build of this fake `poold`, if the file `build` beside the program named one at the start.
static BUILD: OnceLock<String> = OnceLock::new();

/// Acts as a daemon that knows only its connections.
pub(crate) fn poold(program: &Path) -> ExitCode {
    introduce(program);
    std::fs::read_to_string(program.with_file_name("build"))
        .into_iter()
        .for_each(|build| BUILD.set(build).unwrap());
    let socket = PathBuf::from(std::env::var_os("POOL_SOCKET").unwrap());
    drop(std::fs::remove_file(&socket));
    let connected: Arc<Mutex<Vec<Role>>> = Arc::default();
    for stream in UnixListener::bind(&socket).unwrap().incoming() {
        let (connected, program) = (connected.clone(), program.to_owned());
        thread::spawn(move || attend(stream.unwrap(), &program, &connected));
    }
    ExitCode::SUCCESS
}

/// The version of the protocol that this fake `poold` speaks: that of the file `version` beside the program, which may
/// name the process that it is meant for.
fn spoken(program: &Path) -> u16 {
    let text = std::fs::read_to_string(program.with_file_name("version")).unwrap_or_default();
    match text.split(' ').collect::<Vec<_>>().as_slice() {
        [pid, version] if *pid == std::process::id().to_string() => version.parse().unwrap(),
        [version] if !version.is_empty() => version.parse().unwrap(),
        _ => VERSION,
    }
}

fn attend(mut stream: UnixStream, program: &Path, connected: &Mutex<Vec<Role>>) {
    let Some(role) = welcome(&mut stream, spoken(program)) else { return };
    connected.lock().unwrap().push(role);
    while let Some(payload) = read_payload(&mut stream) {
        let call: Call = frame::decode(&payload).unwrap();
        let response = match call.request {
            Request::Status => Response::Status(Box::new(status(program, &connected.lock().unwrap()))),
            Request::List(_) => Response::Sessions(vec![samples::session("web")]),
            _ => Response::Done,
        };
        let reply = Frame::Reply { id: call.id, reply: Ok(response) };
        if stream.write_all(&frame::encode(&reply).unwrap()).is_err() {
            break;
        }
    }
    let mut connected = connected.lock().unwrap();
    let at = connected.iter().position(|found| *found == role).unwrap();
    connected.remove(at);
}

fn status(program: &Path, connected: &[Role]) -> protocol::reply::Status {
    let mut status = samples::status();
    status.process = process::identity::me().unwrap();
    status.build = BUILD.get().cloned().unwrap_or(status.build);
    status.state_dir = std::env::var_os("POOL_STATE_DIR").unwrap().into();
    for (component, role) in status.components.iter_mut().zip([Role::Watcher, Role::Reaper]) {
        component.connected = connected.contains(&role);
        let pid = std::fs::read_to_string(program.with_file_name(format!("{}.pid", component.name)));
        component.pid = pid.ok().and_then(|pid| pid.parse().ok());
    }
    status
}

/// Acts as the watcher or the reaper: stays connected.
pub(crate) fn component(program: &Path, role: Role) -> ExitCode {
    introduce(program);
    let socket = PathBuf::from(std::env::var_os("POOL_SOCKET").unwrap());
    loop {
        if let Ok((mut connection, _)) = Connection::connect(&socket, &Hello::new(role, "", "fake")) {
            connection.set_timeout(None);
            drop(connection.next_frame());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The programs for `up`: links to this one under their names.
pub(crate) fn programs(dir: &Path) -> PathBuf {
    let bin = dir.join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["poold", "tmux-watch", "reaper"] {
        symlink(std::env::current_exe().unwrap(), bin.join(name)).unwrap();
    }
    bin
}
