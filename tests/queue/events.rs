//! The journal: a follower gets every event, whatever dies on either side; and retention bounds it.

use std::thread;

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::request::{Ack, Subscribe};
use protocol::{Frame, Hello, OsBytes, Request, Role, Seq, TransportError};
use serde_json::Value;

use super::support::{Client, events, held, pool, send};
use crate::harness::{PATIENCE, Pool, Program, Talk, is_stopped, send_signal, wait_until};

/// Sequence number and event of a line of the stream; none for lines of the initial state.
fn streamed(line: &str) -> Option<(u64, Value)> {
    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let seq = event["seq"].as_u64().unwrap();
    (event["snapshot"] == false).then_some((seq, event))
}

/// Asserts that the follower has every event of the journal from the first on, once and in order.
#[track_caller]
fn has_all(pool: &Pool, follower: &Talk) {
    let journal: Vec<(u64, String)> = numbered(&pool.events());
    let last = journal.last().unwrap().0;
    let seen =
        || -> Vec<(u64, Value)> { follower.lines().iter().filter_map(|line| streamed(line)).collect() };
    wait_until("it has the last event", PATIENCE, || seen().last().is_some_and(|(seq, _)| *seq >= last));
    // More may have come since the journal was read: activity of a session is reported at any time.
    let seen = seen().into_iter().filter(|(seq, _)| *seq <= last).map(|(_, event)| event);
    let seen = numbered(&seen.collect::<Vec<_>>());
    let seqs = |all: &[(u64, String)]| all.iter().map(|(seq, _)| *seq).collect::<Vec<_>>();
    assert_eq!(seqs(&seen), seqs(&journal), "no gap, nothing twice");
    assert_eq!(seen, journal);
}

/// Sequence number and kind of each event.
fn numbered(events: &[Value]) -> Vec<(u64, String)> {
    let of = |event: &Value| (event["seq"].as_u64().unwrap(), event["kind"].as_str().unwrap().to_owned());
    events.iter().map(of).collect()
}

/// Runs `events --follow` from the first event on.
fn follow(pool: &Pool) -> Talk {
    Talk::start(pool.poolctl().args(["--json", "events", "--follow", "--since", "0"]))
}

/// Sends `messages` messages from several clients at once.
fn flood(pool: &Pool, messages: usize) {
    const CLIENTS: usize = 8;
    thread::scope(|scope| {
        for n in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = Client::new(pool);
                let send = |m: usize| {
                    let key = Some(format!("{n}-{m}-{}", "k".repeat(200)));
                    let origin = "o".repeat(200);
                    client
                        .sent(protocol::request::Send {
                            key,
                            origin,
                            ..super::support::sending("flood", b"x")
                        })
                        .unwrap();
                };
                (0..messages / CLIENTS).for_each(send);
            });
        }
    });
}

/// Works a message `times` times, each time with the longest result.
fn work(pool: &Pool, times: usize) {
    let mut client = Client::new(pool);
    let result = Some(OsBytes(vec![b'r'; protocol::message::RESULT_MAX]));
    for _ in 0..times {
        client.send("big", b"x");
        let claimed = client.take(&["big"]).unwrap();
        client.call(None, Request::Ack(Ack { held: held(&claimed), result: result.clone() })).unwrap();
    }
}

#[test]
fn who_follows_misses_nothing_when_the_daemon_is_killed() {
    let pool = pool("");
    let follower = follow(&pool);
    for round in 0..3 {
        (0..10).for_each(|n| drop(send(&pool, "a", &format!("{round} {n}"))));
        pool.restart_poold();
    }
    send(&pool, "a", "last");
    has_all(&pool, &follower);
    assert_eq!(events(&pool, &["message_queued"]).len(), 31);
}

#[test]
fn who_does_not_read_for_a_while_misses_nothing() {
    let pool = pool("[queue]\nmax_messages = 100000\n");
    let follower = follow(&pool);
    has_all(&pool, &follower);
    send_signal(follower.pid(), Signal::SIGSTOP);
    wait_until("it is stopped", PATIENCE, || is_stopped(follower.pid()));
    work(&pool, 80);
    flood(&pool, 1600);
    send_signal(follower.pid(), Signal::SIGCONT);
    has_all(&pool, &follower);
    assert!(events(&pool, &["message_done"]).len() == 80);
}

/// A subscriber directly on the socket.
struct Subscriber {
    connection: Connection,
}

