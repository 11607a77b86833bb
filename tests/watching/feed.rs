//! The stream of a watcher: recorded, replayed, damaged. The pool's view always equals a state that was
//! reported, or a snapshot is requested.

use std::collections::VecDeque;
use std::time::Instant;

use protocol::diff::diff;
use protocol::request::{Observe, View};
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};
use protocol::{OsBytes, PaneId, ProcId, ServerId, TmuxSessionId, WindowId};
use serde_json::{Value, json};

use super::support::{Listed, NO_SWEEP, Theirs, Told, observation, seen, watch};
use crate::harness::{Chance, PATIENCE, Pool, Program, Talk, eventually, wait_until};

/// A pool without a watcher, for `feed` to take its place.
#[track_caller]
fn fed() -> Pool {
    let pool = Pool::bare(NO_SWEEP);
    pool.start_poold();
    pool
}

#[track_caller]
fn feed(pool: &Pool, flags: &[&str]) -> Talk {
    let talk = Talk::start(pool.poolctl().arg("feed").args(flags));
    wait_until("it is the watcher", PATIENCE, || pool.status()["components"][0]["pid"] == talk.pid());
    talk
}

// ---- a recording of a real server ----

/// Makes one change of a server, of any kind.
fn change(theirs: &Theirs<'_>, chance: &mut Chance, round: usize) {
    let list = |what: &str, format: &str| -> Vec<String> {
        let flags: &[&str] =
            if what == "list-panes" { &[what, "-a", "-F", format] } else { &[what, "-F", format] };
        theirs.text(flags).lines().map(str::to_owned).collect()
    };
    let (sessions, panes) = (list("list-sessions", "#{session_id}"), list("list-panes", "#{pane_id}"));
    let (session, pane) = (chance.pick(&sessions).unwrap(), chance.pick(&panes).unwrap());
    let name = format!("n{round}");
    let many = sessions.len() > 3;
    let output = match chance.below(9) {
        0..=2 => theirs.tmux(&["new-session", "-d", "-s", &name, "exec cat"]),
        3 if many => theirs.tmux(&["kill-session", "-t", &session]),
        4 => theirs.tmux(&["rename-session", "-t", &session, &name]),
        5 => theirs.tmux(&["new-window", "-d", "-t", &format!("{session}:"), "exec cat"]),
        6 => theirs.tmux(&["split-window", "-d", "-t", &pane, "exec cat"]),
        7 if many => theirs.tmux(&["kill-pane", "-t", &pane]),
        _ => theirs.tmux(&["resize-window", "-t", &pane, "-x", &(80 + round).to_string(), "-y", "40"]),
    };
    // A window may have no room for another pane.
    assert!(output.code == 0 || output.stderr.contains("no space"), "{output:?}");
}

#[test]
fn t04_a_recording_of_a_real_server_replayed_is_what_was_recorded() {
    let pool = fed();
    let socket = pool.path("user.sock");
    let theirs = Theirs::start(&pool, &socket, "");
    let record =
        Talk::start(pool.command(Program::Watch.path()).arg("--print").arg("--tmux-socket").arg(&socket));
    wait_until("it records", PATIENCE, || Told::of(&record.lines()).whole);
    let mut chance = Chance::new(3);
    (0..40).for_each(|round| change(&theirs, &mut chance, round));
    let listed = Listed::by(|args| theirs.tmux(args));
    wait_until("all is recorded", PATIENCE, || Listed::of(&Told::of(&record.lines()).state) == listed);
    let lines = record.end();
    let recorded = Told::of(&lines).state;
    let mut feed = feed(&pool, &[]);
    for line in &lines {
        // A time of the recording: `poold` may have looked for a server itself since.
        let mut line: Value = serde_json::from_str(line).unwrap();
        line.as_object_mut().unwrap().remove("sent_at_ms");
        feed.say(&line.to_string());
    }
    let mut replayed = TmuxState::default();
    wait_until("all is replayed", PATIENCE, || {
        replayed = seen(&pool);
        replayed == recorded
    });
    let names: Vec<&str> = recorded.sessions.values().map(|session| session.name.as_str()).collect();
    assert_eq!(pool.status()["foreign"], json!(names));
    assert_eq!(feed.lines(), Vec::<String>::new(), "nothing was missing");
    feed.hang_up();
    assert_eq!(feed.await_end(), Some(0), "{}", feed.errors());
    wait_until("it is gone", PATIENCE, || pool.status()["components"][0]["connected"] == false);
}

// ---- generated streams, damaged ----

/// The real state of tmux, changing.
struct Truth {
    chance: Chance,
    state: TmuxState,
    next: u32,
    changes: usize,
}

