//! A session's live output: every byte at its offset, whatever happens to the session, its log, poold or the
//! reader; and the terminal: its snapshot, input and resizing.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::reply::Terminal;
use protocol::request::{Input, Output, Resize};
use protocol::{
    ErrorCode, Frame, OpId, OsBytes, Refusal, Request, Response, Role, SessionRef, Size, TransportError,
};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Pool, Program, Talk, log_writers, send_signal, wait_until};
use crate::queue::support::connect;

/// Log parts of half a megabyte, none of which is removed while a test runs.
const MANY_PARTS: &str = "[logs]\nmax_size = '16MiB'\nkeep = 31\n[reaper]\ngrace = '200ms'\n";
/// Number of lines that make the log rotate.
const LINES: usize = 300_000;

/// An agent that may be parked and prints the number of its run.
const PARKABLE: &str = r#"
[reaper]
grace = "200ms"
[agents.talker]
command = "sh"
args = ["-c", 'echo x >>runs; echo "run" $(wc -l <runs); exec cat']
parkable = true
"#;

fn numbers() -> String {
    (1..=LINES).map(|n| format!("{n}\r\n")).collect()
}

/// A subscriber to a session's output.
struct Viewer {
    connection: Connection,
    /// Bytes received, and the offset of the first of them.
    bytes: Vec<u8>,
    first: u64,
    /// Offsets at which the stream continued after a gap.
    truncated: Vec<u64>,
    closed: Option<u64>,
}

impl Viewer {
    #[track_caller]
    fn new(pool: &Pool, session: &str, from: Option<u64>) -> Self {
        let mut connection = connect(pool, Role::Subscriber);
        connection.send(Request::Output(Output { session: SessionRef(session.to_owned()), from })).unwrap();
        let first = match connection.next_frame().unwrap() {
            Frame::Output { offset, bytes } if bytes.0.is_empty() => offset,
            other => panic!("{other:?}"),
        };
        Self { connection, bytes: Vec::new(), first, truncated: Vec::new(), closed: None }
    }

