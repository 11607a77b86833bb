//! Creation of sessions: from the request until the session is proved to run, with its init and log writer;
//! beside the bare `tmux new-session`, which proves nothing. Each round measures all of them once.

pub(crate) mod bare;
mod makers;
mod table;
pub(crate) mod thousand;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::options::Options;
use crate::order::order;
use crate::pool::{OPEN_FILES, Pool};
use crate::stats::Times;
use crate::{interrupt, print, report};
use makers::{Maker, Makers};

/// Number of sessions created one by one in a round, and concurrently.
const ONE_BY_ONE: usize = 10;
const TOGETHER: usize = 40;
/// Number of concurrent requests.
const AT_A_TIME: usize = 8;
/// Time for removals to settle.
const SETTLE: Duration = Duration::from_millis(300);

/// Concurrency of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    One,
    Many,
}

impl Load {
    fn count(self) -> usize {
        match self {
            Self::One => ONE_BY_ONE,
            Self::Many => TOGETHER,
        }
    }

    fn threads(self) -> usize {
        match self {
            Self::One => 1,
            Self::Many => AT_A_TIME,
        }
    }
}

/// All measurements of one way to create sessions, under one load.
struct Row {
    maker: Maker,
    load: Load,
    times: Times,
    /// Rate of each round, sessions per second.
    rates: Vec<f64>,
}

/// Runs the suite with this many sessions present, and prints its table.
pub(crate) fn run(options: &Options, existing: usize) -> Result<()> {
    process::runtime::rlimit::raise_open_files(OPEN_FILES)?;
    let pool = Pool::new(&options.bin_dir, "/tmp".as_ref(), existing + 2 * TOGETHER, "")?;
    pool.while_up(|pool| {
        let makers = Makers::new(pool, existing)?;
        let rows = rounds(&makers, options.runs);
        makers.end()?;
        print(&table::text(&rows?, existing, options.runs))
    })
}

fn rounds(makers: &Makers<'_>, runs: usize) -> Result<Vec<Row>> {
    let row = |(maker, load)| Row { maker, load, times: Times::default(), rates: Vec::new() };
    let both = Maker::ALL.into_iter().flat_map(|maker| [(maker, Load::One), (maker, Load::Many)]);
    let mut rows: Vec<Row> = both.map(row).collect();
    report(&format!("creating sessions in {} ways, {runs} rounds after a warm-up", rows.len()));
    for run in 0..=runs {
        for at in order(run, rows.len()) {
            let row = &mut rows[at];
            let (times, took) = make(makers, row.maker, row.load)?;
            if run > 0 {
                #[expect(clippy::cast_precision_loss, reason = "a small number")]
                row.rates.push(times.len() as f64 / took.as_secs_f64());
                times.into_iter().for_each(|time| row.times.push(time));
            }
        }
    }
    Ok(rows)
}

/// Creates sessions and removes them; returns the duration of each and of all.
fn make(makers: &Makers<'_>, maker: Maker, load: Load) -> Result<(Vec<Duration>, Duration)> {
    let names: Vec<String> = (0..load.count()).map(|n| format!("new-{n}")).collect();
    let began = Instant::now();
    let times = many(&names, load.threads(), |name| makers.make(maker, name))?;
    let took = began.elapsed();
    makers.remove(maker, &names)?;
    interrupt::sleep(SETTLE)?;
    Ok((times, took))
}

/// Calls `each` for each name, this many at a time; returns the duration of each.
pub(crate) fn many(
    names: &[String],
    threads: usize,
    each: impl Fn(&str) -> Result<()> + Sync,
) -> Result<Vec<Duration>> {
    let timed = |name: &String| {
        interrupt::check()?;
        let began = Instant::now();
        each(name)?;
        anyhow::Ok(began.elapsed())
    };
    thread::scope(|scope| {
        let parts = names.chunks(names.len().div_ceil(threads).max(1));
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().map(timed).collect::<Result<Vec<_>>>()))
            .collect();
        let mut times = Vec::with_capacity(names.len());
        for part in parts {
            times.extend(part.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        Ok(times)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_is_done_once() {
        let names: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        let done = Mutex::new(Vec::new());
        let each = |name: &str| {
            done.lock().unwrap().push(name.to_owned());
            Ok(())
        };
        assert_eq!(many(&names, 4, each).unwrap().len(), 11);
        let mut done = done.into_inner().unwrap();
        done.sort_by_key(|name| name.parse::<u32>().unwrap());
        assert_eq!(done, names);
        assert!(many(&names, 4, |name| if name == "7" { anyhow::bail!("no") } else { Ok(()) }).is_err());
    }
}
