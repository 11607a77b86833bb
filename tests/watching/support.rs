//! Shared helpers: tmux as an observation stream reports it and as tmux itself lists it, foreign tmux
//! servers, pseudo-random numbers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::request::{Observe, View};
use protocol::tmux::{HIDDEN_SESSION, TmuxState};
use protocol::{PaneId, TmuxSessionId, view_parts};
use serde_json::Value;

use crate::harness::{Output, PATIENCE, Pool, Talk, alive, eventually, gone, send_signal, wait_until};

/// No full listing is taken while a test runs: everything seen was reported by an event.
pub(super) const NO_SWEEP: &str = "[watch]\nsweep = \"10m\"\n[reaper]\ngrace = \"500ms\"\n";

// ---- what a stream tells ----

/// The state of tmux as an observation stream reports it.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// True once a complete snapshot has come.
    pub(super) whole: bool,
    pub(super) state: TmuxState,
    coming: Option<TmuxState>,
}

impl Told {
    /// Applies an observation; true if it completed a state.
    pub(super) fn take(&mut self, observe: Observe) -> bool {
        match observe.view {
            View::Snapshot { state, part, more } => {
                let before = self.coming.take().filter(|_| part > 0);
                let joined = view_parts::join(before, state);
                if more {
                    self.coming = Some(joined);
                    return false;
                }
                (self.whole, self.state) = (true, joined);
            }
            View::Diff(changes) => changes.into_iter().for_each(|change| self.state.apply(change)),
            View::Unchanged | View::Alive => {}
        }
        self.whole
    }

    pub(super) fn of(lines: &[String]) -> Self {
        let mut told = Self::default();
        for line in lines {
            told.take(observation(line));
        }
        told
    }
}

#[track_caller]
pub(super) fn observation(line: &str) -> Observe {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// `poolctl watch --print`.
#[track_caller]
pub(super) fn watch(pool: &Pool) -> Talk {
    Talk::start(pool.poolctl().args(["watch", "--print"]))
}

/// The state of tmux that `poold` has now: the snapshot that a subscriber gets first.
#[track_caller]
pub(super) fn seen(pool: &Pool) -> TmuxState {
    let subscriber = watch(pool);
    eventually("a snapshot comes", PATIENCE, || {
        let told = Told::of(&subscriber.lines());
        told.whole.then_some(told.state)
    })
}

// ---- what tmux itself lists ----

/// The comparable part of a listing: name of each session; session, window, process and size of each pane.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    sessions: BTreeMap<TmuxSessionId, String>,
    panes: BTreeMap<PaneId, String>,
}

impl Listed {
    pub(super) fn of(state: &TmuxState) -> Self {
        let sessions = state.sessions.iter().map(|(id, session)| (*id, session.name.clone()));
        let panes = state.panes.iter().map(|(id, pane)| {
            let size = format!("{}x{}", pane.width, pane.height);
            (*id, format!("{} {} {} {size} {}", pane.session, pane.window, pane.pid, pane.dead))
        });
        Self { sessions: sessions.collect(), panes: panes.collect() }
    }