    /// Processes the next frame.
    #[track_caller]
    fn read(&mut self) {
        let end = self.first + self.bytes.len() as u64;
        match self.connection.next_frame().unwrap() {
            Frame::Output { offset, bytes } => {
                assert_eq!(offset, end, "no gap, nothing twice");
                assert!((1..=64 << 10).contains(&bytes.0.len()), "{} bytes", bytes.0.len());
                self.bytes.extend(bytes.0);
            }
            Frame::Truncated { offset } => {
                assert!(offset > end);
                self.truncated.push(offset);
                (self.first, self.bytes) = (offset, Vec::new());
            }
            Frame::Closed { offset } => {
                assert_eq!(offset, end);
                self.closed = Some(offset);
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn read_until(&mut self, holds: impl Fn(&str) -> bool) {
        while !holds(&String::from_utf8_lossy(&self.bytes)) {
            assert_eq!(self.closed, None, "{}", String::from_utf8_lossy(&self.bytes));
            self.read();
        }
    }

    #[track_caller]
    fn read_all(&mut self) {
        while self.closed.is_none() {
            self.read();
        }
        assert!(matches!(self.connection.next_frame(), Err(TransportError::Closed | TransportError::Io(_))));
    }
}

#[track_caller]
fn logged(pool: &Pool, session: &str) -> Vec<u8> {
    pool.ctl(&["logs", session, "--raw"]).expect(0).bytes
}

#[test]
fn every_byte_comes_over_rotation_and_restart_and_from_any_offset() {
    let pool = Pool::with(MANY_PARTS);
    let script = format!("read go; seq 1 {LINES}; echo the end; exec cat");
    let id = pool.script("web", &script);
    let mut viewer = Viewer::new(&pool, &id, Some(0));
    let go = || pool.ok(&["keys", &id, "Enter"]);
    go();
    viewer.read_until(|text| text.ends_with("the end\r\n"));
    pool.ok(&["restart", &id]);
    let one = viewer.bytes.len();
    go();
    viewer.read_until(|text| text.len() >= 2 * one && text.ends_with("the end\r\n"));
    let text = String::from_utf8(viewer.bytes.clone()).unwrap();
    assert_eq!(text.matches(&numbers()).count(), 2);
    let mut late = Viewer::new(&pool, &id, None);
    assert_eq!(late.first, viewer.bytes.len() as u64, "from now on");
    pool.ok(&["kill", &id]);
    viewer.read_all();
    late.read_all();
    assert!(viewer.truncated.is_empty() && viewer.first == 0);
    assert!(viewer.bytes == logged(&pool, &id), "as it is in the log");
    let parts = fs::read_dir(pool.dir(&id).join("logs")).unwrap().count();
    assert!(parts > 5, "{parts} files: it was rotated");
    // A subscriber that comes after the end may also start anywhere: in an early part, at its end, and
    // beyond.
    let end = viewer.closed.unwrap();
    for from in [0, 1, 700_001, one as u64, end - 1, end, end + 1000] {
        let mut viewer = Viewer::new(&pool, &id, Some(from));
        assert_eq!(viewer.first, from.min(end), "it is told where the output begins");
        let rest = &logged(&pool, &id)[usize::try_from(from.min(end)).unwrap()..];
        viewer.read_all();
        assert!(viewer.bytes == rest, "{} bytes from {from} on", viewer.bytes.len());
    }
}

#[test]
fn what_is_not_kept_any_more_is_said() {
    let pool =
        Pool::with("[logs]\nmax_size = '1MiB'\nkeep = 3\ncompress = false\n[reaper]\ngrace = '200ms'\n");
    let id = pool.script("web", &format!("seq 1 {LINES}; echo the end; exec cat"));
    wait_until("all is logged", PATIENCE, || logged(&pool, &id).ends_with(b"the end\r\n"));
    let mut viewer = Viewer::new(&pool, &id, Some(5));
    viewer.read_until(|text| text.ends_with("the end\r\n"));
    assert_eq!(viewer.truncated.len(), 1);
    assert_eq!(viewer.first + viewer.bytes.len() as u64, (numbers().len() + "the end\r\n".len()) as u64);
    assert!(viewer.bytes == logged(&pool, &id));
    // Everything is read, so nothing of it is missed.
    pool.ok(&["clear", &id]);
    pool.ok(&["keys", &id, "x", "Enter"]);
    viewer.read_until(|text| text.contains('x'));
    assert_eq!(viewer.truncated.len(), 1);
    let mut after = Viewer::new(&pool, &id, Some(5));
    after.read_until(|text| text.contains('x'));
    assert_eq!(
        after.truncated,
        [viewer.first + viewer.bytes.iter().position(|b| *b == b'x').unwrap() as u64]
    );
}

#[test]
fn a_reader_that_stops_is_only_behind_and_holds_nobody_up() {
    let pool = Pool::with(MANY_PARTS);
    let id = pool.script("web", &format!("read go; seq 1 {LINES}; seq 1 {LINES}; echo the end; exec cat"));
    let mut slow = Viewer::new(&pool, &id, Some(0));
    let mut quick = Viewer::new(&pool, &id, Some(0));
    pool.ok(&["keys", &id, "Enter"]);
    quick.read_until(|text| text.ends_with("the end\r\n"));
    assert_eq!(pool.ok(&["ls", "--json"]).lines().count(), 1, "poold answers");
    slow.read_until(|text| text.ends_with("the end\r\n"));
    assert!(slow.bytes == quick.bytes && slow.truncated.is_empty());
}

#[test]
fn parking_waking_and_removal_are_followed() {
    let pool = Pool::with(PARKABLE);
    let id = pool.ok(&["new", "web", "--agent", "talker"]);
    let mut viewer = Viewer::new(&pool, &id, Some(0));
    viewer.read_until(|text| text.contains("run 1\r\n"));
    pool.ok(&["park", &id, "--force"]);
    pool.await_lifecycle(&id, "parked");
    pool.ok(&["restore", &id]);
    viewer.read_until(|text| text.contains("run 2\r\n"));
    pool.ok(&["rm", &id, "--force"]);
    viewer.read_all();
    let refused = |session: &str| -> Refusal {
        let mut connection = connect(&pool, Role::Subscriber);
        let session = SessionRef(session.to_owned());
        connection.send(Request::Output(Output { session, from: None })).unwrap();
        match connection.next_frame().unwrap() {
            Frame::Reply { reply: Err(refusal), .. } => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&id).code, ErrorCode::NotFound);
}

#[test]
fn a_program_that_ends_is_followed_to_the_end_of_its_log() {
    let pool = Pool::new();
    for n in 0..20 {
        let id = pool.script(&format!("s{n}"), "seq 1 2000; printf 'the last word'");
        let mut viewer = Viewer::new(&pool, &id, Some(0));
        viewer.read_all();
        let all = logged(&pool, &id);
        assert!(viewer.bytes == all, "{} of {} bytes", viewer.bytes.len(), all.len());
        assert!(all.ends_with(b"\r\n2000\r\nthe last word"), "{} bytes", all.len());
    }
}

/// tmux has not yet read a program's last output when the program ends; it must not take the end for the end
/// of the output, nor remove the pane.
#[test]
fn what_is_printed_last_is_kept_however_late_tmux_reads_it() {
    let pool = Pool::new();
    let script = "while [ ! -e \"$0\" ]; do sleep 0.01; done; seq 1 2000; printf 'the last word'";
    for round in 0..6 {
        let go = pool.path(format!("go{round}"));
        let start =
            |n| pool.ok(&["new", &format!("s{round}-{n}"), "--", "sh", "-c", script, go.to_str().unwrap()]);
        let ids = [1, 2, 3].map(start);
        let viewers = ids.each_ref().map(|id| Viewer::new(&pool, id, Some(0)));
        let tmux = pool.tmux_pid().unwrap();
        send_signal(tmux, Signal::SIGSTOP);
        fs::write(&go, "").unwrap();
        // Checked with one listing, since the inits wait for tmux only for a moment.
        wait_until("their programs are over", PATIENCE, || {
            let all = pool.lines(&["ls", "--all"]);
            let over = |id: &String| all.iter().any(|s| s["id"] == **id && s["lifecycle"] != "live");
            ids.iter().all(over)
        });
        // Time for an init that would not wait for tmux.
        std::thread::sleep(Duration::from_millis(300));
        send_signal(tmux, Signal::SIGCONT);
        for mut viewer in viewers {
            viewer.read_all();
            assert!(viewer.bytes.ends_with(b"\r\n2000\r\nthe last word"), "{} bytes", viewer.bytes.len());
        }
    }
}

/// Much more than a terminal holds.
#[test]
fn all_of_a_long_output_is_kept() {
    let pool = Pool::new();
    let id = pool.script("web", "seq 1 30000; printf 'the last word'");
    let mut viewer = Viewer::new(&pool, &id, Some(0));
    viewer.read_all();
    let all: String = (1..=30_000).map(|n| format!("{n}\r\n")).collect();
    assert!(viewer.bytes == format!("{all}the last word").into_bytes(), "{} bytes", viewer.bytes.len());
}

#[test]
fn a_log_writer_that_is_late_is_waited_for() {
    let pool = Pool::new();
    let id = pool.script("web", "printf first; read go; printf 'the last word'");
    let mut viewer = Viewer::new(&pool, &id, Some(0));
    viewer.read_until(|text| text == "first");
    let [writer] = log_writers(&pool.dir(&id))[..] else { panic!("one writes") };
    send_signal(writer, Signal::SIGSTOP);
    pool.ok(&["keys", &id, "Enter"]);
    pool.await_lifecycle(&id, "stopped");
    send_signal(writer, Signal::SIGCONT);
    viewer.read_all();
    assert!(viewer.bytes.ends_with(b"the last word"), "{}", String::from_utf8_lossy(&viewer.bytes));
}

/// Makes one call, which may be refused.
fn call(pool: &Pool, op: Option<&str>, request: Request) -> Result<Response, Refusal> {
    connect(pool, Role::Client).call(op.map(|op| OpId::Named(op.to_owned())), None, request).unwrap()
}

fn input(pool: &Pool, op: &str, session: &str, bytes: &[u8]) -> Result<Response, Refusal> {
    let input = Input { session: SessionRef(session.to_owned()), bytes: OsBytes(bytes.to_vec()) };
    call(pool, Some(op), Request::Input(input))
}

fn terminal(pool: &Pool, session: &str) -> Result<Terminal, Refusal> {
    match call(pool, None, Request::Terminal(SessionRef(session.to_owned())))? {
        Response::Terminal(terminal) => Ok(*terminal),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_viewer_begins_with_the_screen_and_misses_nothing_after_it() {
    let pool = Pool::new();
    let id = pool.script("web", "printf '\\033]2;my title\\007\\033[31mready'; exec cat");
    let shown = || String::from_utf8(terminal(&pool, &id).unwrap().screen.0).unwrap();
    wait_until("it is ready", PATIENCE, || shown().contains("ready"));
    wait_until("and logged", PATIENCE, || logged(&pool, &id).ends_with(b"ready"));
    let begin = terminal(&pool, &id).unwrap();
    assert_eq!((begin.title.as_str(), begin.cursor, begin.alternate), ("my title", (5, 0), false));
    assert_eq!(begin.offset, logged(&pool, &id).len() as u64);
    assert!(shown().starts_with("\x1b[31mready"), "{}", shown());
    let mut viewer = Viewer::new(&pool, &id, Some(begin.offset));
    assert_eq!(input(&pool, "once", &id, b"hello\r"), Ok(Response::Done));
    viewer.read_until(|text| text.contains("hello\r\nhello\r\n"));
    // A repetition with the same operation id types nothing.
    assert_eq!(input(&pool, "once", &id, b"hello\r"), Ok(Response::Done));
    assert_eq!(input(&pool, "twice", &id, b"!\r"), Ok(Response::Done));
    viewer.read_until(|text| text.contains("!\r\n!\r\n"));
    assert_eq!(viewer.bytes.windows(5).filter(|part| part == b"hello").count(), 2, "echo and cat");
    assert_eq!(input(&pool, "nothing", &id, b"").unwrap_err().code, ErrorCode::Usage);
    assert_eq!(input(&pool, "much", &id, &[b'x'; (64 << 10) + 1]).unwrap_err().code, ErrorCode::Usage);
    pool.ok(&["kill", &id]);
    assert_eq!(input(&pool, "late", &id, b"x").unwrap_err().code, ErrorCode::Refused);
    assert_eq!(terminal(&pool, &id).unwrap_err().code, ErrorCode::Refused);
}

#[test]
fn input_is_exact_and_a_size_is_set() {
    let pool = Pool::new();
    let script = "trap 'stty size >size' WINCH; stty raw -echo; touch ready; while :; do \
                  dd bs=65536 count=1 2>/dev/null >>out; done";
    let id = pool.script("web", script);
    let work = pool.dir(&id).join("work");
    wait_until("it runs", PATIENCE, || work.join("ready").exists());
    let bytes: Vec<u8> = (0..=255).cycle().take(64 << 10).collect();
    assert_eq!(input(&pool, "bytes", &id, &bytes), Ok(Response::Done));
    wait_until("all arrive", PATIENCE, || {
        fs::read(work.join("out")).is_ok_and(|got| got.len() >= bytes.len())
    });
    assert!(fs::read(work.join("out")).unwrap() == bytes);
    let size =
        |cols, rows| Request::Resize(Resize { session: SessionRef(id.clone()), size: Size { cols, rows } });
    assert_eq!(call(&pool, Some("size"), size(61, 17)), Ok(Response::Done));
    assert_eq!(terminal(&pool, &id).unwrap().size, Size { cols: 61, rows: 17 });
    assert_eq!(input(&pool, "wake", &id, b"x"), Ok(Response::Done));
    wait_until("its program knows", PATIENCE, || {
        fs::read_to_string(work.join("size")).is_ok_and(|size| size == "17 61\n")
    });
    assert_eq!(call(&pool, Some("none"), size(0, 17)).unwrap_err().code, ErrorCode::Usage);
}

#[test]
fn rpc_prints_frames_until_it_is_over_and_outlives_poold() {
    let pool = Pool::new();
    let id = pool.script("web", "echo one; exec cat");
    let mut rpc = Talk::start(pool.poolctl().arg("rpc"));
    rpc.say(&json!({ "output": { "session": id, "from": 0 } }).to_string());
    let frames = |rpc: &Talk| -> Vec<Value> {
        rpc.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let text = |rpc: &Talk| -> String {
        let output = |frame: &Value| frame["frame"]["output"]["bytes"].as_str().map(str::to_owned);
        frames(rpc).iter().filter_map(output).collect()
    };
    wait_until("the first line", PATIENCE, || text(&rpc) == "one\r\n");
    pool.kill9(Program::Poold);
    pool.tmux(&["send-keys", "-t", "=web:", "two", "Enter"]).expect(0);
    pool.start_poold();
    wait_until("it goes on", PATIENCE, || text(&rpc) == "one\r\ntwo\r\ntwo\r\n");
    pool.ok(&["kill", &id]);
    let end = text(&rpc).len();
    let closed = |rpc: &Talk| frames(rpc).last().is_some_and(|frame| !frame["frame"]["closed"].is_null());
    wait_until("it is over", PATIENCE, || closed(&rpc));
    assert!(frames(&rpc).last().unwrap()["frame"]["closed"]["offset"].as_u64() >= Some(end as u64));
    // The connection answers further requests.
    rpc.say(&json!({ "output": { "session": "nobody", "from": null } }).to_string());
    rpc.say("\"ping\"");
    rpc.hang_up();
    assert_eq!(rpc.await_end(), Some(0));
    let lines = frames(&rpc);
    assert_eq!(lines[lines.len() - 2]["error"]["code"], "not_found");
    assert_eq!(lines[lines.len() - 1], json!({ "ok": "done" }));
}
