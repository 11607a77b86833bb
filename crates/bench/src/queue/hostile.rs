//! Effect of hostile clients on one good client: the latency of its enqueues alone and among them, in turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::nuisance::{Crowd, DRIBBLING, Deaf, HALF_OPEN, Nuisance, Stuck};
use super::poold::Poold;
use super::subject::{Load, Subject, Work};
use super::{figures, pool};
use crate::options::Options;
use crate::order::order;
use crate::pool::Pool;
use crate::stats::{self, Figures};
use crate::{print, report};

/// Configuration with room for many messages, but only for a few hundred of the longest.
const CONFIG: &str = "[queue]\nmax_messages = 100000000\nmax_bytes = \"64MiB\"\n\
                      pool_max_messages = 100000000\npool_max_bytes = \"1024GiB\"\n";
/// Maximum ratio of the 99th percentile among hostile clients to the one alone.
const OF_ALONE: f64 = 2.0;

/// Environment of the good client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    None,
    Deaf,
    Crowd,
    Stuck,
}

impl Company {
    const ALL: [Self; 4] = [Self::None, Self::Deaf, Self::Crowd, Self::Stuck];

    fn name(self) -> String {
        match self {
            Self::None => "alone".to_owned(),
            Self::Deaf => "a subscriber that never reads".to_owned(),
            Self::Crowd => format!("{HALF_OPEN} half-open clients and {DRIBBLING} dribbling ones"),
            Self::Stuck => "a full queue of a stopped program".to_owned(),
        }
    }
}

/// Runs the suite and prints its table. The stuck session is in a pool of its own, so that it does not
/// affect the other measurements.
pub(crate) fn run(options: &Options, _sessions: usize) -> Result<()> {
    let [good, bad] = [pool(options, 2, CONFIG)?, pool(options, 2, CONFIG)?];
    let measured = good.while_up(|good| bad.while_up(|bad| measure(options, good, bad)));
    print(&table(&measured?, options))
}

fn measure(options: &Options, good: &Pool, bad: &Pool) -> Result<Vec<Vec<Figures>>> {
    let names = good.create_all(1)?;
    bad.create_all(1)?;
    bad.create("stuck")?;
    report("stopping a program and filling its queue");
    let name = names.first().context("no session")?;
    let mut stuck = Stuck::make(&bad.socket(), "stuck")?;
    let (refused_before, sent_before) = stuck.refused();
    let (rounds, seconds) = (options.runs, options.time.as_secs_f64());
    report(&format!("{rounds} rounds of {} measurements, {seconds} s each, in turn", Company::ALL.len()));
    let mut measured = vec![Vec::new(); Company::ALL.len()];
    for round in 0..options.runs {
        for at in order(round, Company::ALL.len()) {
            let company = Company::ALL[at];
            let socket = if company == Company::Stuck { bad.socket() } else { good.socket() };
            let mut client = Poold::new(&socket, &names);
            let mut run = || enqueue(&mut client, options.time);
            let figures = match company {
                Company::None => run(),
                Company::Deaf => beside(&mut Deaf::at(&socket)?, run),
                Company::Crowd => beside(&mut Crowd::at(&socket, name)?, run),
                Company::Stuck => beside(&mut stuck, run),
            };
            measured[at].push(figures.with_context(|| company.name())?);
        }
    }
    let (refused, sent) = stuck.refused();
    let (refused, sent) = (refused - refused_before, sent - sent_before);
    report(&format!("{refused} of {sent} messages to the stuck session were refused meanwhile"));
    Ok(measured)
}

fn enqueue(client: &mut Poold, time: Duration) -> Result<Figures> {
    let load = Load { work: Work::Enqueue, clients: 1 };
    Ok(figures(&client.run(load, time)?))
}

/// Runs `measure` while the other makes trouble.
fn beside<N: Nuisance + Send>(other: &mut N, measure: impl FnOnce() -> Result<Figures>) -> Result<Figures> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let trouble = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                other.step()?;
            }
            anyhow::Ok(())
        });
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        match trouble.join() {
            Ok(ended) => measured.and_then(|figures| ended.map(|()| figures)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn table(measured: &[Vec<Figures>], options: &Options) -> String {
    let mut text = format!(
        "one good client hands over messages of 256 bytes below {}; medians over {} rounds of {} s each, in turn; load {}\n\n\
         {:<46}{:>9}{:>9}{:>9}{:>9}\n",
        options.dir.display(),
        options.runs,
        options.time.as_secs_f64(),
        stats::load(),
        "beside it",
        "ops/s",
        "p50 us",
        "p99 us",
        "x alone",
    );
    let alone = measured.first().map_or(f64::NAN, |rounds| Figures::median(rounds).p99);
    for (company, rounds) in Company::ALL.into_iter().zip(measured) {
        let Figures { rate, p50, p99 } = Figures::median(rounds);
        let times = p99 / alone;
        let verdict = match company {
            Company::None => String::new(),
            _ => format!("  {}: at most {OF_ALONE}", if times <= OF_ALONE { "met" } else { "missed" }),
        };
        text.push_str(&format!(
            "{:<46}{rate:>9.0}{p50:>9.0}{p99:>9.0}{times:>9.2}{verdict}\n",
            company.name()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_compared_with_alone() {
        let measured = [200.0, 399.0, 401.0, 100.0].map(|p99| vec![Figures { rate: 1.0, p50: 1.0, p99 }]);
        let options = Options::parse(["queue", "--hostile"].iter().map(Into::into)).unwrap().unwrap();
        let text = table(&measured, &options);
        let row = |word: &str| text.lines().find(|line| line.starts_with(word)).unwrap();
        assert!(row("alone").ends_with("1.00"), "{text}");
        assert!(row("a subscriber").contains("2.00  met") && row("a full").contains("0.50  met"));
        assert!(row("256 half-open").contains("2.00  missed"));
    }

    /// A nuisance whose first step fails.
    struct Failing<'a>(&'a AtomicBool);

    impl Nuisance for Failing<'_> {
        fn step(&mut self) -> Result<()> {
            self.0.store(true, Ordering::Relaxed);
            anyhow::bail!("no more")
        }
    }

    #[test]
    fn nobody_is_alone_unnoticed() {
        let stepped = AtomicBool::new(false);
        let measure = || {
            let deadline = std::time::Instant::now() + Duration::from_secs(30);
            while !stepped.load(Ordering::Relaxed) {
                assert!(std::time::Instant::now() < deadline);
                thread::yield_now();
            }
            Ok(Figures { rate: 1.0, p50: 1.0, p99: 1.0 })
        };
        assert!(beside(&mut Failing(&stepped), measure).is_err());
    }
}
