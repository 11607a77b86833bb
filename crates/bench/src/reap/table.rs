//! Tables of the results, with the goals met or missed.

use super::crowd::STEPS;
use super::idle::{Idle, Taken};
use super::scan::{PROCESSES, Scan};
use super::trees::{Program, SIZE};
use super::{AT_REST, Item, Measured, Row, lock, scan};
use crate::stats::{self, Times};
use crate::usage::Memory;

/// Maximum ratio of a proved end to the bare end.
const END_TIMES: f64 = 3.0;
/// Maximum duration of a scan of [`PROCESSES`], in milliseconds.
const LOOK_MS: f64 = 15.0;
/// Maximum share of a core of the idle reaper, in percent; it is shown as 0.
const REAPER_PERCENT: f64 = 0.05;
/// Maximum memory of the idle reaper, in bytes.
const REAPER_BYTES: u64 = 8_000_000;

/// Formats the tables.
pub(super) fn text(measured: &Measured) -> String {
    let (ends, looks) = (ends(&measured.ends, measured.runs), looks(&measured.scan));
    format!("{ends}\n{looks}\n{}\n{}", locks(&measured.locks), idle(measured.fresh, &measured.idle))
}

fn ends(rows: &[Row], runs: usize) -> String {
    let mut text = format!(
        "until the last is proved gone, {runs} rounds in turn, p50 in ms; load {}\nsteps: when the last had come so \
         far; a tree has {SIZE} processes\n\n{:<26}{:>9}{:>9}{:>9}{:>9}{:>8}",
        stats::load(),
        "end of",
        "together",
        "least",
        "ms",
        "p90",
        "x bare",
    );
    text.push_str(&STEPS.map(|step| format!("{step:>10}")).concat());
    text.push('\n');
    for row in rows {
        let [least, p50, p90] = [0.0, 0.5, 0.9].map(|share| ms(&row.whole, share));
        let steps = match row.item {
            Item::Bare(_) | Item::Tmux => String::new(),
            _ => row.steps.iter().map(|times| format!("{:>10.2}", ms(times, 0.5))).collect(),
        };
        let ratio = ratio(rows, row);
        let line = format!(
            "{:<26}{:>9}{least:>9.2}{p50:>9.2}{p90:>9.2}{ratio:>8.2}{steps}",
            label(row.item),
            row.together
        );
        text.push_str(&format!("{}\n", line.trim_end()));
    }
    let kills = rows.iter().filter(|row| row.item == Item::Kill);
    for row in kills {
        let ratio = ratio(rows, row);
        text.push_str(&format!(
            "{}: the kill of {} at most {END_TIMES} x the bare one: {ratio:.2}\n",
            verdict(ratio <= END_TIMES),
            row.together
        ));
    }
    text
}

fn label(item: Item) -> &'static str {
    match item {
        Item::Bare(Program::Alone) => "bare TERM to a process",
        Item::Bare(Program::Tree) => "bare TERM to a tree",
        Item::Tmux => "tmux kill-session: a tree",
        Item::Exit => "a program ends: its pane",
        Item::Kill => "kill: a tree and its pane",
        Item::Leak => "a shell is killed: its tree",
    }
}

/// Returns the ratio to the bare end of the same processes, with equal concurrency.
fn ratio(rows: &[Row], row: &Row) -> f64 {
    let bare = |of: &&Row| of.item == Item::Bare(row.item.program()) && of.together == row.together;
    rows.iter().find(bare).map_or(f64::NAN, |bare| ms(&row.whole, 0.5) / ms(&bare.whole, 0.5))
}

fn looks(scan: &Scan) -> String {
    let mut text = format!(
        "{:<30}{:>9}{:>9}{:>9}{:>8}\n",
        format!("a scan of {} processes", scan.processes),
        "least",
        "ms",
        "p90",
        "x bare"
    );
    let [bare, ..] = &scan.times;
    for (kind, times) in scan::Kind::ALL.into_iter().zip(&scan.times) {
        let [least, p50, p90] = [0.0, 0.5, 0.9].map(|share| ms(times, share));
        let name = match kind {
            scan::Kind::Bare => "reading every stat",
            scan::Kind::First => "the first scan",
            scan::Kind::Census => "for orphans, later ones",
            scan::Kind::Members => "for one tree, later ones",
        };
        text.push_str(&format!("{name:<30}{least:>9.2}{p50:>9.2}{p90:>9.2}{:>8.2}\n", p50 / ms(bare, 0.5)));
    }
    let slowest = scan.times.iter().map(|times| ms(times, 0.5)).fold(0.0, f64::max);
    text + &format!(
        "{}: every scan of {PROCESSES} processes under {LOOK_MS} ms: {slowest:.2}\n",
        verdict(slowest < LOOK_MS)
    )
}

