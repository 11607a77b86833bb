//! Delay from a program's output to a subscriber, beside a tmux client in control mode that watches another
//! terminal; alone, and with many other idle subscribers. And the cost of those while idle.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::OFlag;
use protocol::blocking::Connection;
use protocol::request::{New, Output};
use protocol::{Frame, Hello, ProcId, Request, Role, SessionId};

use crate::child::Spawned;
use crate::create::bare::Bare;
use crate::floors::Client;
use crate::order::order;
use crate::pool::{self, Pool};
use crate::stats::Times;
use crate::{interrupt, report, usage};

/// Number of other subscribers.
pub(super) const OTHERS: usize = 200;
/// Number of writes before the first that counts, and of those that count.
const WARM_UP: usize = 5;
const RUNS: usize = 200;
/// Pause between two writes.
const REST: Duration = Duration::from_millis(10);
/// Time for earlier work to settle.
const SETTLE: Duration = Duration::from_secs(1);
/// Time after which output counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Program of the terminals: it leaves them to the benchmark, which writes in its place.
const PROGRAM: [&str; 2] = ["sleep", "100000"];

/// Time from a write until the watcher has it.
#[derive(Default)]
pub(super) struct Pair {
    /// A tmux client in control mode.
    pub(super) control: Times,
    /// A subscriber of the pool.
    pub(super) subscriber: Times,
}

/// All results.
pub(super) struct Live {
    pub(super) alone: Pair,
    pub(super) beside: Pair,
    /// Share of a core of the idle poold, from 0: without and with the others.
    pub(super) idle: [f64; 2],
    pub(super) time: Duration,
}

/// Measures, with these sessions for the other subscribers.
pub(super) fn measure(pool: &Pool, sessions: &[SessionId], idle: Duration) -> Result<Live> {
    let bare = Bare::start(pool, 0)?;
    let measured = watch(pool, &bare, sessions, idle);
    let ended = bare.end();
    measured.and_then(|live| ended.map(|()| live))
}

fn watch(pool: &Pool, bare: &Bare<'_>, sessions: &[SessionId], idle: Duration) -> Result<Live> {
    let mut pair = Watched::start(pool, bare)?;
    report(&format!("writing {RUNS} times into two terminals, in turn; then {} s idle", idle.as_secs()));
    let alone = pair.rounds()?;
    let daemon = Client::connect(pool)?.status()?.process;
    let before = rest(daemon, idle)?;
    report(&format!("the same with {OTHERS} other subscribers"));
    let others = sessions.iter().cycle().take(OTHERS).map(|session| subscribe(pool, *session));
    let others = others.collect::<Result<Vec<_>>>()?;
    let after = rest(daemon, idle)?;
    let beside = pair.rounds()?;
    drop(others);
    Ok(Live { alone, beside, idle: [before, after], time: idle })
}

/// Two watched terminals.
struct Watched {
    ends: [Terminal; 2],
    written: usize,
    _client: Spawned,
}

/// A watched terminal.
struct Terminal {
    tty: File,
    seen: Receiver<(Instant, Vec<u8>)>,
}

impl Watched {
    fn start(pool: &Pool, bare: &Bare<'_>) -> Result<Self> {
        bare.run_in("live", &PROGRAM.map(str::to_owned))?;
        let mut attach = bare.command();
        let mut client = Spawned::piped(attach.args(["-C", "attach-session", "-t", "=live"]))?;
        let (output, input) = client.pipes().context("pipes")?;
        let control = Terminal { tty: tty(bare.command(), "=live:")?, seen: lines(output, input) };
        let new =
            New { name: Some("live".to_owned()), command: PROGRAM.map(Into::into).into(), ..New::default() };
        let session = Client::connect(pool)?.start(new)?;
        let pane =
            session.incarnation.as_ref().and_then(|run| run.pane).context("a session without a pane")?;
        let seen = frames(subscribe(pool, session.id)?);
        let subscriber = Terminal { tty: tty(pool.tmux(), &pane.to_string())?, seen };
        Ok(Self { ends: [control, subscriber], written: 0, _client: client })
    }

