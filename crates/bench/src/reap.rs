//! Latency of ending processes with proof, cost of scanning for them, and cost of the idle reaper. Ends are
//! compared with those of the same processes without supervision, in the same round.

mod bare;
mod crowd;
mod idle;
mod lock;
mod scan;
mod table;
mod trees;

use std::time::Duration;

use anyhow::Result;

use crate::create::bare::Bare;
use crate::options::Options;
use crate::order::order;
use crate::pool::{OPEN_FILES, Pool};
use crate::stats::Times;
use crate::usage::Memory;
use crate::{interrupt, print, report};
use crowd::Crowd;
use trees::Program;

/// Rounds before the first that counts.
const WARM_UP: usize = 1;
/// Number of sessions of the idle measurement.
const AT_REST: usize = 100;
/// Time for earlier work to settle.
const SETTLE: Duration = Duration::from_millis(500);

/// A way to end something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// Unsupervised processes, each by TERM through a handle held already.
    Bare(Program),
    /// Sessions of a bare tmux, by `kill-session`, until each of their processes has ended.
    Tmux,
    /// Sessions, by a request.
    Kill,
    /// Sessions whose program exits and leaves a pane.
    Exit,
    /// Sessions whose program is killed and leaves children and a pane.
    Leak,
}

impl Item {
    /// All, the floors first.
    const ALL: [Self; 6] = [
        Self::Bare(Program::Alone),
        Self::Bare(Program::Tree),
        Self::Tmux,
        Self::Exit,
        Self::Kill,
        Self::Leak,
    ];

    /// The program that is ended.
    fn program(self) -> Program {
        match self {
            Self::Bare(program) => program,
            Self::Exit => Program::Alone,
            Self::Tmux | Self::Kill | Self::Leak => Program::Tree,
        }
    }
}

/// Progress of the last one of several concurrent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sample {
    /// Time until everything is proved gone and the requester has its reply.
    whole: Duration,
    /// Time of each of [`crowd::STEPS`]; zero for ends without steps.
    steps: [Duration; crowd::STEPS.len()],
}

impl Sample {
    /// Returns the sample of an end without steps.
    fn of(whole: Duration) -> Self {
        Self { whole, ..Self::default() }
    }
}

/// All measurements of one item.
struct Row {
    item: Item,
    /// Number of concurrent ends.
    together: usize,
    whole: Times,
    steps: [Times; crowd::STEPS.len()],
}

impl Row {
    fn new(item: Item, together: usize) -> Self {
        Self { item, together, whole: Times::default(), steps: std::array::from_fn(|_| Times::default()) }
    }

    fn add(&mut self, sample: &Sample) {
        self.whole.push(sample.whole);
        self.steps.iter_mut().zip(sample.steps).for_each(|(times, step)| times.push(step));
    }
}

/// All results.
struct Measured {
    runs: usize,
    ends: Vec<Row>,
    scan: scan::Scan,
    /// Memory of the reaper before its first end.
    fresh: Option<Memory>,
    idle: idle::Idle,
    locks: lock::Locks,
}

/// Runs the suite, with one session and with this many concurrent ends, and prints its tables.
pub(crate) fn run(options: &Options, together: usize) -> Result<()> {
    process::runtime::rlimit::raise_open_files(OPEN_FILES)?;
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), AT_REST + 2 * together, "")?;
    pool.while_up(|pool| print(&table::text(&measure(pool, options, together)?)))
}

fn measure(pool: &Pool, options: &Options, together: usize) -> Result<Measured> {
    let runs = options.runs;
    report(&format!(
        "ending {} items, 1 and {together} at a time, {runs} times each, in turn",
        Item::ALL.len()
    ));
    let fresh = idle::reaper_memory(pool)?;
    let ends = rounds(pool, runs, together)?;
    report(&format!("scanning {} processes", scan::PROCESSES));
    let scan = scan::measure()?;
    report(&format!("making {AT_REST} sessions"));
    crowd::make(pool, &crowd::names("rest", AT_REST), Program::Alone)?;
    let locks = lock::measure(pool, "rest-0")?;
    report(&format!("idle for {} s", options.idle.as_secs()));
    let idle = idle::measure(pool, options.idle)?;
    Ok(Measured { runs, ends, scan, fresh, idle, locks })
}

fn rounds(pool: &Pool, runs: usize, together: usize) -> Result<Vec<Row>> {
    let tmux = Bare::start(pool, 0)?;
    let mut counts = vec![1, together];
    counts.dedup();
    let each = |item| counts.iter().map(move |count| Row::new(item, *count));
    let mut rows: Vec<Row> = Item::ALL.into_iter().flat_map(each).collect();
    let measured = (0..WARM_UP + runs).try_for_each(|run| {
        order(run, rows.len()).into_iter().try_for_each(|at| {
            let row = &mut rows[at];
            let sample = end(pool, &tmux, (row.item, row.together))?;
            if run >= WARM_UP {
                row.add(&sample);
            }
            Ok(())
        })
    });
    let ended = tmux.end();
    measured.and(ended).map(|()| rows)
}

/// Starts this many of an item, and measures their end.
fn end(pool: &Pool, tmux: &Bare<'_>, (item, together): (Item, usize)) -> Result<Sample> {
    interrupt::check()?;
    let sample = match item {
        Item::Bare(program) => Sample::of(bare::end(program, together)?),
        Item::Tmux => Sample::of(bare::end_in_tmux(tmux, together)?),
        Item::Exit | Item::Kill | Item::Leak => {
            let crowd = Crowd::make(pool, together, item.program())?;
            interrupt::sleep(SETTLE)?;
            let sample = if item == Item::Kill { crowd.kill() } else { crowd.end_programs() };
            crowd.remove()?;
            sample?
        }
    };
    interrupt::sleep(SETTLE)?;
    Ok(sample)
}
