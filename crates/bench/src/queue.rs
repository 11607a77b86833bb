//! Throughput of durable messages: enqueueing until they are on disk, and full cycles of enqueue, claim and
//! ack; for the pool, its floors and its peers, in turn, on the same disk.

mod beanstalkd;
mod daemon;
mod drive;
mod floor;
pub(crate) mod hostile;
pub(crate) mod million;
mod nuisance;
pub(crate) mod poold;
mod pueue;
mod redis;
pub(crate) mod server;
mod sqlite;
mod subject;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::child;
use crate::options::Options;
use crate::order::order;
use crate::pool::Pool;
use crate::stats::{Figures, Times};
use crate::{interrupt, print, report};
use drive::Done;
use poold::Poold;
use subject::{Load, Subject, Work};

/// Numbers of clients that run full cycles.
const CYCLE_CLIENTS: [usize; 2] = [1, 8];
/// Configuration without effective limits.
const CONFIG: &str = "[queue]\nmax_messages = 100000000\nmax_bytes = \"1024GiB\"\n\
                      pool_max_messages = 100000000\npool_max_bytes = \"1024GiB\"\n";

/// A peer: its name, program, version flag, installation command and start function.
struct Peer {
    name: &'static str,
    program: &'static str,
    version: &'static str,
    install: &'static str,
    start: fn(&Path) -> Result<Box<dyn Subject>>,
}

/// All peers.
const PEERS: [Peer; 4] = [
    Peer {
        name: "beanstalkd",
        program: beanstalkd::PROGRAM,
        version: "-v",
        install: "scripts/dev/need beanstalkd",
        start: |dir| Ok(Box::new(beanstalkd::Beanstalkd::start(dir)?)),
    },
    Peer {
        name: "Redis",
        program: redis::PROGRAM,
        version: "--version",
        install: "scripts/dev/need redis-server",
        start: |dir| Ok(Box::new(redis::Redis::start(dir)?)),
    },
    Peer {
        name: "SQLite",
        program: sqlite::PROGRAM,
        version: "--version",
        install: "scripts/dev/need sqlite3",
        start: |dir| Ok(Box::new(sqlite::Sqlite::create(dir)?)),
    },
    Peer {
        name: "pueue",
        program: pueue::PROGRAM,
        version: "--version",
        install: "cargo install --locked pueue",
        start: |dir| Ok(Box::new(pueue::Pueue::start(dir)?)),
    },
];

/// Results of one subject under one load.
struct Cell {
    /// Index of the subject.
    subject: usize,
    load: Load,
    /// Figures of each round.
    rounds: Vec<Figures>,
}

/// All results.
struct Measured {
    /// Names of the subjects.
    subjects: Vec<&'static str>,
    cells: Vec<Cell>,
    /// Versions of the peers, and notes on missing ones.
    peers: Vec<String>,
}

/// Runs the suite, with messages spread over this many sessions, and prints its tables.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    let pool = pool(options, sessions, CONFIG)?;
    let measured = pool.while_up(|pool| {
        let names = pool.create_all(sessions)?;
        measure(pool, options, &names)
    })?;
    print(&table::text(&measured, options, sessions))
}

/// Creates a pool on the requested disk.
fn pool(options: &Options, sessions: usize, config: &str) -> Result<Pool> {
    let dir = &options.dir;
    ensure!(
        !is_memory(dir)?,
        "{} is in memory, where a sync costs nothing: choose a disk with --dir",
        dir.display()
    );
    Pool::new(&options.bin_dir, dir, sessions, config)
}

#[cfg(target_os = "linux")]
fn is_memory(dir: &Path) -> Result<bool> {
    let system = nix::sys::statfs::statfs(dir).with_context(|| dir.display().to_string())?;
    Ok(system.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC)
}

#[cfg(not(target_os = "linux"))]
fn is_memory(_dir: &Path) -> Result<bool> {
    Ok(false)
}

fn measure(pool: &Pool, options: &Options, names: &[String]) -> Result<Measured> {
    let dir = pool.dir().join("peers");
    fs::create_dir(&dir)?;
    let first = names.first().context("no sessions")?;
    let mut subjects: Vec<Box<dyn Subject>> = vec![
        Box::new(floor::Append::in_dir(&dir)?),
        Box::new(floor::BareLog::start(&dir)?),
        Box::new(Poold::new(&pool.socket(), std::slice::from_ref(first))),
        Box::new(Poold::new(&pool.socket(), names)),
    ];
    let mut peers = Vec::new();
    for peer in PEERS {
        match child::version(peer.program, peer.version) {
            Some(version) => {
                subjects.push((peer.start)(&dir).context(peer.name)?);
                peers.push(format!("{} {version}", peer.name));
            }
            None => peers.push(format!("{} missing: {}", peer.name, peer.install)),
        }
    }
    let mut cells = cells(&subjects, &options.clients);
    let (rounds, seconds) = (options.runs, options.time.as_secs_f64());
    report(&format!("{rounds} rounds of {} measurements, {seconds} s each, in turn", cells.len()));
    for round in 0..options.runs {
        for at in order(round, cells.len()) {
            let Cell { subject, load, rounds } = &mut cells[at];
            let subject = &mut subjects[*subject];
            let done = subject.run(*load, options.time);
            let done = done.with_context(|| format!("{}, clients: {}", subject.name(), load.clients))?;
            rounds.push(figures(&done));
        }
        interrupt::check()?;
    }
    Ok(Measured { subjects: subjects.iter().map(|subject| subject.name()).collect(), cells, peers })
}

/// Returns all combinations to measure, equal loads together.
fn cells(subjects: &[Box<dyn Subject>], clients: &[usize]) -> Vec<Cell> {
    let enqueues = clients.iter().map(|&clients| Load { work: Work::Enqueue, clients });
    let cycles = CYCLE_CLIENTS.map(|clients| Load { work: Work::Cycle, clients });
    let mut cells = Vec::new();
    for load in enqueues.chain(cycles) {
        let able = subjects.iter().enumerate().filter(|(_, subject)| subject.can(load));
        cells.extend(able.map(|(subject, _)| Cell { subject, load, rounds: Vec::new() }));
    }
    cells
}

fn figures(done: &Done) -> Figures {
    let rate = done.operations as f64 / done.took.as_secs_f64().max(f64::EPSILON);
    let quantile = |share| Times::quantile_us(&done.times, share);
    Figures { rate, p50: quantile(0.5), p99: quantile(0.99) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_peer_that_is_installed_does_what_it_can() {
        for peer in PEERS.iter().filter(|peer| child::version(peer.program, peer.version).is_some()) {
            let dir = tempfile::tempdir().unwrap();
            let mut subjects = [(peer.start)(dir.path()).unwrap()];
            for cell in cells(&subjects, &[1, 3]) {
                let done = subjects[0].run(cell.load, Duration::from_millis(20)).unwrap();
                assert!(done.times.len() >= cell.load.clients, "{}: {:?}", peer.name, cell.load);
            }
        }
    }
}