fn locks(lock::Locks(times): &lock::Locks) -> String {
    let mut text =
        format!("{:<30}{:>9}{:>9}{:>8}{:>8}\n", "a command under a lock", "ms", "p90", "x true", "x flock");
    let [alone, file, ..] = times;
    for (kind, times) in lock::Kind::ALL.into_iter().zip(times) {
        let [p50, p90] = [0.5, 0.9].map(|share| ms(times, share));
        let name = match kind {
            lock::Kind::Alone => "true",
            lock::Kind::File => "flock FILE true",
            lock::Kind::Status => "poolctl status",
            lock::Kind::Session => "poolctl lock SESSION -- true",
        };
        let (of_alone, of_file) = (p50 / ms(alone, 0.5), p50 / ms(file, 0.5));
        text.push_str(&format!("{name:<30}{p50:>9.2}{p90:>9.2}{of_alone:>8.2}{of_file:>8.2}\n"));
    }
    text
}

fn idle(fresh: Option<Memory>, idle: &Idle) -> String {
    let mib = |bytes: u64| {
        #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes")]
        let bytes = bytes as f64;
        bytes / f64::from(1 << 20)
    };
    let mut text = format!(
        "{:<30}{:>9}{:>9}{:>9}{:>9}\n",
        format!("{AT_REST} sessions idle for {:.0} s", idle.time.as_secs_f64()),
        "% core",
        "MiB",
        "peak",
        "private",
    );
    if let Some(Memory { resident, peak }) = fresh {
        let name = "reaper, at the start";
        text.push_str(&format!("{name:<30}{:>9}{:>9.1}{:>9.1}\n", "", mib(resident), mib(peak)));
    }
    for (name, Taken { cpu, memory, own }) in [("reaper", idle.reaper), ("poold", idle.daemon)] {
        let own = own.map_or_else(|| "-".to_owned(), |own| format!("{:.1}", mib(own)));
        let (percent, resident, peak) = (100.0 * cpu, mib(memory.resident), mib(memory.peak));
        text.push_str(&format!("{name:<30}{percent:>9.3}{resident:>9.1}{peak:>9.1}{own:>9}\n"));
    }
    let met = 100.0 * idle.reaper.cpu < REAPER_PERCENT && idle.reaper.memory.resident < REAPER_BYTES;
    text + &format!("{}: the idle reaper at 0.0 % and under {} MB\n", verdict(met), REAPER_BYTES / 1_000_000)
}

fn ms(times: &Times, share: f64) -> f64 {
    times.quantile_us(share) / 1e3
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Sample;
    use super::*;

    fn row(item: Item, ms: u64) -> Row {
        let mut row = Row::new(item, 1);
        let whole = Duration::from_millis(ms);
        row.add(&Sample { whole, steps: [whole / 2; STEPS.len()] });
        row
    }

    fn times(ms: u64) -> Times {
        let mut times = Times::default();
        times.push(Duration::from_millis(ms));
        times
    }

    #[test]
    fn an_end_is_compared_with_that_of_the_same_processes() {
        let text = |kill| {
            let (one, tree) = (Item::Bare(Program::Alone), Item::Bare(Program::Tree));
            ends(&[row(one, 2), row(tree, 4), row(Item::Exit, 7), row(Item::Kill, kill)], 1)
        };
        assert!(text(12).contains("met: the kill of 1 at most 3 x the bare one: 3.00"), "{}", text(12));
        assert!(text(13).contains("missed: the kill of 1 at most"), "{}", text(13));
        assert!(text(13).contains("7.00     7.00    3.50      3.50"), "{}", text(13));
    }

    #[test]
    fn every_scan_is_to_be_short() {
        let text = |slow| looks(&Scan { processes: 1_000, times: [5, slow, 9, 10].map(times) });
        assert!(text(14).contains("\nmet: every scan"), "{}", text(14));
        assert!(text(15).contains("\nmissed: every scan"), "{}", text(15));
    }

    #[test]
    fn the_idle_reaper_is_to_be_small_and_still() {
        let text = |resident, cpu| {
            let memory = Memory { resident, peak: resident };
            let taken = Taken { cpu, memory, own: None };
            idle(Some(memory), &Idle { reaper: taken, daemon: taken, time: Duration::from_secs(1) })
        };
        assert!(text(7_999_999, 0.0004).contains("\nmet: the idle"));
        assert!(text(8_000_000, 0.0).contains("\nmissed: the idle"));
        assert!(text(1, 0.0006).contains("\nmissed: the idle"));
    }
}
