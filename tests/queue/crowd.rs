//! A well-behaved client makes progress among many others, some of them hostile.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::request::{Send, Subscribe};
use protocol::{Frame, Hello, Request, Response, Role, Seq, SessionRef, frame};

use super::events::memory;
use super::support::{Client, claiming, held, sending, session};
use crate::faults::support::crashing;
use crate::harness::{PATIENCE, Pool, Program, is_stopped, send_signal, wait_until};

/// A half-open connection in one of four ways: silent, three bytes of a hello, a hello without its last byte,
/// a truncated call. The caller replaces those that the pool cuts.
fn half_open(pool: &Pool, n: usize) -> UnixStream {
    let mut stream = UnixStream::connect(pool.socket()).unwrap();
    let hello = frame::encode(&Hello::new(Role::Client, "", "half")).unwrap();
    let said: &[u8] = match n % 4 {
        0 => &[],
        1 => &hello[..3],
        2 => &hello[..hello.len() - 1],
        _ => &[hello.as_slice(), b"\x10\0\0\0half"].concat(),
    };
    // The pool may have cut it already.
    drop(stream.write_all(said));
    stream
}

/// Stops the tmux server and sends a message that therefore cannot be typed; returns the server's pid.
fn stick(pool: &Pool) -> u32 {
    let tmux = pool.tmux_pid().unwrap();
    send_signal(tmux, Signal::SIGSTOP);
    wait_until("it is stopped", PATIENCE, || is_stopped(tmux));
    pool.ok(&["send", "stuck", "never typed"]);
    tmux
}

#[test]
fn s04_q09_a_good_client_goes_on_among_bad_ones() {
    const BAD: usize = 256;
    const GOOD: usize = 4;
    const MESSAGES: usize = 60;
    let pool = super::support::pool("");
    session(&pool, "stuck");
    let tmux = stick(&pool);
    let hello = Hello::new(Role::Subscriber, "", "deaf");
    let deaf: Vec<Connection> = (0..4)
        .map(|_| {
            let (mut connection, _) =
                Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).unwrap();
            connection.send(Request::Subscribe(Subscribe { since: Some(Seq(0)) })).unwrap();
            connection
        })
        .collect();
    let work = |n: usize| {
        let kind = format!("k{n}");
        let mut client = Client::new(&pool);
        for _ in 0..MESSAGES {
            let id = client.send(&kind, b"text");
            let claimed = client.take(&[&kind]).unwrap();
            assert_eq!(claimed.message.id, id);
            client.ack(held(&claimed)).unwrap();
        }
    };
    let bad = thread::scope(|scope| {
        let bad = scope.spawn(|| (0..BAD).map(|n| half_open(&pool, n)).collect::<Vec<_>>());
        let good: Vec<_> = (0..GOOD).map(|n| scope.spawn(move || work(n))).collect();
        good.into_iter().for_each(|good| good.join().unwrap());
        bad.join().unwrap()
    });
    // New clients are served while all of them are connected.
    work(GOOD);
    pool.ok(&["send", "web", "--kind", "a", "text"]);
    let used = memory(pool.pid(Program::Poold).unwrap());
    assert!(used < 100 << 20, "{} MiB", used >> 20);
    assert_eq!(pool.show("web")["total_requests"], ((GOOD + 1) * MESSAGES + 1) as u64);
    drop((bad, deaf));
    send_signal(tmux, Signal::SIGCONT);
}

/// Commits that may happen in the following test. Each message costs its own commit, and the one that was
/// under way when it came; everything else of the pool has some as well.
const COMMITS_MAX: usize = 2 * SENDS + 120;
const SENDS: usize = 60;

#[test]
fn q09_a_client_waits_for_no_more_than_one_commit_however_many_others_send() {
    const OTHERS: usize = 24;
    let pool = Pool::bare("");
    // The daemon dies at the first commit too many.
    pool.start_as(Program::Poold, crashing(&pool, &format!("commit-begin:{COMMITS_MAX}")));
    pool.await_poold();
    ["web", "other", "stuck"].iter().for_each(|name| drop(session(&pool, name)));
    let tmux = stick(&pool);
    let is_over = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let flood = || {
            let mut client = Client::new(&pool);
            let send = Send { session: SessionRef("other".to_owned()), ..sending("a", b"text") };
            (0..)
                .take_while(|_| !is_over.load(Ordering::Relaxed) && client.sent(send.clone()).is_ok())
                .count()
        };
        let others: Vec<_> = (0..OTHERS).map(|_| scope.spawn(flood)).collect();
        let mut good = Client::new(&pool);
        for _ in 0..SENDS {
            good.send("a", b"text");
        }
        is_over.store(true, Ordering::Relaxed);
        others.into_iter().map(|other| other.join().unwrap()).sum::<usize>()
    });
    assert!(sent > COMMITS_MAX, "only {sent} others: they were no crowd");
    assert_eq!(pool.ended(Program::Poold), None);
    send_signal(tmux, Signal::SIGCONT);
}

