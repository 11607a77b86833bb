//! From `poolctl send` to the first line of a worker's handler, with its host running and with its host ended;
//! beside the same handler started by hand. Each round measures all of them once.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::options::Options;
use crate::order::order;
use crate::pool::Pool;
use crate::stats::{self, Times};
use crate::{interrupt, print, report};

/// Rounds before the first that counts.
const WARM_UP: usize = 3;
/// Time limit of one handler.
const LIMIT: Duration = Duration::from_secs(20);
/// Pause between two looks whether a host has ended.
const LOOK: Duration = Duration::from_millis(20);

/// One way to run a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By hand: the floor.
    Bare,
    /// By a worker whose host runs.
    Running,
    /// By a worker whose host is started for it.
    Cold,
}

impl Way {
    const ALL: [Self; 3] = [Self::Bare, Self::Running, Self::Cold];

    fn label(self) -> &'static str {
        match self {
            Self::Bare => "sh by hand",
            Self::Running => "host runs",
            Self::Cold => "host ended",
        }
    }

    /// Maximum of the median, in milliseconds.
    fn goal_ms(self) -> Option<f64> {
        match self {
            Self::Bare => None,
            Self::Running => Some(15.0),
            Self::Cold => Some(60.0),
        }
    }
}

/// Runs the suite with this many other sessions, and prints its table.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    let place = tempfile::Builder::new().prefix("pool-bench.").tempdir_in("/tmp")?;
    let pipe = place.path().join("lines");
    mkfifo(&pipe, Mode::S_IRWXU)?;
    let script = format!("echo >{}", pipe.display());
    let worker = |name: &str, idle_end: &str| {
        format!(
            "[workers.{name}]\ncommand = ['sh', '-c', '{script}']\nkinds = ['{name}']\nidle_end = '{idle_end}'\n"
        )
    };
    let config = worker("running", "1h") + &worker("cold", "100ms");
    let pool = Pool::new(&options.bin_dir, Path::new("/tmp"), sessions + 1, &config)?;
    pool.while_up(|pool| {
        let names = pool.create_all(sessions.max(1))?;
        let lines = lines(&pipe)?;
        let measured = rounds(options.runs, |way| once(pool, &names[0], way, &script, &lines))?;
        print(&table(&measured, options.runs, sessions))
    })
}

/// Returns the times at which handlers write.
fn lines(pipe: &Path) -> Result<Receiver<Instant>> {
    // Opened for writing too: without a writer it would be at its end.
    let file = OpenOptions::new().read(true).write(true).open(pipe)?;
    let (to, from) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(file).lines().map_while(Result::ok).try_for_each(|_| to.send(Instant::now()))
    });
    Ok(from)
}

fn rounds(runs: usize, once: impl Fn(Way) -> Result<Duration>) -> Result<[(Way, Times); 3]> {
    report(&format!("running handlers in {} ways, {runs} rounds after a warm-up", Way::ALL.len()));
    let mut measured = Way::ALL.map(|way| (way, Times::default()));
    for run in 0..WARM_UP + runs {
        for at in order(run, measured.len()) {
            interrupt::check()?;
            let (way, times) = &mut measured[at];
            let took = once(*way)?;
            if run >= WARM_UP {
                times.push(took);
            }
        }
    }
    Ok(measured)
}

fn once(pool: &Pool, session: &str, way: Way, script: &str, lines: &Receiver<Instant>) -> Result<Duration> {
    if way == Way::Cold {
        await_end_of_host(pool)?;
    }
    let mut command = match way {
        Way::Bare => {
            let mut command = pool.command("sh");
            command.args(["-c", script]);
            command
        }
        Way::Running | Way::Cold => {
            let kind = if way == Way::Cold { "cold" } else { "running" };
            let mut command = pool.command("poolctl");
            command.args(["send", session, "--kind", kind, "work"]).stdout(Stdio::null());
            command
        }
    };
    let began = Instant::now();
    let status = command.status().context(way.label())?;
    ensure!(status.success(), "{}: {status}", way.label());
    let line = lines.recv_timeout(LIMIT).with_context(|| format!("{}: no handler ran", way.label()))?;
    Ok(line.duration_since(began))
}

/// Waits until the host of the cold worker has ended.
fn await_end_of_host(pool: &Pool) -> Result<()> {
    let began = Instant::now();
    loop {
        let output = pool.command("poolctl").args(["--json", "worker", "ls"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text
            .lines()
            .any(|line| line.contains("\"name\":\"cold\"") && line.contains("\"state\":\"waiting\""))
        {
            return Ok(());
        }
        ensure!(began.elapsed() < LIMIT, "the host of the cold worker does not end: {text}");
        interrupt::sleep(LOOK)?;
    }
}

fn table(measured: &[(Way, Times)], runs: usize, sessions: usize) -> String {
    let ms = |times: &Times, share| times.quantile_us(share) / 1000.0;
    let floor = measured.first().map_or(f64::NAN, |(_, times)| ms(times, 0.5));
    let mut text = format!(
        "from `poolctl send` to the handler's first line, {sessions} sessions, {runs} rounds in turn; load {}\n\n\
         {:<14}{:>10}{:>10}{:>10}  goal\n",
        stats::load(),
        "handler",
        "p50 ms",
        "p90 ms",
        "x by hand",
    );
    for (way, times) in measured {
        let p50 = ms(times, 0.5);
        let goal = way.goal_ms().map(|goal| {
            let met = if p50 <= goal { "met" } else { "missed" };
            format!("  {met}: p50 at most {goal} ms")
        });
        let (p90, ratio) = (ms(times, 0.9), p50 / floor);
        text.push_str(&format!(
            "{:<14}{p50:>10.1}{p90:>10.1}{ratio:>10.2}{}\n",
            way.label(),
            goal.unwrap_or_default()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_compares_with_the_floor_and_the_goal() {
        let times = |ms| {
            let mut times = Times::default();
            times.push(Duration::from_millis(ms));
            times
        };
        let measured = [(Way::Bare, times(2)), (Way::Running, times(6)), (Way::Cold, times(61))];
        let text = table(&measured, 1, 1);
        assert!(text.contains("6.0      3.00  met: p50 at most 15 ms"), "{text}");
        assert!(text.contains("30.50  missed: p50 at most 60 ms"), "{text}");
    }
}