    fn rounds(&mut self) -> Result<Pair> {
        interrupt::sleep(SETTLE)?;
        let mut times = [Times::default(), Times::default()];
        for run in 0..WARM_UP + RUNS {
            for at in order(run, times.len()) {
                interrupt::sleep(REST)?;
                self.written += 1;
                let took = self.ends[at].write(self.written)?;
                if run >= WARM_UP {
                    times[at].push(took);
                }
            }
        }
        let [control, subscriber] = times;
        Ok(Pair { control, subscriber })
    }
}

impl Terminal {
    /// Writes as its program would; returns the time until the watcher has it.
    fn write(&mut self, number: usize) -> Result<Duration> {
        let text = format!("line {number}.");
        let began = Instant::now();
        writeln!(self.tty, "{text}")?;
        let mut shown = Vec::new();
        loop {
            let left = PATIENCE.checked_sub(began.elapsed()).context("output was lost")?;
            let (at, bytes) = self.seen.recv_timeout(left).context("output was lost")?;
            shown.extend(bytes);
            if shown.windows(text.len()).any(|part| part == text.as_bytes()) {
                return Ok(at.saturating_duration_since(began));
            }
        }
    }
}

/// Opens the terminal of a pane for writing.
fn tty(mut tmux: Command, pane: &str) -> Result<File> {
    let output =
        tmux.args(["display-message", "-p", "-t", pane, "#{pane_tty}"]).stdout(Stdio::piped()).output()?;
    let path = String::from_utf8(output.stdout)?;
    File::options()
        .write(true)
        .custom_flags(OFlag::O_NOCTTY.bits())
        .open(path.trim())
        .with_context(|| path.clone())
}

/// Reads the lines of a control client until it ends, which lives as long as its input.
fn lines(output: OwnedFd, input: OwnedFd) -> Receiver<(Instant, Vec<u8>)> {
    let (to, seen) = mpsc::channel();
    thread::spawn(move || {
        let _input = input;
        for line in BufReader::new(File::from(output)).split(b'\n').map_while(Result::ok) {
            if line.starts_with(b"%output ") && to.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    seen
}

/// Reads the frames of a subscriber.
fn frames(mut connection: Connection) -> Receiver<(Instant, Vec<u8>)> {
    let (to, seen) = mpsc::channel();
    thread::spawn(move || {
        while let Ok(Frame::Output { bytes, .. }) = connection.next_frame() {
            if to.send((Instant::now(), bytes.0)).is_err() {
                return;
            }
        }
    });
    seen
}

/// Subscribes to a session's output from now on.
fn subscribe(pool: &Pool, session: SessionId) -> Result<Connection> {
    let hello = Hello::new(Role::Subscriber, pool::NAME, "bench");
    let (mut connection, _welcome) = Connection::connect(&pool.socket(), &hello)?;
    connection.send(Request::Output(Output { session: session.into(), from: None }))?;
    match connection.next_frame()? {
        Frame::Output { bytes, .. } => ensure!(bytes.0.is_empty(), "more than the new output"),
        other => bail!("{other:?}"),
    }
    connection.set_timeout(None);
    Ok(connection)
}

/// Returns the share of a core that an idle process uses over this time.
fn rest(process: ProcId, time: Duration) -> Result<f64> {
    interrupt::sleep(SETTLE)?;
    let (before, began) = (usage::cpu(process)?, Instant::now());
    interrupt::sleep(time)?;
    Ok((usage::cpu(process)? - before).as_secs_f64() / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_found_in_parts_and_among_other_things() {
        let (to, seen) = mpsc::channel();
        let began = Instant::now();
        for (ms, part) in [(1, "line 11.\r\nli"), (2, "ne 1.\r\n"), (3, "line 1.")] {
            to.send((began + Duration::from_millis(ms), part.as_bytes().to_vec())).unwrap();
        }
        let mut terminal = Terminal { tty: tempfile::tempfile().unwrap(), seen };
        assert!(terminal.write(1).unwrap() <= Duration::from_millis(2));
        assert_eq!(terminal.seen.recv().unwrap().1, b"line 1.");
        drop(to);
        assert!(terminal.write(2).is_err());
    }
}