impl Truth {
    fn new(seed: u64) -> Self {
        let mut truth = Self { chance: Chance::new(seed), state: TmuxState::default(), next: 0, changes: 0 };
        truth.start_server();
        truth
    }

    fn start_server(&mut self) {
        self.next += 1;
        // No process has such a pid.
        let process = ProcId { pid: 5_000_000 + self.next, start: 1 };
        self.state =
            TmuxState { server: Server::Up(ServerId { process, started_at: 1 }), ..TmuxState::default() };
    }

    fn session(&mut self) -> Option<TmuxSessionId> {
        let ids: Vec<_> = self.state.sessions.keys().copied().collect();
        self.chance.pick(&ids)
    }

    fn pane_of(&mut self, session: TmuxSessionId) -> TmuxPane {
        self.next += 1;
        let pid = 6_000_000 + self.next;
        TmuxPane {
            process: Some(ProcId { pid, start: 2 }),
            current_command: Some(OsBytes(b"cat".to_vec())),
            ..TmuxPane::bare(session, WindowId(self.next), pid)
        }
    }

    fn alter_pane(&mut self) {
        let ids: Vec<PaneId> = self.state.panes.keys().copied().collect();
        let Some(id) = self.chance.pick(&ids) else { return };
        let (what, number) = (self.chance.below(5), self.chance.below(200));
        let pane = self.state.panes.get_mut(&id).unwrap();
        match what {
            0 => pane.width = 80 + number,
            1 => pane.in_mode = !pane.in_mode,
            2 => pane.current_command = Some(OsBytes(format!("program{number}").into_bytes())),
            3 => (pane.exited, pane.exit_status) = (true, Some(7)),
            _ => pane.dead = true,
        }
    }

    fn start_session(&mut self) {
        self.next += 1;
        let id = TmuxSessionId(self.next);
        self.state.sessions.insert(id, TmuxSession::bare(format!("s{}", self.next), 1));
        let pane = self.pane_of(id);
        self.state.panes.insert(PaneId(self.next), pane);
    }

    fn step(&mut self) {
        match self.chance.below(20) {
            0 if self.state.sessions.len() < 20 => self.start_session(),
            1 => {
                if let Some(id) = self.session() {
                    self.state.sessions.remove(&id);
                    self.state.panes.retain(|_, pane| pane.session != id);
                }
            }
            2 => {
                if let Some(id) = self.session() {
                    let name = format!("r{}", self.chance.below(1000));
                    self.state.sessions.get_mut(&id).unwrap().name = name;
                }
            }
            3 | 4 if self.state.panes.len() < 60 => {
                if let Some(id) = self.session() {
                    let pane = self.pane_of(id);
                    self.state.panes.insert(PaneId(self.next), pane);
                }
            }
            5 if self.chance.one_in(100) => self.start_server(),
            6 if self.chance.one_in(100) => {
                let server = Server::unknown("it does not answer");
                self.state = TmuxState { server, ..TmuxState::default() };
            }
            _ if matches!(self.state.server, Server::Unknown(_)) => self.start_server(),
            _ => self.alter_pane(),
        }
    }

    /// Makes some changes; returns them as a diff.
    fn go_on(&mut self) -> View {
        let before = self.state.clone();
        (0..=self.chance.below(4)).for_each(|_| self.step());
        let changes = diff(&before, &self.state);
        self.changes += changes.len();
        if changes.is_empty() { View::Unchanged } else { View::Diff(changes) }
    }
}

/// A watcher whose lines get lost, arrive twice, and arrive out of order.
struct Feeder {
    talk: Talk,
    truth: Truth,
    chance: Chance,
    seq: u64,
    /// Number of received lines already processed.
    heard: usize,
    /// Delayed lines, each with the number of lines to send first.
    late: Vec<(usize, String)>,
    /// Numbers of snapshot requests received and of lines damaged.
    asked: usize,
    damaged: usize,
    /// Every state there ever was, in order.
    history: Vec<TmuxState>,
}

impl Feeder {
    fn line(&mut self, view: View, asked: u64) -> String {
        self.seq += 1;
        let complete =
            !matches!(view, View::Alive) && (matches!(view, View::Unchanged) || self.chance.one_in(2));
        let observe =
            Observe { watcher: 7, seq: self.seq, asked, age_ms: 0, sent_at_ms: None, complete, view };
        serde_json::to_string(&observe).unwrap()
    }

