//! A very large backlog: its size on disk and in memory, the cost of one more message compared with an
//! empty database, and the time to serve again after a kill.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::daemon::Daemon;
use super::drive::{self, Until};
use super::poold::Poold;
use super::subject::{Load, Server, Subject, Work};
use super::{CONFIG, figures, pool};
use crate::options::Options;
use crate::pool::Pool;
use crate::stats::{self, Figures};
use crate::usage::Memory;
use crate::{interrupt, print, report};

/// Number of clients that enqueue the backlog, and of operations that each has in progress.
const CLIENTS: usize = 64;
const DEPTH: usize = 16;
/// Time for earlier work to settle.
const SETTLE: Duration = Duration::from_secs(2);
/// Goals, in seconds, bytes and ratios.
const SERVING: f64 = 2.0;
const MEMORY: f64 = 64e6;
const IDLE_MEMORY: f64 = 12e6;
const OF_EMPTY: f64 = 1.3;

/// All results.
struct Measured {
    /// Memory of a daemon without sessions.
    idle: Memory,
    /// Rate of enqueueing, messages per second.
    rate: f64,
    /// Size of the database, in bytes.
    file: u64,
    full: Memory,
    /// Figures of single enqueues, with the empty database and with the full one.
    enqueue: [Vec<Figures>; 2],
    /// Restarts: seconds until the first answer, and the memory then.
    starts: Vec<(f64, Memory)>,
}

/// Runs the suite with the messages spread over this many sessions, and prints its table.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    let (full, empty) = (pool(options, sessions, CONFIG)?, pool(options, 1, CONFIG)?);
    report("an idle daemon");
    let idle = idle(&empty)?;
    // Each pool loses its daemons meanwhile, and gets them back to end its sessions.
    let measured = full.while_up(|full| {
        empty.while_up(|empty| {
            let names = [empty.create_all(1)?, full.create_all(sessions)?];
            [empty, full].into_iter().try_for_each(Pool::down)?;
            let measured = measure(options, [empty, full], &names, idle);
            [empty, full].into_iter().try_for_each(Pool::up)?;
            measured
        })
    });
    print(&table(&measured?, options, sessions))
}

fn idle(pool: &Pool) -> Result<Memory> {
    let daemon = Daemon::start(pool)?;
    interrupt::sleep(SETTLE)?;
    daemon.memory()
}

fn measure(options: &Options, pools: [&Pool; 2], names: &[Vec<String>; 2], idle: Memory) -> Result<Measured> {
    let [empty, pool] = pools;
    let mut daemons = [Daemon::start(empty)?, Daemon::start(pool)?];
    let mut subjects = [0, 1].map(|at| Poold::new(&pools[at].socket(), &names[at]));
    report(&format!("{} messages", options.messages));
    let rate = fill(&subjects[1], options.messages)?;
    interrupt::sleep(SETTLE)?;
    let full = daemons[1].memory()?;
    let file = daemons[1].status()?.database_bytes;
    report(&format!("{} rounds of {} s each, in turn", options.runs, options.time.as_secs_f64()));
    let mut enqueue = [Vec::new(), Vec::new()];
    for round in 0..2 * options.runs {
        let at = (round + round / 2) % 2;
        let load = Load { work: Work::Enqueue, clients: 1 };
        enqueue[at].push(figures(&subjects[at].run(load, options.time)?));
    }
    let [_empty, mut daemon] = daemons;
    let messages = daemon.status()?.queue.queued;
    ensure!(messages >= options.messages as u64, "only {messages} messages are waiting");
    let mut starts = Vec::new();
    for _ in 0..options.runs {
        report("kill -9, and a restart");
        daemon.kill()?;
        daemon = Daemon::start(pool)?;
        interrupt::sleep(SETTLE)?;
        starts.push((daemon.took.as_secs_f64(), daemon.memory()?));
        let left = daemon.status()?.queue.queued;
        ensure!(left == messages, "{left} of {messages} messages are left");
    }
    Ok(Measured { idle, rate, file, full, enqueue, starts })
}