impl Subscriber {
    #[track_caller]
    fn new(pool: &Pool, since: Option<Seq>) -> Self {
        let hello = Hello::new(Role::Subscriber, "", "test");
        let (mut connection, _) = Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).unwrap();
        connection.set_timeout(Some(PATIENCE));
        connection.send(Request::Subscribe(Subscribe { since })).unwrap();
        Self { connection }
    }

    /// Reads up to the mark: sequence numbers, each with whether it belongs to the initial state; then the
    /// mark.
    #[track_caller]
    fn beginning(&mut self) -> (Vec<(u64, bool)>, Seq) {
        let mut events = Vec::new();
        loop {
            match self.connection.next_frame().unwrap() {
                Frame::Event { stamped, snapshot } => events.push((stamped.seq.0, snapshot)),
                Frame::Synced { seq } => return (events, seq),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Produces more events than fit between the pool and a subscriber that does not read: first to fill the
/// buffers, then more than the pool keeps for it.
fn overtake(pool: &Pool) {
    work(pool, 40);
    flood(pool, 1600);
}

impl Subscriber {
    /// Reads until the pool cuts the connection: sequence numbers of the events, and the last one it was told
    /// to have.
    #[track_caller]
    fn rest(&mut self) -> (Vec<u64>, Option<Seq>) {
        let (mut events, mut told) = (Vec::new(), None);
        loop {
            match self.connection.next_frame() {
                Ok(Frame::Event { stamped, snapshot: false }) => events.push(stamped.seq.0),
                Ok(Frame::Lagged { from, to }) => {
                    assert!(to > from);
                    told = Some(from);
                }
                Ok(other) => panic!("{other:?}"),
                Err(TransportError::Closed | TransportError::Io(_)) => return (events, told),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn s05_a_subscriber_that_lags_is_cut_told_from_where_and_goes_on_there() {
    let pool = pool("[queue]\nmax_messages = 100000\n");
    let (mut seen, mut told) = (Vec::new(), None);
    // A subscriber that stays away too long, as on a busy machine, is cut off without a last word.
    for _ in 0..5 {
        let since = Seq(seen.last().copied().unwrap_or_default());
        let mut slow = Subscriber::new(&pool, Some(since));
        let (first, _) = slow.beginning();
        assert!(first.iter().all(|(_, snapshot)| !snapshot), "the journal reaches so far back");
        seen.extend(first.into_iter().map(|(seq, _)| seq));
        overtake(&pool);
        let (rest, from) = slow.rest();
        seen.extend(rest);
        assert!(from.is_none_or(|from| Some(&from.0) == seen.last()));
        told = told.or(from);
        if told.is_some() {
            break;
        }
    }
    assert!(told.is_some(), "it was never told");
    let journal: Vec<u64> = numbered(&pool.events()).into_iter().map(|(seq, _)| seq).collect();
    let (last, end) = (seen.last().copied().unwrap(), *journal.last().unwrap());
    assert!(last < end, "it was never slow");
    let (rest, synced) = Subscriber::new(&pool, Some(Seq(last))).beginning();
    seen.extend(rest.into_iter().map(|(seq, _)| seq));
    assert_eq!(Some(&synced.0), seen.last());
    // More may have come since the journal was read.
    seen.retain(|seq| *seq <= end);
    assert!(seen == journal, "no gap, nothing twice");
}

#[test]
fn o04_the_journal_is_cut_by_number_and_by_age_and_then_the_state_comes_first() {
    const EVENTS: usize = 4600;
    let of = |config: &str| {
        let quick = "[pool]\nidle_quiet = '100ms'\nidle_settle = '100ms'\n";
        let pool = pool(&format!("{quick}{config}[queue]\nmax_messages = 100000\n"));
        // Without this wait, the event that the session is idle would come in the middle.
        pool.ok(&["wait", "web", "--for", "idle"]);
        flood(&pool, EVENTS);
        let journal = numbered(&pool.events());
        let (first, last) = (journal[0].0, journal.last().unwrap().0);
        assert!(first > 1 && journal.len() < EVENTS, "{config}: {first} to {last}, {} events", journal.len());
        assert_eq!(journal.len() as u64, last - first + 1, "no gap");
        // A subscriber from before that point gets the state, with every message; one from after it does not.
        for (since, state) in [(Some(Seq(1)), true), (None, true), (Some(Seq(first)), false)] {
            let (events, synced) = Subscriber::new(&pool, since).beginning();
            assert_eq!(events.iter().any(|(_, snapshot)| *snapshot), state, "{config} since {since:?}");
            assert_eq!(synced.0, last, "{config}");
            if state {
                assert!(events.len() > EVENTS, "{config}: {}", events.len());
            } else {
                assert_eq!(events.len() as u64, last - first, "{config}");
            }
        }
        // Trimmed events stay trimmed, and events that have aged out are trimmed at the start; the messages
        // remain.
        pool.restart_poold();
        let after = numbered(&pool.events());
        let same: Vec<_> = after.iter().filter(|(seq, _)| *seq <= last).cloned().collect();
        assert!(journal.ends_with(&same), "{config}");
        assert!(
            after.iter().any(|(seq, kind)| *seq == last + 1 && kind == "pool_started"),
            "{config}: {after:?}"
        );
        assert_eq!(pool.show("web")["total_requests"], EVENTS as u64, "{config}");
    };
    thread::scope(|scope| {
        scope.spawn(move || of("[events]\nkeep = 300\n"));
        scope.spawn(move || of("[events]\nkeep_for = '1ms'\n"));
    });
}

#[test]
fn s05_many_subscribers_that_never_read_do_not_fill_the_memory() {
    const SILENT: usize = 16;
    let pool = pool("[queue]\nmax_messages = 100000\n");
    let poold = pool.pid(Program::Poold).unwrap();
    // What the messages themselves cost, and a first subscriber.
    let first = Subscriber::new(&pool, Some(Seq(0)));
    overtake(&pool);
    let before = memory(poold);
    let silent: Vec<Subscriber> = (0..SILENT).map(|_| Subscriber::new(&pool, Some(Seq(0)))).collect();
    overtake(&pool);
    let each = memory(poold).saturating_sub(before) / SILENT as u64;
    // Coarse, as resident memory is: also what the connection, the allocator and the database's cache take. The
    // bytes themselves are counted by a test of the outbox.
    assert!(each <= 16 << 20, "{} KiB each", each >> 10);
    drop((first, silent));
}

/// Resident memory of a process in bytes.
pub(super) fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024)
}