    /// Sends a line, damaging some.
    fn send(&mut self, line: String) {
        let lates = std::mem::take(&mut self.late);
        let (due, later): (Vec<_>, Vec<_>) = lates.into_iter().partition(|(after, _)| *after == 0);
        self.late = later.into_iter().map(|(after, line)| (after - 1, line)).collect();
        match self.chance.below(60) {
            0 => self.damaged += 1,
            1 => {
                self.damaged += 1;
                self.talk.say(&line);
                self.talk.say(&line);
            }
            2 => {
                self.damaged += 1;
                self.talk.say(&line);
                self.late.push((self.chance.below(3), line));
            }
            3 => {
                self.damaged += 1;
                self.late.push((self.chance.below(3), line));
            }
            _ => self.talk.say(&line),
        }
        due.into_iter().for_each(|(_, line)| self.talk.say(&line));
    }

    /// Answers the snapshot requests received since.
    fn answer(&mut self) {
        let asks = self.talk.lines_from(self.heard);
        self.heard += asks.len();
        let asks: Vec<Value> = asks.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let number = asks.iter().map(|ask| ask["ask"]["snapshot"]["n"].as_u64().unwrap_or(0)).max();
        if let Some(number) = number {
            self.asked += asks.len();
            self.snapshot(number);
        }
    }

    /// Sends the snapshot in two parts, either of which may be lost.
    fn snapshot(&mut self, asked: u64) {
        let TmuxState { server, sessions, panes } = self.truth.state.clone();
        let first = TmuxState { server: server.clone(), sessions, ..TmuxState::default() };
        let second = TmuxState { server, panes, ..TmuxState::default() };
        for (part, state) in [(0, first), (1, second)] {
            let line = self.line(View::Snapshot { state, part, more: part == 0 }, asked);
            self.send(line);
        }
    }

    fn go_on(&mut self) {
        self.answer();
        let view = self.truth.go_on();
        self.history.push(self.truth.state.clone());
        let line = self.line(view, 0);
        self.send(line);
    }