/// Enqueues this many messages; returns the rate per second.
fn fill(subject: &Poold, messages: usize) -> Result<f64> {
    let clients = (0..CLIENTS).map(|number| subject.client(Work::Enqueue, number));
    let mut clients = clients.collect::<Result<Vec<_>>>()?;
    let done = drive::drive(&mut clients, DEPTH, Until::Count(messages)).context("enqueueing them")?;
    Ok(messages as f64 / done.took.as_secs_f64())
}

fn table(measured: &Measured, options: &Options, sessions: usize) -> String {
    let Measured { idle, rate, file, full, enqueue, starts } = measured;
    let messages = options.messages;
    let [empty_p50, full_p50] = [0, 1].map(|at| Figures::median(&enqueue[at]).p50);
    let start = stats::median(starts.iter().map(|(seconds, _)| *seconds));
    let after = |of: fn(&Memory) -> u64| stats::median(starts.iter().map(|(_, memory)| of(memory) as f64));
    let (resident, peak) = (after(|memory| memory.resident), after(|memory| memory.peak));
    let mut text = format!(
        "{messages} messages of 256 bytes wait in {sessions} sessions, below {}; medians of {} rounds and restarts; load {}\n\n",
        options.dir.display(),
        options.runs,
        stats::load()
    );
    let mut row = |what: &str, figure: String, judged: Option<(f64, f64)>| {
        let verdict = judged.map(|(is, aim)| if is <= aim { "met" } else { "missed" }).unwrap_or_default();
        text.push_str(&format!("{what:<52}{figure:>12}  {verdict}\n"));
    };
    let times = full_p50 / empty_p50;
    row("messages enqueued, a second", format!("{rate:.0}"), None);
    row("size of the file, MB", mb(*file as f64), None);
    row("bytes a message", format!("{:.0}", *file as f64 / messages as f64), None);
    row(
        "memory of an idle daemon, MB (at most 12)",
        mb(idle.resident as f64),
        Some((idle.resident as f64, IDLE_MEMORY)),
    );
    row(
        "memory with all messages, MB (at most 64)",
        mb(full.resident as f64),
        Some((full.resident as f64, MEMORY)),
    );
    row("  its peak, MB", mb(full.peak as f64), None);
    row("enqueue into an empty database, p50 us", format!("{empty_p50:.0}"), None);
    row("enqueue into this one, p50 us", format!("{full_p50:.0}"), None);
    row("  times the empty one (at most 1.3)", format!("{times:.2}"), Some((times, OF_EMPTY)));
    row("kill -9 and start until it answers, s (at most 2)", format!("{start:.2}"), Some((start, SERVING)));
    row("memory then, MB (at most 64)", mb(resident), Some((resident, MEMORY)));
    row("  its peak, MB", mb(peak), None);
    text
}

fn mb(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_judged() {
        let memory = |mb: u64| Memory { resident: mb * 1_000_000, peak: 2 * mb * 1_000_000 };
        let figures = |p50: f64| vec![Figures { rate: 1e6 / p50, p50, p99: p50 }];
        let measured = Measured {
            idle: memory(13),
            rate: 1.0,
            file: 300_000_000,
            full: memory(40),
            enqueue: [figures(200.0), figures(250.0)],
            starts: vec![(2.5, memory(63))],
        };
        let options = Options::parse(["queue", "--million"].iter().map(Into::into)).unwrap().unwrap();
        let text = table(&measured, &options, 100);
        let row = |word: &str| text.lines().find(|line| line.contains(word)).unwrap();
        assert!(row("idle daemon").ends_with("13.0  missed"), "{text}");
        assert!(row("with all messages").ends_with("40.0  met"));
        assert!(row("times the empty").ends_with("1.25  met"));
        assert!(row("kill -9").ends_with("2.50  missed"));
        assert!(row("bytes a message").contains("300"));
    }
}