/// Calls of a connection that may be in progress, as `Call` says.
const CALLS_MAX: usize = 64;

#[test]
fn q09_a_connection_has_64_calls_in_progress_and_the_next_waits_for_the_end_of_one() {
    let pool = super::support::pool("");
    let mut client = Client::new(&pool);
    let wait = |client: &mut Client| {
        client.connection.send(Request::Claim(claiming(&["a"], 1, PATIENCE * 2))).unwrap()
    };
    let mut claims: Vec<u64> = (1..CALLS_MAX).map(|_| wait(&mut client)).collect();
    assert_eq!(client.call(None, Request::Ping), Ok(Response::Done), "one more is answered beside them");
    claims.push(wait(&mut client));
    let ping = client.connection.send(Request::Ping).unwrap();
    // Others are served meanwhile, in turns after any in which the ping could have been answered.
    let mut other = Client::new(&pool);
    for _ in 0..CALLS_MAX {
        assert_eq!(other.call(None, Request::Ping), Ok(Response::Done));
    }
    other.send("a", b"text");
    let mut answered = || match client.connection.next_frame().unwrap() {
        Frame::Reply { id, reply } => (id, reply),
        frame => panic!("{frame:?}"),
    };
    let (first, reply) = answered();
    assert!(claims.contains(&first), "answered {first} before a claim ended: {reply:?}");
    assert_eq!(answered(), (ping, Ok(Response::Done)));
}

#[test]
fn o05_what_clients_leave_behind_is_given_back() {
    let pool = super::support::pool("");
    let poold = pool.pid(Program::Poold).unwrap();
    let count = |what: &str| std::fs::read_dir(format!("/proc/{poold}/{what}")).map_or(0, Iterator::count);
    let visit = || {
        thread::scope(|scope| {
            for n in 0..16 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut client = Client::new(pool);
                    client.send("a", b"text");
                    drop(client.take(&["a"]));
                    drop(half_open(pool, n));
                });
            }
        });
    };
    visit();
    let settled = |before: Option<(usize, usize)>| {
        let mut last = (usize::MAX, usize::MAX);
        wait_until("its descriptors and threads are as before", PATIENCE, || {
            let now = (count("fd"), count("task"));
            let same = std::mem::replace(&mut last, now) == now;
            before.map_or(same, |(fds, threads)| now.0 <= fds && now.1 <= threads + 2)
        });
        last
    };
    let before = settled(None);
    (0..5).for_each(|_| visit());
    settled(Some(before));
}

#[test]
fn o05_many_clients_come_and_go_and_the_memory_stays() {
    /// Connections at a time, and rounds of them: before the memory counts, and after.
    const CROWD: usize = 16;
    const ROUNDS: (usize, usize) = (20, 60);
    /// More than the allocator keeps, and less than 16 KiB for each connection.
    const GROWTH_MAX: u64 = 12 << 20;
    let pool = super::support::pool("");
    let poold = pool.pid(Program::Poold).unwrap();
    let visit = |rounds: usize| {
        for _ in 0..rounds {
            thread::scope(|scope| {
                for n in 0..CROWD {
                    let pool = &pool;
                    scope.spawn(move || {
                        let mut client = Client::new(pool);
                        // A request and an answer that are not small.
                        let asked = protocol::request::List {
                            agent: Some("a".repeat(200)),
                            labels: (0..50).map(|n| (format!("k{n}"), "v".repeat(2000))).collect(),
                            ..Default::default()
                        };
                        drop(client.connection.call(None, None, protocol::Request::List(asked)));
                        drop(client.take(&["none"]));
                        drop(half_open(pool, n));
                    });
                }
            });
        }
    };
    visit(ROUNDS.0);
    let before = memory(poold);
    visit(ROUNDS.1);
    let mut after = 0;
    wait_until("the memory of those that have left is given back", PATIENCE, || {
        after = memory(poold);
        after < before + GROWTH_MAX
    });
}