    /// Sends undamaged lines until the subscriber has the latest state, which equals none before it: it has a new
    /// session.
    #[track_caller]
    fn settle(&mut self, reader: &mut Reader) {
        while matches!(self.truth.state.server, Server::Unknown(_)) {
            self.go_on();
        }
        let before = self.truth.state.clone();
        self.truth.start_session();
        self.history.push(self.truth.state.clone());
        let line = self.line(View::Diff(diff(&before, &self.truth.state)), 0);
        self.send(line);
        for (_, line) in std::mem::take(&mut self.late) {
            self.talk.say(&line);
        }
        let began = Instant::now();
        while !reader.read(&self.history) {
            assert!(
                began.elapsed() < PATIENCE,
                "it does not come to know:\n{:?}\n{:?}\n{}",
                reader.told.state,
                self.truth.state,
                self.talk.errors()
            );
            self.answer();
            // The next frame reveals a gap before it.
            let line = self.line(View::Alive, 0);
            self.talk.say(&line);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// A subscriber that checks that every state it is told was real, in order.
struct Reader {
    talk: Talk,
    told: Told,
    read: usize,
    /// Index in the history of the last state received.
    at: usize,
}

impl Reader {
    /// Reads new lines; true if it has the latest state now.
    #[track_caller]
    fn read(&mut self, history: &[TmuxState]) -> bool {
        for line in self.talk.lines_from(self.read) {
            self.read += 1;
            if !self.told.take(observation(&line)) {
                continue;
            }
            let later = history[self.at..].iter().position(|state| *state == self.told.state);
            let Some(later) = later else {
                let before = history[..self.at].iter().rposition(|state| *state == self.told.state);
                panic!("it was told what never was (or was, at {before:?}; now {}): {line}", self.at);
            };
            self.at += later;
        }
        history.last() == Some(&self.told.state)
    }
}

#[test]
fn t04_a_damaged_stream_of_ten_thousand_changes_never_diverges() {
    const CHANGES: usize = 10_000;
    const CHECKS: usize = 20;
    let pool = fed();
    let mut feeder = Feeder {
        talk: feed(&pool, &[]),
        truth: Truth::new(11),
        chance: Chance::new(12),
        seq: 0,
        heard: 0,
        late: Vec::new(),
        asked: 0,
        damaged: 0,
        history: Vec::new(),
    };
    feeder.history.push(feeder.truth.state.clone());
    while seen(&pool) != feeder.truth.state {
        feeder.snapshot(0);
    }
    let mut reader = Reader { talk: watch(&pool), told: Told::default(), read: 0, at: 0 };
    for check in 1..=CHECKS {
        while feeder.truth.changes < CHANGES * check / CHECKS {
            feeder.go_on();
        }
        feeder.settle(&mut reader);
        // Earlier states must not be reported any more; only the current one is kept.
        let last = feeder.history.pop().unwrap();
        (feeder.history, reader.at) = (vec![last], 0);
        assert_eq!(seen(&pool), feeder.truth.state, "a new subscriber is told the same");
    }
    feeder.settle(&mut reader);
    assert!(feeder.damaged > 100 && feeder.asked > 50, "{} damaged, {} asks", feeder.damaged, feeder.asked);
    let mut foreign: VecDeque<String> = VecDeque::new();
    for (id, session) in &feeder.truth.state.sessions {
        if feeder.truth.state.panes.values().any(|pane| pane.session == *id) {
            foreign.push_back(session.name.clone());
        }
    }
    assert_eq!(pool.status()["foreign"], json!(foreign));
}

// ---- the verb ----

#[test]
fn feed_is_refused_beside_a_watcher_and_may_take_over() {
    let pool = Pool::new();
    pool.script("web", "exec cat");
    let refused = pool.ctl(&["feed"]).expect(4);
    assert!(refused.stderr.contains("--take-over"), "{}", refused.stderr);
    let real = pool.pid(Program::Watch).unwrap();
    let mut first = feed(&pool, &["--take-over"]);
    first.say(r#"{"snapshot":{"server":"absent","sessions":{},"panes":{}}}"#);
    wait_until("it is believed", PATIENCE, || pool.status()["tmux"]["state"] == "absent");
    assert_eq!(pool.lifecycle("web"), "live", "but it proves nothing: the server's process lives");
    // Another feed takes over from the first one in turn.
    let mut second = feed(&pool, &["--take-over"]);
    assert_eq!(first.await_end(), Some(4), "{}", first.errors());
    second.hang_up();
    assert_eq!(second.await_end(), Some(0), "{}", second.errors());
    wait_until("the real one is back", PATIENCE, || pool.status()["components"][0]["pid"] == real);
    pool.await_complete();
    assert_eq!((pool.lifecycle("web").as_str(), &pool.status()["tmux"]["state"]), ("live", &"up".into()));
}

#[test]
fn feed_is_asked_and_what_it_answers_is_what_sync_reports() {
    let pool = fed();
    let mut feed = feed(&pool, &[]);
    feed.say(r#"{"diff":[{"session_gone":"$3"}]}"#);
    let asked = |feed: &Talk, n: usize| eventually("it is asked", PATIENCE, || feed.lines().get(n).cloned());
    assert_eq!(asked(&feed, 0), r#"{"ask":"snapshot"}"#, "there was no snapshot before it");
    feed.say(r#"{"snapshot":{"server":"absent","sessions":{},"panes":{}}}"#);
    feed.say(r#""unchanged""#);
    feed.say(r#""alive""#);
    let sync = Talk::start(pool.poolctl().args(["--json", "sync"]));
    let ask: Value = serde_json::from_str(&asked(&feed, 1)).unwrap();
    let n = ask["ask"]["snapshot"]["n"].as_u64().unwrap();
    let process = json!({"pid": 5_000_001, "start": 1});
    let server = json!({"up": {"process": process, "started_at": 1}});
    let sessions = json!({"$3": {"name": "theirs", "created_at": 1, "attached": 0}});
    feed.say(
        &json!({"asked": n, "snapshot": {"server": server, "sessions": sessions, "panes": {}}}).to_string(),
    );
    let report = eventually("it is answered", PATIENCE, || sync.lines().first().cloned());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["sessions"], &report["panes"]), (&1.into(), &0.into()), "{report}");
    assert_eq!(feed.lines().len(), 2, "{:?}", feed.lines());
}

#[test]
fn feed_ends_at_a_bad_line_and_sends_nothing_after_it() {
    let pool = fed();
    let good = r#"{"snapshot":{"server":"absent","sessions":{},"panes":{}}}"#;
    let other =
        json!({"snapshot": {"server": {"up": {"process": {"pid": 5_000_001, "start": 1}, "started_at": 1}},
        "sessions": {}, "panes": {}}})
        .to_string();
    for bad in ["{", "nonsense", r#"{"snapshot":{},"view":{}}"#, r#"{"unknown":1,"diff":[]}"#, "7"] {
        let input = format!("{good}\n\n{bad}\n{other}\n");
        let ended = pool.ctl_in(&["feed"], input.as_bytes());
        assert_eq!(ended.code, 2, "{bad}: {ended:?}");
        assert!(ended.stderr.contains("line 3"), "{bad}: {}", ended.stderr);
        assert_eq!(pool.status()["tmux"]["state"], "absent", "{bad}");
    }
    assert_eq!(pool.ctl_in(&["feed"], b"").code, 0, "no line is no trouble");
}