    /// Lists by tmux's own commands, without the watcher's hidden session.
    #[track_caller]
    pub(super) fn by(tmux: impl Fn(&[&str]) -> Output) -> Self {
        let sessions = tmux(&["list-sessions", "-F", "#{session_id}\t#{session_name}"]).expect(0);
        let sessions = sessions.stdout.lines().map(|line| line.split_once('\t').unwrap());
        let sessions: BTreeMap<TmuxSessionId, String> = sessions
            .filter(|(_, name)| *name != HIDDEN_SESSION)
            .map(|(id, name)| (id.parse().unwrap(), name.to_owned()))
            .collect();
        let format = "#{pane_id}\t#{session_name}\t#{session_id} #{window_id} #{pane_pid} \
                      #{pane_width}x#{pane_height} #{?pane_dead,true,false}";
        let panes = tmux(&["list-panes", "-a", "-F", format]).stdout;
        let panes = panes.lines().map(|line| {
            let [id, name, facts] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
            (id.parse().unwrap(), name.to_owned(), facts.to_owned())
        });
        let panes = panes.filter(|(_, name, _)| name != HIDDEN_SESSION).map(|(id, _, facts)| (id, facts));
        Self { sessions, panes: panes.collect() }
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn panes(&self) -> usize {
        self.panes.len()
    }
}

/// Asserts that a snapshot taken now equals tmux's own listing in every comparable detail.
#[track_caller]
pub(super) fn assert_exact(pool: &Pool) -> Listed {
    // A busy tmux exceeds the time limit of one listing.
    wait_until("tmux answers", PATIENCE, || pool.ctl(&["--timeout", "30s", "sync"]).code == 0);
    let (told, listed) = (Listed::of(&seen(pool)), Listed::by(|args| pool.tmux(args)));
    assert_eq!(told, listed);
    listed
}

// ---- events ----

/// Waits for the first event about a session's end or the start of it: where everything is proved at once,
/// there is no draining.
#[track_caller]
pub(super) fn await_end_of(pool: &Pool, session: &str) -> Value {
    await_any(pool, &["session_draining", "session_stopped"], |event| event["session"] == session)
}

/// Waits for an event in the journal, without making the pool look at anything.
#[track_caller]
pub(super) fn await_event(pool: &Pool, kind: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    await_any(pool, &[kind], is_it)
}

#[track_caller]
fn await_any(pool: &Pool, kinds: &[&str], is_it: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let events = pool.events();
        if let Some(event) =
            events.iter().find(|event| kinds.iter().any(|kind| event["kind"] == *kind) && is_it(event))
        {
            return event.clone();
        }
        assert!(began.elapsed() < PATIENCE, "no such {kinds:?} in the journal:\n{}", pool.journal());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the watcher uses this connection.
#[track_caller]
pub(super) fn await_connection(pool: &Pool, word: &str) {
    let mut last = Value::Null;
    wait_until(&format!("the connection is {word}"), PATIENCE, || {
        last = pool.status()["tmux"].clone();
        last["connection"] == word
    });
}

// ---- tmux servers that are no pool's ----

/// A foreign tmux server with a session `first`, killed on drop.
#[derive(Debug)]
pub(super) struct Theirs<'a> {
    pool: &'a Pool,
    socket: PathBuf,
    pid: u32,
}

impl<'a> Theirs<'a> {
    /// Starts it as a user does, after a shell prefix such as `ulimit -n 64;`.
    #[track_caller]
    pub(super) fn start(pool: &'a Pool, socket: &Path, before: &str) -> Self {
        let mut shell = pool.command("sh");
        shell.arg("-c").arg(format!("{before} exec tmux -u -S \"$0\" -f /dev/null \"$@\"")).arg(socket);
        Output::of(shell.args(["new-session", "-d", "-s", "first", "exec cat"]), b"").expect(0);
        let mut theirs = Self { pool, socket: socket.to_owned(), pid: 0 };
        theirs.pid = theirs.text(&["display-message", "-p", "#{pid}"]).parse().unwrap();
        theirs
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    #[track_caller]
    pub(super) fn tmux<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        let mut command = self.pool.command("tmux");
        Output::of(command.arg("-uN").arg("-S").arg(&self.socket).args(args), b"")
    }

    /// Runs tmux, expects success; returns its output without the final newline.
    #[track_caller]
    pub(super) fn text<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        self.tmux(args).expect(0).text().to_owned()
    }

    /// Everything that only its owner may change: all options, hooks and keys, and the properties of each
    /// session, window and pane, except the hidden session.
    #[track_caller]
    pub(super) fn everything(&self) -> Vec<String> {
        let visible = format!("#{{!=:#{{session_name}},{HIDDEN_SESSION}}}");
        let panes = |format: &str| self.text(&["list-panes", "-a", "-f", &visible, "-F", format]);
        let mut all = panes(
            "#{session_id} #{session_name} #{session_attached} #{window_id} #{window_name} \
             #{window_width}x#{window_height} #{pane_id} #{pane_pid} #{pane_pipe} #{pane_dead}",
        );
        let mut look = |args: &[&str]| all.push_str(&format!("\n{args:?}\n{}", self.text(args)));
        for args in [&["show-options", "-s"][..], &["show-options", "-g"], &["show-options", "-gw"]] {
            look(args);
        }
        for args in [&["show-hooks", "-g"][..], &["list-keys"], &["show-environment", "-g"]] {
            look(args);
        }
        for target in panes("#{session_id}: #{pane_id}").lines() {
            let (session, pane) = target.split_once(' ').unwrap();
            for (flags, target) in [("-t", session), ("-wt", session), ("-pt", pane)] {
                look(&["show-options", flags, target]);
            }
            look(&["show-environment", "-t", session]);
        }
        all.lines().map(str::to_owned).collect()
    }
}

impl Drop for Theirs<'_> {
    fn drop(&mut self) {
        if alive(self.pid) {
            send_signal(self.pid, Signal::SIGCONT);
            let _ended = self.tmux(&["kill-server"]);
            if !std::thread::panicking() {
                wait_until("their server ends", PATIENCE, || gone(self.pid));
            }
        }
    }
}
