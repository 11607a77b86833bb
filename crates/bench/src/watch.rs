//! Latency of observation: from a change in tmux, or the death of a pane's process, until a subscriber has
//! the event. Each round measures all floors and all subjects once.

mod load;
mod table;
mod world;

use std::time::Duration;

use anyhow::Result;

use crate::floors::{self, Control, Journal};
use crate::options::Options;
use crate::order::order;
use crate::pool::{OPEN_FILES, Pool};
use crate::stats::Times;
use crate::{interrupt, print, report};
use load::Load;
use world::World;

/// Rounds before the first that counts.
const WARM_UP: usize = 2;
/// Maximum number of the pool's own sessions, which are at most half of all.
const OURS: usize = 40;
/// Number of own sessions that the measurements need.
const OURS_AT_LEAST: usize = 4;
/// Time without an event after which the pool counts as quiet.
const QUIET: Duration = Duration::from_millis(30);

/// A measured floor or subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    RoundTrip,
    Exit,
    List,
    Append,
    Commit,
    Kill,
    KillForeign,
    New,
    Rename,
    Death,
}

impl Item {
    /// All, the floors first.
    const ALL: [Self; 10] = [
        Self::RoundTrip,
        Self::Exit,
        Self::List,
        Self::Append,
        Self::Commit,
        Self::Kill,
        Self::KillForeign,
        Self::New,
        Self::Rename,
        Self::Death,
    ];

    fn is_floor(self) -> bool {
        matches!(self, Self::RoundTrip | Self::Exit | Self::List | Self::Append | Self::Commit)
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// Duration of a floor; else the time from the end of the cause until its event, zero if the event came
    /// first.
    time: Duration,
    /// Time from the start of the cause.
    whole: Duration,
    /// True if the event came before its cause had ended.
    early: bool,
}

impl From<Duration> for Sample {
    fn from(time: Duration) -> Self {
        Self { time, whole: time, early: false }
    }
}

/// All measurements of one item.
struct Row {
    item: Item,
    time: Times,
    whole: Times,
    early: usize,
    /// Number of events that did not arrive.
    lost: usize,
}

impl Row {
    fn new(item: Item) -> Self {
        Self { item, time: Times::default(), whole: Times::default(), early: 0, lost: 0 }
    }

    fn add(&mut self, sample: Option<Sample>) {
        let Some(sample) = sample else {
            self.lost += 1;
            return;
        };
        self.time.push(sample.time);
        self.whole.push(sample.whole);
        self.early += usize::from(sample.early);
    }
}

/// All measurements with one number of sessions.
struct Measured {
    sessions: usize,
    ours: usize,
    runs: usize,
    /// The watcher's transport.
    transport: String,
    rows: Vec<Row>,
    load: Load,
}

/// Runs the suite with this many sessions and prints its tables.
pub(crate) fn run(options: &Options, sessions: usize) -> Result<()> {
    process::runtime::rlimit::raise_open_files(OPEN_FILES)?;
    let ours = OURS.min(sessions / 2).max(OURS_AT_LEAST);
    // Ended sessions keep their slot until they are gone.
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), 2 * ours, "")?;
    pool.while_up(|pool| print(&table::text(&measure(pool, options, (sessions, ours))?)))
}

fn measure(pool: &Pool, options: &Options, (sessions, ours): (usize, usize)) -> Result<Measured> {
    report(&format!("creating {sessions} sessions, {ours} of them the pool's"));
    let mut world = World::new(pool, sessions, ours)?;
    let (transport, parties) = world.parties()?;
    report(&format!("idle for {} s", options.idle.as_secs()));
    let idle = load::idle(&parties, options.idle)?;
    report(&format!("measuring {} items {} times each, in turn", Item::ALL.len(), options.runs));
    let rows = rounds(&mut world, options.runs)?;
    let memory = parties.memory();
    report(&format!("creating {} sessions, one by one", load::STORM));
    let storm = load::storm(&world, &parties)?;
    Ok(Measured { sessions, ours, runs: options.runs, transport, rows, load: Load { idle, memory, storm } })
}

fn rounds(world: &mut World<'_>, runs: usize) -> Result<Vec<Row>> {
    let mut control = match Control::open(world.pool) {
        Ok(control) => Some(control),
        Err(error) => {
            report(&format!("no native control connection, so its floor is missing: {error:#}"));
            None
        }
    };
    let mut journal = Journal::create(world.pool)?;
    let mut rows = Item::ALL.map(Row::new);
    for run in 0..WARM_UP + runs {
        for at in order(run, rows.len()) {
            interrupt::check()?;
            world.subscriber.quiet(QUIET)?;
            let row = &mut rows[at];
            let sample = match row.item {
                Item::RoundTrip => control.as_mut().map(Control::round_trip).transpose()?.map(Into::into),
                Item::Exit => Some(floors::exit_of_a_process()?.into()),
                Item::List => Some(world.list()?.into()),
                Item::Append => Some(journal.append()?.into()),
                Item::Commit => Some(world.client.commit(world.steady.id)?.into()),
                Item::Kill => world.kill()?,
                Item::KillForeign => world.kill_foreign()?,
                Item::New => world.new_foreign()?,
                Item::Rename => world.rename()?,
                Item::Death => world.death()?,
            };
            if run >= WARM_UP {
                row.add(sample);
            }
        }
    }
    Ok(rows.into())
}
