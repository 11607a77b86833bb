//! Tables of the results beside floors and peers, with the goals met or missed.

use super::subject::{Load, Work};
use super::{Cell, Measured};
use crate::options::Options;
use crate::stats::{self, Figures};

/// Indices of the compared subjects: the floors, and the pool with one session and with many.
const APPEND: usize = 0;
const BARE_LOG: usize = 1;
const OURS: [usize; 2] = [2, 3];
/// Mean duration of a floor, in microseconds, above which the machine was not idle.
const CONTENDED_US: f64 = 1_000.0;

/// Required throughput ratio to another subject, at this number of clients.
struct Aim {
    clients: usize,
    than: &'static str,
    at_least: f64,
    beyond: f64,
}

const AIMS: [Aim; 4] = [
    Aim { clients: 64, than: "beanstalkd -f0", at_least: 7.0, beyond: 8.0 },
    Aim { clients: 64, than: "SQLite WAL FULL", at_least: 10.0, beyond: 12.0 },
    Aim { clients: 64, than: "Redis appendfsync always", at_least: 0.8, beyond: 1.0 },
    Aim { clients: 64, than: "bare log, group commit", at_least: 0.45, beyond: 0.55 },
];
/// Maximum ratio of the median with one client to the floor's.
const OF_FLOOR: f64 = 2.2;

/// Formats the tables.
pub(super) fn text(measured: &Measured, options: &Options, sessions: usize) -> String {
    let mut text = format!(
        "messages of 256 bytes, kept on disk below {}; medians over {} rounds of {} s each, in turn; load {}\n\
         peers: {}\n\"many\" is {sessions} sessions; \"one/\" and \"many/\" are the pool's operations a second over \
         those of the row\n",
        options.dir.display(),
        options.runs,
        options.time.as_secs_f64(),
        stats::load(),
        measured.peers.join("; "),
    );
    let mut loads: Vec<Load> = Vec::new();
    for cell in &measured.cells {
        if !loads.contains(&cell.load) {
            loads.push(cell.load);
        }
    }
    loads.into_iter().for_each(|load| text.push_str(&block(measured, load)));
    text.push_str(&aims(measured));
    let floor = Load { work: Work::Enqueue, clients: 1 };
    let mean = of(measured, APPEND, floor).map_or(f64::NAN, |floor| 1e6 / floor.rate);
    if mean > CONTENDED_US {
        text.push_str(&format!("the floor itself takes {mean:.0} us on average: this machine is not idle\n"));
    }
    text
}

/// Formats all results of one load.
fn block(measured: &Measured, load: Load) -> String {
    let what = match load.work {
        Work::Enqueue => "enqueue",
        Work::Cycle => "enqueue, claim, ack",
    };
    let clients = if load.clients == 1 { "1 client".to_owned() } else { format!("{} clients", load.clients) };
    let mut text = format!(
        "\n{:<32}{:>9}{:>19}{:>9}{:>10}{:>10}{:>8}{:>8}{:>8}\n",
        format!("{what}, {clients}"),
        "ops/s",
        "min..max",
        "p50 us",
        "p99 us",
        "x append",
        "x log",
        "one/",
        "many/",
    );
    for cell in measured.cells.iter().filter(|cell| cell.load == load) {
        text.push_str(&line(measured, cell));
    }
    text
}

fn line(measured: &Measured, cell: &Cell) -> String {
    let Figures { rate, p50, p99 } = Figures::median(&cell.rounds);
    let rates = || cell.rounds.iter().map(|round| round.rate);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let name = measured.subjects.get(cell.subject).copied().unwrap_or_default();
    let log = shown(of(measured, BARE_LOG, cell.load).map(|log| rate / log.rate));
    let [one, many] = OURS.map(|ours| {
        let better = of(measured, ours, cell.load).map(|ours| ours.rate / rate);
        shown(better.filter(|_| cell.subject != ours))
    });
    format!(
        "{name:<32}{rate:>9.0}{:>19}{p50:>9.0}{p99:>10.0}{:>10.2}{log:>8}{one:>8}{many:>8}\n",
        format!("{least:.0}..{most:.0}"),
        p50 / append(measured),
    )
}

