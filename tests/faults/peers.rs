//! Arbitrary bytes on the socket, from friends and strangers. The daemon answers or hangs up, and goes on.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::hello::HelloReply;
use protocol::request::Events;
use protocol::{Call, ConnectError, ErrorCode, Hello, Refusal, Request, Role, Seq, frame};

use super::support::{has, under};
use crate::harness::{Output, PATIENCE, Pool, Program, alive, wait_until};

/// A connection that has sent nothing.
#[track_caller]
fn stranger(pool: &Pool) -> UnixStream {
    let stream = UnixStream::connect(pool.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn hello(role: Role) -> Hello {
    Hello::new(role, "default", "test")
}

/// A welcomed connection.
#[track_caller]
fn welcomed(pool: &Pool) -> UnixStream {
    let mut stream = stranger(pool);
    stream.write_all(&frame::encode(&hello(Role::Client)).unwrap()).unwrap();
    assert!(answer(&mut stream).unwrap().is_ok());
    stream
}

/// The next frame; `None` where the daemon hung up.
fn payload(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut payload = vec![0; usize::try_from(u32::from_le_bytes(length)).unwrap()];
    stream.read_exact(&mut payload).ok()?;
    Some(payload)
}

fn answer(stream: &mut UnixStream) -> Option<HelloReply> {
    payload(stream).map(|payload| frame::decode(&payload).unwrap())
}

/// Sends `bytes`; returns the daemon's last frame before it hangs up, which it must.
#[track_caller]
fn rejected(mut stream: UnixStream, bytes: &[u8]) -> Option<Vec<u8>> {
    // The daemon may hang up before it has read everything.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(Shutdown::Write));
    let said = payload(&mut stream);
    assert!(payload(&mut stream).is_none(), "it goes on after {said:?}");
    said
}

#[track_caller]
fn is_well(pool: &Pool, pid: u32) {
    pool.ok(&["ls"]);
    assert_eq!((pool.pid(Program::Poold), pool.ended(Program::Poold)), (Some(pid), None));
}

/// A pool with nothing but a working `poold`; its pid.
fn lone() -> (Pool, u32) {
    let pool = Pool::bare("");
    let pid = pool.start_poold();
    (pool, pid)
}

/// Byte sequences that are no frame of the protocol.
fn abuses() -> Vec<(&'static str, Vec<u8>)> {
    let long = |length: u32| [&length.to_le_bytes()[..], &[7; 64]].concat();
    let bomb = [&10_u32.to_le_bytes()[..], &[5, 253], &[0xff; 8]].concat();
    let good = frame::encode(&hello(Role::Client)).unwrap();
    let longer = u32::from_le_bytes(good[..4].try_into().unwrap()) + 1;
    let trailing = [&longer.to_le_bytes()[..], &good[4..], &[0]].concat();
    vec![
        ("garbage", (0..4096_u32).map(|n| u8::try_from(n * 131 % 251).unwrap()).collect()),
        ("text", b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n".to_vec()),
        ("nothing in it", long(0)),
        ("4 GiB", long(u32::MAX)),
        ("2 GiB", long(1 << 31)),
        ("a byte too long", long((1 << 20) + 1)),
        ("a bomb", bomb),
        ("a byte more than it needs", trailing),
        ("half a hello", good[..good.len() / 2].to_vec()),
        ("half a length", vec![1, 0]),
        ("no byte", Vec::new()),
    ]
}

#[test]
fn s03_bytes_of_any_kind_end_their_own_connection_only() {
    let (pool, pid) = lone();
    let mut good = welcomed(&pool);
    for (what, bytes) in abuses() {
        let said = rejected(stranger(&pool), &bytes);
        if let Some(said) = said {
            let refusal = frame::decode::<HelloReply>(&said).unwrap().unwrap_err();
            assert_eq!(refusal.code, ErrorCode::Protocol, "{what}");
        }
        rejected(welcomed(&pool), &bytes);
        is_well(&pool, pid);
    }
    good.write_all(&frame::encode(&Call { id: 1, op: None, lock: None, request: Request::Ping }).unwrap())
        .unwrap();
    assert!(payload(&mut good).is_some(), "an earlier connection is still served");
}

#[test]
fn hellos_that_do_not_fit_are_told_why() {
    let (pool, pid) = lone();
    let refusal = |hello: &Hello| -> Refusal {
        let mut stream = stranger(&pool);
        stream.write_all(&frame::encode(hello).unwrap()).unwrap();
        answer(&mut stream).unwrap().unwrap_err()
    };
    let client = hello(Role::Client);
    let old = refusal(&Hello { version: 0, ..client.clone() });
    assert!(old.code == ErrorCode::Protocol && old.message.contains("upgrade test"), "{old:?}");
    let magic = refusal(&Hello { magic: 1, ..client.clone() });
    assert_eq!(magic.code, ErrorCode::Protocol);
    let other = pool.ctl(&["--pool", "other", "--socket", pool.socket().to_str().unwrap(), "ls"]).expect(8);
    assert!(other.stderr.contains("other"), "{}", other.stderr);
    // A newer client is welcomed with the version that both speak.
    let newer = Hello { version: u16::MAX, ..client };
    let (_, welcome) = Connection::connect(&pool.socket(), &newer).unwrap();
    assert_eq!(welcome.version, protocol::hello::VERSION);
    is_well(&pool, pid);
}

#[test]
fn s04_silent_and_dribbling_strangers_keep_nobody_waiting() {
    let (pool, pid) = lone();
    let silent: Vec<UnixStream> = (0..64).map(|_| stranger(&pool)).collect();
    let mut dribbling: Vec<UnixStream> = (0..64).map(|_| stranger(&pool)).collect();
    let bytes = frame::encode(&hello(Role::Client)).unwrap();
    for byte in &bytes[..8] {
        for stream in &mut dribbling {
            // The connections silent for longest were cut to make room.
            drop(stream.write_all(&[*byte]));
        }
        // A stranger has 5 s for its hello, and makes room after half a second when others wait. One client,
        // once: a second one would find the room that the first one waited for.
        pool.ok(&["--timeout", "3s", "ls"]);
    }
    drop((silent, dribbling));
    is_well(&pool, pid);
}

#[test]
fn who_does_not_read_or_is_gone_keeps_nobody_waiting() {
    let (pool, pid) = lone();
    let before = open_files(pid);
    let value = "v".repeat(900);
    let labels: Vec<String> = (0..60).map(|n| format!("k{n}={value}")).collect();
    pool.start(Program::Watch);
    pool.script("web", "exec cat");
    for n in 0..12 {
        let mut args = vec!["label".to_owned(), "web".to_owned(), format!("n={n}")];
        args.extend(labels.iter().cloned());
        pool.ok(&args);
    }
    let all = Request::Events(Events { since: Seq(0), limit: 100_000 });
    let ask = |id| frame::encode(&Call { id, op: None, lock: None, request: all.clone() }).unwrap();
    let ask_many = |stream: &mut UnixStream| {
        let bytes: Vec<u8> = (1..=4).flat_map(ask).collect();
        stream.write_all(&bytes).unwrap();
    };
    let mut deaf: Vec<UnixStream> = (0..20).map(|_| welcomed(&pool)).collect();
    deaf.iter_mut().for_each(ask_many);
    for _ in 0..12 {
        let mut stream = welcomed(&pool);
        ask_many(&mut stream);
        let mut first = [0; 100];
        stream.read_exact(&mut first).unwrap();
    }
    is_well(&pool, pid);
    drop(deaf);
    wait_until("all of them are forgotten", PATIENCE, || open_files(pid) <= before + 8);
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

#[test]
fn two_thousand_visitors_leave_nothing_behind() {
    let (pool, pid) = lone();
    let before = open_files(pid);
    for n in 0..2000 {
        let mut stream = stranger(&pool);
        if n % 2 == 1 {
            // Some send the start of a frame.
            drop(stream.write_all(&[29, 0, 0]));
        }
    }
    is_well(&pool, pid);
    wait_until("all of them are forgotten", PATIENCE, || open_files(pid) <= before);
}

#[test]
fn s06_with_few_open_files_the_surplus_is_turned_away() {
    let pool = Pool::bare("");
    let pid = pool.start_as(Program::Poold, under(&pool, "ulimit -n 64; exec"));
    pool.await_poold();
    pool.start(Program::Watch);
    pool.script("web", "exec cat");
    let connect = |_| Connection::connect_within(&pool.socket(), &hello(Role::Client), Some(PATIENCE));
    let mut held = Vec::new();
    let mut refused = 0;
    for result in (0..100).map(connect) {
        match result {
            Ok((connection, _)) => held.push(connection),
            Err(ConnectError::Refused(refusal)) => {
                assert_eq!(refusal.code, ErrorCode::Unavailable);
                refused += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(held.len() >= 16 && refused > 0, "{} held, {refused} refused", held.len());
    pool.ctl(&["ls"]).expect(7);
    for connection in &mut held {
        connection.set_timeout(Some(PATIENCE));
        assert!(connection.call(None, None, Request::Ping).unwrap().is_ok(), "an open connection is served");
    }
    // Work on their behalf still succeeds: tmux is run, files are written.
    let new = protocol::request::Capture {
        session: protocol::SessionRef("web".to_owned()),
        extent: protocol::request::Extent::Visible,
        ansi: false,
    };
    assert!(held[0].call(None, None, Request::Capture(new)).unwrap().is_ok());
    drop(held);
    pool.await_poold();
    is_well(&pool, pid);
    assert!(alive(pid));
}

/// Processor time that a process has used.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn s06_without_a_descriptor_for_a_connection_it_waits_and_neither_ends_nor_spins() {
    /// Failed attempts to accept, each followed by a pause of 50 ms.
    const ATTEMPTS: usize = 20;
    if !cfg!(target_os = "linux") || !has("prlimit") {
        return;
    }
    let (pool, pid) = lone();
    let limit = |files: &str| {
        let mut command = pool.command("prlimit");
        command.arg("--pid").arg(pid.to_string()).arg(format!("--nofile={files}:"));
        Output::of(&mut command, b"").expect(0)
    };
    let failed = || {
        let log = std::fs::read_to_string(pool.path("poold.log")).unwrap();
        log.lines().filter(|line| line.contains("cannot accept a connection")).count()
    };
    limit("3");
    let mut waiting = stranger(&pool);
    waiting.write_all(&frame::encode(&hello(Role::Client)).unwrap()).unwrap();
    wait_until("it cannot accept", PATIENCE, || failed() > 0);
    let (began, used, before) = (Instant::now(), processor_time(pid), failed());
    wait_until("it has tried again and again", PATIENCE, || failed() >= before + ATTEMPTS);
    let (took, used) = (began.elapsed(), processor_time(pid) - used);
    assert!(took > Duration::from_millis(500), "it pauses: {ATTEMPTS} attempts in {took:?}");
    assert!(used * 2 < took, "it used {used:?} of {took:?}");
    limit("1024");
    assert!(answer(&mut waiting).unwrap().is_ok(), "who waited is served");
    is_well(&pool, pid);
}

#[test]
fn the_watcher_is_one() {
    let pool = Pool::new();
    let first = pool.json(&["status"])["components"][0]["pid"].clone();
    let second =
        Connection::connect_within(&pool.socket(), &hello(Role::Watcher), Some(Duration::from_secs(20)));
    match second {
        Err(ConnectError::Refused(refusal)) => assert_eq!(refusal.code, ErrorCode::Conflict),
        other => panic!("{other:?}"),
    }
    let waiting = pool.start(Program::Watch);
    for _ in 0..3 {
        pool.ok(&["sync"]);
        assert_eq!(pool.json(&["status"])["components"][0]["pid"], first, "the first one stays");
    }
    assert!(alive(waiting), "the second one waits for its turn");
    crate::harness::send_signal(
        u32::try_from(first.as_u64().unwrap()).unwrap(),
        nix::sys::signal::Signal::SIGKILL,
    );
    wait_until("it takes over", PATIENCE, || {
        let status = pool.ctl(&["--json", "status"]);
        status.code == 0 && status.json()["components"][0]["pid"] == waiting
    });
}