fn aims(measured: &Measured) -> String {
    let mut text = "\naim, and what it came to with one session and with many\n".to_owned();
    let one_client = Load { work: Work::Enqueue, clients: 1 };
    let floor = append(measured);
    let ratios = OURS.map(|ours| of(measured, ours, one_client).map(|ours| ours.p50 / floor));
    let verdicts =
        ratios.map(|ratio| verdict(ratio, |ratio| if ratio <= OF_FLOOR { "met" } else { "missed" }));
    text.push_str(&format!(
        "{:<62}{}\n",
        format!("1 client: p50 at most {OF_FLOOR} x append"),
        verdicts.concat()
    ));
    for Aim { clients, than, at_least, beyond } in AIMS {
        let load = Load { work: Work::Enqueue, clients };
        let other = measured.subjects.iter().position(|name| *name == than);
        let other = other.and_then(|at| of(measured, at, load));
        let verdicts = OURS.map(|ours| {
            let ratio = of(measured, ours, load).zip(other).map(|(ours, other)| ours.rate / other.rate);
            verdict(ratio, |ratio| match ratio {
                ratio if ratio >= beyond => "beyond",
                ratio if ratio >= at_least => "met",
                _ => "missed",
            })
        });
        let aim = format!("{clients} clients: at least {at_least} x {than} ({beyond})");
        text.push_str(&format!("{aim:<62}{}\n", verdicts.concat()));
    }
    text
}

fn verdict(ratio: Option<f64>, word: impl Fn(f64) -> &'static str) -> String {
    match ratio.filter(|ratio| ratio.is_finite()) {
        Some(ratio) => format!("{ratio:>9.2} {:<8}", word(ratio)),
        None => format!("{:>9} {:<8}", "-", ""),
    }
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

/// Median of the first floor, in microseconds.
fn append(measured: &Measured) -> f64 {
    let load = Load { work: Work::Enqueue, clients: 1 };
    of(measured, APPEND, load).map_or(f64::NAN, |floor| floor.p50)
}

/// Medians of this subject under this load.
fn of(measured: &Measured, subject: usize, load: Load) -> Option<Figures> {
    let cell = measured.cells.iter().find(|cell| cell.subject == subject && cell.load == load)?;
    Some(Figures::median(&cell.rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(subject: usize, clients: usize, rate: f64) -> Cell {
        let rounds = [0.5, 1.0, 2.0].map(|factor| {
            let rate = rate * factor;
            Figures { rate, p50: 1e6 / rate, p99: 2e6 / rate }
        });
        Cell { subject, load: Load { work: Work::Enqueue, clients }, rounds: rounds.into() }
    }

    #[test]
    fn rows_are_compared_and_aims_judged() {
        let subjects = vec!["append + fdatasync", "bare log, group commit", "one", "many", "beanstalkd -f0"];
        let cells = vec![
            cell(0, 1, 10_000.0),
            cell(2, 1, 5_000.0),
            cell(3, 1, 4_000.0),
            cell(1, 64, 100_000.0),
            cell(2, 64, 50_000.0),
            cell(3, 64, 40_000.0),
            cell(4, 64, 6_000.0),
        ];
        let measured = Measured { subjects, cells, peers: vec!["pueue missing".to_owned()] };
        let text = block(&measured, Load { work: Work::Enqueue, clients: 64 });
        let row = text.lines().find(|line| line.starts_with("beanstalkd")).unwrap();
        assert!(row.ends_with("0.06    8.33    6.67"), "{row}");
        assert!(row.contains("3000..12000"), "{row}");
        let aims = aims(&measured);
        let aim = |word: &str| aims.lines().find(|line| line.contains(word)).unwrap();
        assert!(aim("2.2 x append").contains("2.00 met") && aim("2.2 x append").contains("2.50 missed"));
        assert!(aim("beanstalkd").contains("8.33 beyond") && aim("beanstalkd").contains("6.67 missed"));
        assert!(aim("bare log").contains("0.50 met") && aim("bare log").contains("0.40 missed"), "{aims}");
        assert!(aim("SQLite").trim_end().ends_with('-'), "{aims}");
    }
}
